"""The finding of predictions beside what a study measured: their table, their points in plots, their words."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from statistics import median
from typing import Any

from dlscale.analysis.curves import Value as ValueOf
from dlscale.analysis.curves import dodge
from dlscale.analysis.declare import (
    Block,
    Column,
    Point,
    Sentence,
    Series,
    TableOf,
    Value,
    training_columns,
)
from dlscale.analysis.finding import Finding
from dlscale.analysis.findings import scaling
from dlscale.analysis.findings.simulated_points import SimulatedPoint, simulated_points
from dlscale.analysis.measured import Measured
from dlscale.analysis.records import settings_text
from dlscale.analysis.text import (
    interval_columns,
    listed,
    percent,
    plural,
    points,
    rate,
    with_limits,
)
from dlscale.benchmarks.records.prediction import PredictionRecord


def prediction_row(record: PredictionRecord) -> dict[str, Any]:
    """A prediction as a flat row; `low` and `high` are the efficiency's."""
    return {
        "system": record.system,
        "workload": record.workload,
        "backend": record.backend,
        "num_nodes": record.num_nodes,
        "num_ranks": record.num_ranks,
        "samples_per_second": record.samples_per_second.center,
        "efficiency": record.efficiency.center,
        "low": record.efficiency.low,
        "high": record.efficiency.high,
        "evidence": record.evidence,
        "preset": record.preset,
        "framework": record.framework,
        "scaling_mode": record.scaling_mode,
        "num_servers": record.num_servers,
        "local_batch": record.local_batch,
        "samples_per_second_low": record.samples_per_second.low,
        "samples_per_second_high": record.samples_per_second.high,
        "step_seconds": record.step_seconds.center,
        **{f"{name.replace(' ', '_')}_loss": share for name, share in record.parts.items()},
        "engine": record.engine,
        "engine_version": record.engine_version,
        "profile_evidence": record.profile_evidence,
        "profile_digest": record.profile_digest,
        "network_digest": record.network_digest,
        "calibrated_nodes": record.calibrated_nodes,
        "held_out_error": record.held_out_error,
        "doubts": "; ".join(record.doubts),
        "noise": "; ".join(record.noise),
        "noise_not_measured": "; ".join(record.noise_not_measured),
        "backend_options": settings_text(record.backend_options),
        "exchange_algorithm": record.exchange_algorithm,
        "global_batch": record.global_batch,
    }


def simulated_row(point: SimulatedPoint) -> dict[str, Any]:
    """The prediction's row, with what it is held against: None where nothing is measured."""
    measured = point.measured
    return {
        **prediction_row(point.record),
        "curve": point.name,
        "measured_evidence": measured and measured.evidence,
        **interval_columns("measured_samples_per_second", measured.throughput if measured else None),
        "error": point.error,
        "inside_band": point.inside,
    }


def to_scaling_columns(point: SimulatedPoint) -> dict[str, Any]:
    """The prediction in columns of a scaling table's rows (`efficiency.scaling_row`), for a CSV of both."""
    record, family = point.record, point.family
    return {
        "system": record.system,
        "workload": record.workload,
        "preset": record.preset,
        "framework": record.framework,
        "backend": record.backend,
        "backend_options": settings_text(record.backend_options),
        "scaling_mode": family.scaling_mode,
        "num_ranks": record.num_ranks,
        "num_servers": record.num_servers,
        "num_nodes": record.num_all_nodes,
        "local_batch": record.local_batch,
        "global_batch": record.global_batch,
        "evidence": record.evidence,
        **interval_columns("samples_per_second", point.throughput),
        **interval_columns("efficiency_none", point.efficiency_none),
        "base_ranks": point.base_ranks,
        "notes": "; ".join([f"predicted by {record.engine} {record.engine_version}", *record.doubts]),
    }


def _measured_text(point: SimulatedPoint) -> Value:
    rated = point.measured and point.measured.throughput
    if not rated or point.measured is None:
        return Value(text="")
    kind = "" if point.measured.evidence == "measured" else f" ({point.measured.evidence})"
    return Value(text=f"{rate(rated)}{kind}", order=rated.center)


def _error_text(point: SimulatedPoint) -> Value:
    return Value(text="" if point.error is None else points(point.error, sign="+"), order=point.error)


def _inside_text(point: SimulatedPoint) -> str:
    return "" if point.inside is None else "yes" if point.inside else "no"


PREDICTED_POINTS = TableOf[SimulatedPoint](
    name="predicted",
    caption="Predicted: simulated, nothing of it was run",
    columns=(
        *training_columns(lambda point: point.family),
        Column("backend", lambda point: point.name, numeric=False),
        Column("ranks", lambda point: point.record.num_ranks),
        Column("nodes", lambda point: point.cell.num_nodes),
        Column("servers", lambda point: point.record.num_servers or ""),
        Column("predicted", lambda point: point.throughput, unit="samples/s"),
        Column(
            "efficiency (a)",
            lambda point: Value(
                text=percent(point.efficiency_none, unit="") if point.efficiency_none else "",
                order=point.record.efficiency.center,
            ),
            unit="%",
        ),
        Column("measured", _measured_text, unit="samples/s"),
        Column("error", _error_text, unit="%"),
        Column("inside", _inside_text, numeric=False),
        Column(
            "engine",
            lambda point: f"{point.record.engine} {point.record.engine_version}",
            numeric=False,
            detail=True,
        ),
        Column(
            "doubts",
            lambda point: Value(text="; ".join(point.record.doubts), notes=point.record.doubts),
            numeric=False,
        ),
    ),
    data=simulated_row,
    legend=(
        "[ ]: the band of the prediction, 5 to 95 % of its replicates. Efficiency: relative to one rank without a "
        "communication layer, by the profile. Error: predicted over measured samples/s, less 1; inside: whether "
        "the measured rate is within the band."
    ),
    tags=lambda point: point.tags,
    group=lambda point: (point.family, point.name),
)


def compared_points(every: Iterable[SimulatedPoint]) -> list[SimulatedPoint]:
    """The points that can be held against something measured."""
    return [point for point in every if point.error is not None]


def comparison_sentence(every: Iterable[SimulatedPoint]) -> str:
    """How wrong predictions are where something is measured; empty without such a point."""
    compared = [(point, point.error) for point in every if point.error is not None]
    if not compared:
        return ""
    kinds = sorted({str(point.measured.evidence) for point, _ in compared if point.measured})
    typical = median(abs(error) for _, error in compared)
    worst, largest = max(compared, key=lambda pair: abs(pair[1]))
    num_inside = sum(bool(point.inside) for point, _ in compared)
    return (
        f"Predictions against {plural(len(compared), f'{listed(kinds)} size')}: {num_inside} inside the band; the "
        f"rate is wrong by {points(typical)} % in the median, by {points(largest, sign='+')} % at worst "
        f"({worst.where})."
    )


def curve_sentences(every: Iterable[SimulatedPoint]) -> Iterator[str]:
    """What is predicted for the largest size of each curve, always called so."""
    for _, group in groupby(every, key=lambda point: (point.family, point.name)):
        last = list(group)[-1]
        kept = f", efficiency {percent(last.efficiency_none)}" if last.efficiency_none else ""
        yield f"Predicted (simulated): {last.where}, {with_limits(last.throughput)} samples/s{kept}."


def doubts_of(every: Iterable[SimulatedPoint]) -> str:
    """Which curves are not to be trusted, and why; empty if nothing speaks against any."""
    doubted = [point for point in every if point.record.doubts]
    doubts = dict.fromkeys(doubt for point in doubted for doubt in point.record.doubts)
    names = listed(list(dict.fromkeys(point.name for point in doubted)))
    return f"Predictions over {names} are not to be trusted: {'; '.join(doubts)}" if doubts else ""


def lead_sentences(every: Sequence[SimulatedPoint]) -> Iterator[str]:
    """Why predictions are not to be trusted, how wrong they are, and where they come from, as far as there is any."""
    doubts = doubts_of(every)
    yield from filter(None, (doubts and f"{doubts}.", comparison_sentence(every), origin_sentence(every)))


def origin_sentence(every: Sequence[SimulatedPoint]) -> str:
    """By which engines, from which profiles and networks they are; empty without any."""
    if not every:
        return ""
    records = [point.record for point in every]
    engines = sorted({f"{record.engine} {record.engine_version}" for record in records})
    profiles = sorted({f"{record.profile_evidence} profile ({record.profile_source})" for record in records})
    networks = sorted({record.network_source for record in records if record.network_source})
    between = f" and the network of {'; '.join(networks)}" if networks else ""
    share = f"{100 * records[0].level:.0f} %"
    return (
        f"Simulated by {listed(engines)} from {'; '.join(profiles)}{between}: medians, with bands that hold {share} of "
        "the replicates. Nothing of it was run."
    )


ASIDE = 2.0**-0.18  # factor on ranks: a prediction stands left of what was measured


def predicted_series(
    every: Sequence[SimulatedPoint], value: ValueOf, measured: Sequence[str]
) -> list[Series]:
    """A series for each curve of the points that have `value`; `measured` are the names of the plot's other series."""
    names = list(dict.fromkeys(measured))
    known = [point for point in every if value(point)]
    series = []
    for name, group in groupby(known, key=lambda point: point.name):
        members = tuple(group)
        place = ASIDE * (dodge(names.index(name), len(names)) if name in names else 1.0)
        series.append(
            Series(
                name=f"{name}, predicted",
                look=name,
                evidence=members[0].evidence,
                points=tuple(
                    Point(
                        x=point.record.num_ranks * place,
                        y=interval.center,
                        low=interval.low,
                        high=interval.high,
                        lines=tuple(_lines(point)),
                    )
                    for point in members
                    if (interval := value(point))
                ),
                tags=members[0].tags,
                band=True,
                aside=place,
            )
        )
    return series


def predicted_notes(every: Sequence[SimulatedPoint]) -> tuple[str, ...]:
    """What to know of a plot's predictions; nothing without any."""
    doubts = doubts_of(every)
    return tuple(text for text in (origin_sentence(every), doubts and f"{doubts}.") if text)


def _lines(point: SimulatedPoint) -> Iterator[str]:
    """The tooltip."""
    record = point.record
    yield f"{point.where}, simulated: nothing was run"
    yield f"{with_limits(point.throughput)} samples/s"
    if kept := point.efficiency_none:
        yield f"efficiency {with_limits(kept.times(100), '{:.1f}'.format)} %"
    yield (
        f"band: {100 * record.level:.0f} % of {plural(record.num_replicates, 'replicate')}, {record.engine} "
        f"{record.engine_version}"
    )
    if point.error is not None:
        yield f"{points(point.error, sign='+')} % of what was measured"


def _sentences(every: Sequence[SimulatedPoint]) -> Iterator[Sentence]:
    if doubts := doubts_of(every):
        yield Sentence(text=f"{doubts}.", strong=True)
    for sentence in (comparison_sentence(every), *curve_sentences(every), origin_sentence(every)):
        if sentence:
            yield Sentence(text=sentence)


def _screen(study: Measured) -> Iterator[Block]:
    """What is predicted for the largest size of each curve, and how wrong that is where something is measured."""
    if points := FINDING.of(study):
        if doubts := doubts_of(points):
            yield Sentence(text=doubts, strong=True)
        yield from (
            Sentence(text=text) for text in (*curve_sentences(points), comparison_sentence(points)) if text
        )


def predicted_of(study: Measured) -> tuple[SimulatedPoint, ...]:
    """The predictions of a study that belong to its families."""
    return simulated_points(study.predictions, scaling.FINDING.of(study))[0]


LEAD = "What a model expects (docs/prediction.md). Simulated; not used in any measured number."
FINDING = Finding(
    name="predicted",
    title="Predicted, not measured",
    lead=LEAD,
    compute=predicted_of,
    sentences=_sentences,
    more=lambda points: (PREDICTED_POINTS.of(points),) if points else (),
    screen=_screen,
    data=lambda points: {"predicted": [simulated_row(point) for point in points]},
)
FINDINGS = (FINDING,)
