"""Predictions beside what a study measured: which belong to it, how wrong they are, and how they are shown.

A prediction belongs to the family that trains what it states: system, workload, preset, framework, scaling mode and
batch. It is held against the training over the same backend, with the same of the options that predictions model, on as
many ranks, nodes and servers:

    error    predicted samples/s / measured samples/s - 1
    inside   whether the measured samples/s lie within the band of the predicted ones

Nothing that is measured ever contains a prediction: they are beside a table's rows, and never among them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from statistics import median
from typing import Any, NamedTuple

from dlscale.analysis.curves import Value as ValueOf
from dlscale.analysis.declare import Column, Sentence, TableOf, Tags, Value
from dlscale.analysis.families import Family
from dlscale.analysis.finding import Finding, training_columns
from dlscale.analysis.findings import scaling
from dlscale.analysis.findings.scaling import ScalingRow
from dlscale.analysis.measured import Measured
from dlscale.analysis.metrics import VERSUS_NONE
from dlscale.analysis.plots import Block, Point, Series
from dlscale.analysis.records import engine_text, prediction_row, settings_text, values_of
from dlscale.analysis.statistics import Interval
from dlscale.analysis.text import (
    backend_name,
    interval_columns,
    listed,
    percent,
    plural,
    points,
    rate,
    with_limits,
)
from dlscale.base.errors import UsageError
from dlscale.benchmarks.records.cell import Setting
from dlscale.benchmarks.records.prediction import HARMLESS, Band, PredictionRecord
from dlscale.collectives.algorithms.registry import SYNC


class Place(NamedTuple):
    """Where a prediction stands over ranks; nodes of servers are counted, as in a cell."""

    num_ranks: int
    num_nodes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedPrediction:
    """A prediction beside a family of a study; `measured` is what it can be held against, None where nothing is."""

    record: PredictionRecord
    family: Family
    name: str  # of its curve: that of the measured one over the same backend, if there is one
    base_ranks: int  # of the family's base cases
    measured: ScalingRow | None = None

    @property
    def cell(self) -> Place:
        """What axes over ranks ask of a row's cell."""
        return Place(self.record.num_ranks, self.record.num_all_nodes)

    @property
    def evidence(self) -> str:
        return self.record.evidence

    @property
    def throughput(self) -> Interval:
        """Predicted samples per second over all ranks."""
        return self._interval(self.record.samples_per_second)

    @property
    def efficiency_none(self) -> Interval | None:
        """Predicted efficiency against 1 rank without communication; None if the study's is not of one rank."""
        return self._interval(self.record.efficiency) if self.base_ranks == 1 else None

    @property
    def measured_rate(self) -> Interval | None:
        """Measured samples per second; None where nothing is measured."""
        return self.measured.throughput if self.measured else None

    @property
    def error(self) -> float | None:
        """By which share the predicted rate is too high; None where nothing is measured."""
        rated = self.measured_rate
        return self.throughput.center / rated.center - 1 if rated else None

    @property
    def inside(self) -> bool | None:
        """Whether what is measured lies within the band; None where nothing is."""
        band, rated = self.record.samples_per_second, self.measured_rate
        return band.low <= rated.center <= band.high if rated else None

    @property
    def where(self) -> str:
        """`ring on 64 ranks (64 nodes)`."""
        ranks, nodes = plural(self.cell.num_ranks, "rank"), plural(self.cell.num_nodes, "node")
        return f"{self.name} on {ranks} ({nodes})"

    @property
    def tags(self) -> Tags:
        record = self.record
        return Tags(workload=record.workload, framework=record.framework, backend=record.backend)

    def _interval(self, band: Band) -> Interval:
        record = self.record
        limits = {"center": band.center, "low": band.low, "high": band.high}
        return Interval(**limits, level=record.level, method=record.method, n=record.num_replicates)


def place_predictions(
    records: Iterable[PredictionRecord], rows: Iterable[ScalingRow]
) -> tuple[tuple[PlacedPrediction, ...], tuple[str, ...]]:
    """The predictions that belong to a family of these rows, and a sentence for each training whose do not.

    Raises UsageError if two are of one point: nothing tells which to show.
    """
    trained = [row for row in rows if row.cell.control == "train"]
    families = list(dict.fromkeys(row.family for row in trained))
    found: list[PlacedPrediction] = []
    left: dict[tuple[str, int], int] = {}
    for record in records:
        own = [family for family in families if _belongs(record, family)]
        if len(own) == 1:
            found.append(_placed(record, own[0], trained))
        else:
            kind = (training_text(record), len(own))
            left[kind] = left.get(kind, 0) + 1
    ordered = sorted(found, key=_order)
    for first, second in pairwise(ordered):
        if _order(first) == _order(second):
            raise UsageError(
                f"two predictions of {first.where}, {training_text(first.record)}; give the files of one with "
                "--predicted"
            )
    return tuple(ordered), tuple(_left_text(*kind, count) for kind, count in left.items())


def training_text(record: PredictionRecord) -> str:
    """`hep_cnn paper in torch, weak scaling on cori, batch 128`: what has to be equal to what a study trains."""
    what = f"{record.workload} {record.preset} in {record.framework}"
    return f"{what}, {record.scaling_mode} scaling on {record.system}, batch {record.batch}"


def _left_text(training: str, num_families: int, count: int) -> str:
    known = "no such training"
    if num_families:
        known = f"{num_families} such trainings, which differ in what predictions do not state "
        known += "(precision, compilation, data ...)"
    return f"{plural(count, 'prediction')} of {training}: the study has {known}"


def _belongs(record: PredictionRecord, family: Family) -> bool:
    stated = ("system", "workload", "preset", "framework", "scaling_mode", "batch")
    return all(getattr(record, name) == getattr(family, name) for name in stated)


def _placed(record: PredictionRecord, family: Family, trained: Iterable[ScalingRow]) -> PlacedPrediction:
    own = [row for row in trained if row.family == family]
    same = [row for row in own if _same_backend(record, row)]
    size = (record.num_ranks, record.num_all_nodes, record.num_servers)
    at = [
        row
        for row in same
        if row.throughput and (row.cell.num_ranks, row.cell.num_nodes, row.cell.num_servers) == size
    ]
    return PlacedPrediction(
        record=record,
        family=family,
        name=backend_name(same[0].cell) if same else _own_name(record),
        base_ranks=own[0].base_ranks,
        measured=min(at, key=lambda row: row.evidence != "measured", default=None),
    )


def _same_backend(record: PredictionRecord, row: ScalingRow) -> bool:
    cell = row.cell
    return (
        (cell.backend, cell.algorithm, cell.shard) == (record.backend, SYNC, record.shard)
        and cell.split == 1
        and not record.exchange_algorithm
        and _modelled(cell.backend_options) == _modelled(record.backend_options)
    )


def _modelled(options: Mapping[str, Setting]) -> dict[str, Setting]:
    """The options that change what is predicted."""
    return {name: value for name, value in options.items() if name not in HARMLESS}


def _own_name(record: PredictionRecord) -> str:
    options = dict(record.backend_options)
    if record.exchange_algorithm:
        options["algorithm"] = record.exchange_algorithm
    return f"{record.carrier} ({settings_text(options)})" if options else record.carrier


def _order(point: PlacedPrediction) -> tuple[object, ...]:
    record = point.record
    size = (record.num_ranks, record.num_nodes, record.num_servers)
    return point.family, record.backend != "none", point.name, *size


def placed_row(point: PlacedPrediction) -> dict[str, Any]:
    """The prediction's row, with what it is held against: None where nothing is measured."""
    return {
        **prediction_row(point.record),
        "curve": point.name,
        "measured_evidence": point.measured and point.measured.evidence,
        **interval_columns("measured_samples_per_second", point.measured_rate),
        "error": point.error,
        "inside_band": point.inside,
    }


def to_scaling_columns(point: PlacedPrediction) -> dict[str, Any]:
    """The prediction in columns of a scaling table's rows (`scaling.scaling_row`), for a CSV of both."""
    record = point.record
    return {
        **values_of(record, "system", "workload", "preset", "framework", "backend"),
        "backend_options": settings_text(record.backend_options),
        **values_of(record, "scaling_mode", "num_ranks", "num_servers"),
        "num_nodes": record.num_all_nodes,
        **values_of(record, "local_batch", "global_batch", "evidence"),
        **interval_columns("samples_per_second", point.throughput),
        **interval_columns("efficiency_none", point.efficiency_none),
        "base_ranks": point.base_ranks,
        "notes": "; ".join([f"predicted by {engine_text(record)}", *record.doubts]),
    }


def _measured_text(point: PlacedPrediction) -> Value:
    rated = point.measured_rate
    if not rated or point.measured is None:
        return Value(text="")
    kind = "" if point.measured.evidence == "measured" else f" ({point.measured.evidence})"
    return Value(text=f"{rate(rated)}{kind}", order=rated.center)


def _efficiency_text(point: PlacedPrediction) -> Value:
    own = point.efficiency_none
    return Value(text=percent(own, unit="") if own else "", order=point.record.efficiency.center)


def _error_text(point: PlacedPrediction) -> Value:
    return Value(text="" if point.error is None else points(point.error, sign="+"), order=point.error)


PREDICTED_POINTS = TableOf[PlacedPrediction](
    name="predicted",
    caption="Predicted: simulated, nothing of it was run",
    columns=(
        *training_columns(lambda point: point.family),
        Column("backend", lambda point: point.name, numeric=False),
        Column("ranks", lambda point: point.record.num_ranks),
        Column("nodes", lambda point: point.cell.num_nodes),
        Column("servers", lambda point: point.record.num_servers or ""),
        Column("predicted", lambda point: point.throughput, unit="samples/s"),
        Column(VERSUS_NONE, _efficiency_text, unit="%"),
        Column("measured", _measured_text, unit="samples/s"),
        Column("error", _error_text, unit="%"),
        Column("inside", lambda point: {None: "", True: "yes", False: "no"}[point.inside], numeric=False),
        Column("engine", lambda point: engine_text(point.record), numeric=False, detail=True),
        Column(
            "doubts",
            lambda point: Value(text="; ".join(point.record.doubts), notes=point.record.doubts),
            numeric=False,
        ),
    ),
    data=placed_row,
    legend=(
        "[ ]: the band of the prediction, 5 to 95 % of its replicates. Efficiency: vs 1 rank without communication, "
        "by the profile. Error: predicted over measured samples/s, less 1; inside: whether "
        "the measured rate is within the band."
    ),
    tags=lambda point: point.tags,
    group=lambda point: (point.family, point.name),
)


def comparison_sentence(every: Iterable[PlacedPrediction]) -> str:
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


def curve_sentences(every: Iterable[PlacedPrediction]) -> Iterator[str]:
    """What is predicted for the largest size of each curve, always called so."""
    for _, group in groupby(every, key=lambda point: (point.family, point.name)):
        last = list(group)[-1]
        kept = f", efficiency {percent(last.efficiency_none)}" if last.efficiency_none else ""
        yield f"Predicted (simulated): {last.where}, {with_limits(last.throughput)} samples/s{kept}."


def doubts_of(every: Iterable[PlacedPrediction]) -> str:
    """Which curves are not to be trusted, and why; empty if nothing speaks against any."""
    doubted = [point for point in every if point.record.doubts]
    doubts = dict.fromkeys(doubt for point in doubted for doubt in point.record.doubts)
    names = listed(list(dict.fromkeys(point.name for point in doubted)))
    return f"Predictions over {names} are not to be trusted: {'; '.join(doubts)}" if doubts else ""


def origin_sentence(every: Sequence[PlacedPrediction]) -> str:
    """By which engines, from which profiles and networks they are; empty without any."""
    if not every:
        return ""
    records = [point.record for point in every]
    engines = sorted({engine_text(record) for record in records})
    return (
        f"Simulated by {listed(engines)}: medians, with bands that hold "
        f"{100 * records[0].level:.0f} % of the replicates. Nothing of it was run."
    )


def lead_sentences(every: Sequence[PlacedPrediction]) -> Iterator[str]:
    """Why predictions are not to be trusted, how wrong they are, and where they come from, as far as there is any."""
    doubts = doubts_of(every)
    yield from filter(None, (doubts and f"{doubts}.", comparison_sentence(every), origin_sentence(every)))


def predicted_series(every: Sequence[PlacedPrediction], value: ValueOf) -> list[Series]:
    """A series for each curve of the points that have `value`."""
    series = []
    for name, group in groupby(filter(value, every), key=lambda point: point.name):
        members = tuple(group)
        series.append(
            Series(
                name=f"{name}, predicted",
                look=name,
                evidence=members[0].evidence,
                points=tuple(
                    Point(
                        x=float(point.record.num_ranks),
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
            )
        )
    return series


def predicted_notes(every: Sequence[PlacedPrediction]) -> tuple[str, ...]:
    """What to know of a plot's predictions; nothing without any."""
    doubts = doubts_of(every)
    return tuple(filter(None, (origin_sentence(every), doubts and f"{doubts}.")))


def _lines(point: PlacedPrediction) -> Iterator[str]:
    """The tooltip."""
    record = point.record
    yield f"{point.where}, simulated: nothing was run"
    yield f"{with_limits(point.throughput)} samples/s"
    if kept := point.efficiency_none:
        yield f"efficiency {with_limits(kept.times(100), '{:.1f}'.format)} %"
    yield f"band: {100 * record.level:.0f} % of {plural(record.num_replicates, 'replicate')}, {engine_text(record)}"
    if point.error is not None:
        yield f"{points(point.error, sign='+')} % of what was measured"


def _sentences(every: Sequence[PlacedPrediction]) -> Iterator[Sentence]:
    if doubts := doubts_of(every):
        yield Sentence(text=f"{doubts}.", strong=True)
    texts = (comparison_sentence(every), *curve_sentences(every), origin_sentence(every))
    yield from (Sentence(text=text) for text in texts if text)


def _screen(study: Measured) -> Iterator[Block]:
    """What is predicted for the largest size of each curve, and how wrong that is where something is measured."""
    every = FINDING.of(study)
    if doubts := doubts_of(every):
        yield Sentence(text=doubts, strong=True)
    yield from (Sentence(text=text) for text in (*curve_sentences(every), comparison_sentence(every)) if text)


LEAD = "What a model expects (docs/prediction.md). Simulated; not used in any measured number."
FINDING = Finding(
    name="predicted",
    title="Predicted, not measured",
    answers=True,
    lead=LEAD,
    compute=lambda study: place_predictions(study.predictions, scaling.FINDING.of(study))[0],
    sentences=_sentences,
    more=lambda points: (PREDICTED_POINTS.of(points),) if points else (),
    screen=_screen,
    data=lambda points: {"predicted": [placed_row(point) for point in points]},
)
FINDINGS = (FINDING,)
