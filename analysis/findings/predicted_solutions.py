"""The time to a target that larger batches predict: samples at each global batch over measured samples per second.

    T(P) = E(B(P)) / R(P), with E(B) = E_min (1 + B / B_noise) and the rate R(P) of P ranks

B_noise is that of the gradients, or without one the critical batch of the samples; E_min is fitted to the cells that
were trained. Rates are of a weak-scaling study or of the trainings themselves, at the numbers of ranks that were
measured: nothing is extrapolated over ranks. Times are those of training, without launch and evaluations.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any

import numpy as np

from dlscale.analysis.curves import curves_of, limits
from dlscale.analysis.declare import Column, Sentence, TableOf, tags_of
from dlscale.analysis.families import Family
from dlscale.analysis.finding import Finding, training_columns
from dlscale.analysis.findings import noise_scale, solution_table
from dlscale.analysis.findings.curve_plots import plain_series, rank_axis
from dlscale.analysis.findings.noise_scale import (
    NoiseScale,
    arrived,
    bootstrap_interval,
    law_of_samples,
    law_of_scale,
    laws,
    resampled_blocks,
    samples_by_block,
)
from dlscale.analysis.findings.small_print import solution_origin
from dlscale.analysis.findings.solutions import TimeToSolution, goal_text
from dlscale.analysis.form import Form
from dlscale.analysis.launches import Block, good_launches
from dlscale.analysis.measured import Measured, WeakScaling
from dlscale.analysis.plots import Axis, Figure, Guide, Plot, Point, Series
from dlscale.analysis.records import attributes
from dlscale.analysis.statistics import MIN_BLOCKS, Floats, Interval
from dlscale.analysis.text import (
    backend_name,
    interval_columns,
    number,
    plural,
    training_title,
    with_limits,
    workload_title,
)
from dlscale.benchmarks.records.cell import Cell
from dlscale.collectives.algorithms.registry import SYNC
from dlscale.collectives.sharding import NONE

OWN_RATES = "the trainings' own rates"


@dataclass(frozen=True, slots=True, kw_only=True)
class CellRates:
    """The samples per second of a cell's launches, by block."""

    cell: Cell
    rates: Mapping[Block, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictedTime:
    """What is predicted on one number of ranks."""

    cell: Cell  # whose rate was measured
    samples: float  # to the target
    rate: float  # samples/s, the median
    seconds: Interval  # of training


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictedTimes:
    """The predicted times of training over one backend, at two numbers of ranks or more, the fewest first."""

    noise: NoiseScale
    of_gradients: bool  # whether B_noise is that of the gradients
    source: str  # of the rates
    points: tuple[PredictedTime, ...]
    best: Interval  # ranks on which the time is least

    @property
    def cell(self) -> Cell:
        return self.points[-1].cell

    @property
    def stops(self) -> bool:
        """Whether the time stops falling within the measured ranks."""
        return self.best.center < self.cell.num_ranks

    @property
    def text(self) -> str:
        basis = "gradient noise" if self.of_gradients else "samples of several batches"
        most, low, high = plural(self.cell.num_ranks, "rank"), self.best.low, self.best.high
        lead = (
            f"Predicted from the {basis} and {self.source}: {backend_name(self.cell)} trains fastest to "
            f"{goal_text(self.noise.target)} on"
        )
        if not self.stops:
            text = f"{lead} {most}, the largest size measured, and still gains there"
            if low and low < self.best.center:
                text += f"; {plural(int(low), 'rank')} may be as good"
            return f"{text}."
        text = f"{lead} {with_limits(self.best, '{:.0f}'.format)} rank{'s' * (self.best.center > 1)}"
        if high is not None and high >= self.cell.num_ranks:
            return f"{text}; {most}, the largest size measured, may be as good."
        return f"{text}; more do not make it faster."


def predictions(noises: Sequence[NoiseScale], weak: WeakScaling | None) -> list[PredictedTimes]:
    """One for each backend of comparable trainings for which rates on two numbers of ranks are known."""
    found = (_predicted(noise, cells, source) for noise in noises for cells, source in _rates(noise, weak))
    return [times for times in found if times]


def _rates(noise: NoiseScale, weak: WeakScaling | None) -> list[tuple[list[CellRates], str]]:
    """(the rates of a backend by ranks, whose they are): of the weak-scaling study where it has the backend's."""
    sources = [(_own_rates(noise), OWN_RATES)]
    if weak:
        sources.append((_study_rates(noise, weak), f"the rates of {weak.study}"))
    found: dict[str, tuple[list[CellRates], str]] = {}
    for every, source in sources:
        alone = [own for own in every if own.cell.backend == "none" and own.cell.num_ranks == 1]
        curves: dict[str, list[CellRates]] = {}
        for own in every:
            if own.cell.backend != "none":
                curves.setdefault(backend_name(own.cell), []).append(own)
        for name, curve in curves.items():
            ranks = {own.cell.num_ranks: own for own in (*alone, *curve)}
            if len(ranks) > 1:
                found[name] = [ranks[count] for count in sorted(ranks)], source
    return list(found.values())


def _own_rates(noise: NoiseScale) -> list[CellRates]:
    return [
        CellRates(
            cell=row.cell, rates={t.block: t.last.samples / t.last.training_seconds for t in row.trainings}
        )
        for row in noise.rows
    ]


def _study_rates(noise: NoiseScale, weak: WeakScaling) -> list[CellRates]:
    return [
        CellRates(cell=launches.cell, rates=launches.samples_per_second)
        for launches in good_launches(weak.launches, controls={"train"})
        if launches.family == noise.family
        and launches.evidence == noise.rows[0].evidence
        and launches.cell.algorithm == SYNC
        and launches.cell.shard == NONE
        and launches.cell.split == 1
    ]


def _predicted(noise: NoiseScale, cells: Sequence[CellRates], source: str) -> PredictedTimes | None:
    if not (found := laws(noise)):
        return None
    of_gradients = "gradients" in found
    law = found["gradients" if of_gradients else "samples"]
    rates = [float(np.median(list(own.rates.values()))) for own in cells]
    counts = [own.cell.num_ranks for own in cells]
    seconds = np.array(
        [law.samples(own.cell.global_batch) / rate for own, rate in zip(cells, rates, strict=True)]
    )
    best = counts[int(np.argmin(seconds))]
    resampled, num_blocks = _resampled(noise, cells, of_gradients=of_gradients), len(noise.blocks)
    points = tuple(
        PredictedTime(
            cell=own.cell,
            samples=float(law.samples(own.cell.global_batch)),
            rate=rate,
            seconds=bootstrap_interval(
                float(seconds[place]), None if resampled is None else resampled[place], num_blocks=num_blocks
            ),
        )
        for place, (own, rate) in enumerate(zip(cells, rates, strict=True))
    )
    least = None if resampled is None else np.array(counts)[np.argmin(resampled, axis=0)].astype(float)
    return PredictedTimes(
        noise=noise,
        of_gradients=of_gradients,
        source=source,
        points=points,
        best=bootstrap_interval(float(best), least, num_blocks=num_blocks),
    )


def _resampled(noise: NoiseScale, cells: Sequence[CellRates], *, of_gradients: bool) -> Floats | None:
    """[cells, resamples] seconds with seeds, and launches of another study's rates, drawn with replacement.

    None where there are too few. A resample without a noise scale above 0 has samples that do not grow.
    """
    blocks, known = noise.blocks, arrived(noise.rows)
    if len(blocks) < MIN_BLOCKS:
        return None
    places = resampled_blocks(len(blocks))
    batches = np.array([row.cell.global_batch for row in known], dtype=float)
    samples = np.stack([np.median(samples_by_block(row, blocks)[places], axis=1) for row in known], axis=1)
    usable = np.isfinite(samples).all(axis=1)
    sums = np.array([noise.draws.get(block, (0.0, 0.0)) for block in blocks])[places].sum(axis=1)
    if of_gradients:
        usable &= sums[:, 1] > 0
    if not usable.any():
        return None
    if of_gradients:
        square, trace = sums[usable].T
        scale = np.divide(trace, square, out=np.full_like(trace, np.inf), where=square > 0)
        law = law_of_scale(batches, samples[usable], scale)
    else:
        law = law_of_samples(batches, samples[usable])
    seconds = []
    for own in cells:
        values = np.array([own.rates[block] for block in blocks if block in own.rates])
        drawn = places
        if len(values) < len(blocks):  # launches of another study: drawn by themselves
            values = np.array(list(own.rates.values()))
            drawn = resampled_blocks(len(values))
        seconds.append(law.samples(own.cell.global_batch) / np.median(values[drawn], axis=1)[usable])
    return np.stack(seconds)


Shown = tuple[PredictedTimes, PredictedTime]


def time_row(shown: Shown) -> dict[str, Any]:
    """A predicted point: never a measured time, which `time_to_solution` has."""
    times, point = shown
    return {
        **attributes(point.cell, "workload preset framework"),
        "backend": times.cell.backend,
        **attributes(point.cell, "num_ranks num_nodes global_batch"),
        **attributes(times.noise.target, "metric threshold"),
        "law": "gradients" if times.of_gradients else "samples",
        "rates": times.source,
        "samples_per_second": point.rate,
        "predicted_samples": point.samples,
        **interval_columns("predicted_training_seconds", point.seconds),
        **interval_columns("best_ranks", times.best),
        "stops_falling": times.stops,
    }


PREDICTED = TableOf[Shown](
    name="predicted-solutions",
    caption="Predicted time of training to the target",
    columns=(
        *training_columns(lambda shown: shown[0].noise.family),
        Column("target", lambda shown: goal_text(shown[0].noise.target), numeric=False, common=True),
        Column("backend", lambda shown: backend_name(shown[0].cell), numeric=False),
        Column("ranks", lambda shown: shown[1].cell.num_ranks),
        Column("global batch", lambda shown: shown[1].cell.global_batch),
        Column("rate", lambda shown: shown[1].rate, unit="samples/s"),
        Column("samples", lambda shown: shown[1].samples),
        Column("training", lambda shown: shown[1].seconds, unit="s, predicted"),
    ),
    data=time_row,
    legend=(
        "Only the rates were measured: samples to the target follow from the gradient noise scale, or without one from "
        "the samples at several batches, and from the cells that were trained. Without launch and evaluations. "
        "Intervals are bootstrapped over seeds."
    ),
    tags=lambda shown: tags_of(shown[1].cell),
)


def shown_points(found: Sequence[PredictedTimes]) -> list[Shown]:
    """Every predicted point, with its backend's."""
    return [(times, point) for times in found for point in times.points]


def _plots(found: Sequence[PredictedTimes]) -> Iterator[Plot]:
    """One per group of comparable trainings."""
    for place, (_, own) in enumerate(groupby(found, key=lambda times: id(times.noise))):
        yield prediction_plot(list(own), name=f"predicted-{place}")


def prediction_plot(found: Sequence[PredictedTimes], *, name: str) -> Plot:
    """The predicted times of comparable trainings over ranks; `found` is not empty."""
    noise = found[0].noise
    family = noise.family
    return Plot(
        name=name,
        title=f"predicted time of training to {goal_text(noise.target)}: {workload_title(family.workload)}, "
        f"{family.framework}",
        says=" ".join(times.text for times in found),
        x=rank_axis([point for _, point in shown_points(found)]),
        y=Axis(title="predicted time of training [s]", low=0.0),
        series=tuple(
            Series(
                name=backend_name(times.cell),
                look=backend_name(times.cell),
                evidence="simulated",
                points=tuple(
                    Point(
                        x=point.cell.num_ranks,
                        y=point.seconds.center,
                        low=point.seconds.low,
                        high=point.seconds.high,
                        lines=(
                            f"{backend_name(times.cell)}, {plural(point.cell.num_ranks, 'rank')}, predicted",
                            f"{with_limits(point.seconds, unit=' s')}",
                            f"{number(point.samples)} samples at {number(point.rate)} samples/s",
                        ),
                    )
                    for point in times.points
                ),
                tags=tags_of(times.cell),
                joined=True,
            )
            for times in found
        ),
        notes=("Nothing in this plot was measured: measured times are in the section above.",),
        table=PREDICTED.name,
    )


LAWS = {"gradients": "by gradient noise", "samples": "fitted to samples"}
NUM_PLACES = 100  # along a law
TRAINED = ("workload", "preset", "framework", "backend", "num_ranks", "global_batch")


def batches_figure(study: Measured, family: Family, form: Form) -> Figure | None:
    """The samples to the target over the global batch, and the time over ranks that follows.

    None where nothing says how samples grow with the batch. Left they are measured, with E(B) = E_min (1 + B / B_noise)
    through them; right nothing is measured.
    """
    rows = [row for row in solution_table.FINDING.of(study) if row.family == family]
    own, noises = [row for row in arrived(rows) if form.draws(row.cell)], noise_scale.noise_scales(rows)
    if not own or not any(map(laws, noises)):
        return None
    found = [times for times in predictions(noises, study.weak_scaling) if form.draws(times.cell)]
    scales = [
        f"{name} {noise_scale.scale_text(scale)}"
        for noise in noises
        for name, scale in (("from gradients", noise.scale), ("from samples", noise.critical))
        if scale
    ]
    text = (
        "Left: median samples to the target with order-statistic intervals, measured, and E = E_min (1 + B / B_noise), "
        f"fitted to them with B_noise {'; '.join(scales) or 'without bound'}."
    )
    if found:
        sources = "; ".join(sorted({times.source for times in found}))
        text += f" Right: E over {sources}; predicted, without launch and evaluations, with intervals bootstrapped "
        text += "over seeds."
    points = [time_row(shown) for shown in shown_points(predictions(noises, study.weak_scaling))]
    return Figure(
        name="larger-batches",
        title=f"Larger batches, to {goal_text(own[0].target)}: {training_title(family)}",
        subtitle=family.constants,
        small_print=(text, solution_origin(study.provenance)),
        beside={"predicted": points} if points else {},
        panels=(_samples_plot(own, noises), *([_times_plot(found)] if found else [])),
        rows=_samples_rows(noises),
        wide=bool(found),
    )


def _samples_plot(rows: Sequence[TimeToSolution], noises: Sequence[NoiseScale]) -> Plot:
    batches = sorted({row.cell.global_batch for row in rows})
    along = np.geomspace(batches[0] / 1.5, batches[-1] * 1.5, NUM_PLACES).tolist()
    series = plain_series(
        curves_of(rows, lambda row: row.samples),
        lambda row: row.samples,
        at=lambda row: float(row.cell.global_batch),
    )
    return Plot(
        name="samples",
        title="",
        says="samples to the target over the global batch",
        x=Axis(
            title="global batch [samples]",
            kind="log",
            ticks=tuple((float(batch), str(batch)) for batch in batches),
            low=along[0],
            high=along[-1],
        ),
        y=Axis(title="samples to the target", low=0.0),
        series=tuple(replace(each, joined=False) for each in series),
        guides=tuple(
            Guide(label=LAWS[name], points=tuple((batch, float(law.samples(batch))) for batch in along))
            for name in LAWS
            for noise in noises
            for law in (laws(noise).get(name),)
            if law
        ),
    )


def _times_plot(found: Sequence[PredictedTimes]) -> Plot:
    high = 1.08 * limits([point.seconds for _, point in shown_points(found)])[1]
    plot = prediction_plot(found, name="predicted")
    return replace(plot, title="", y=replace(plot.y, high=high))


def _samples_rows(noises: Sequence[NoiseScale]) -> list[dict[str, Any]]:
    """The samples to the target of every cell that has a median, and what each law makes of its batch."""
    return [
        {
            **{name: getattr(row.cell, name) for name in TRAINED},
            "evidence": row.evidence,
            **interval_columns("samples", row.samples),
            **{
                f"samples_by_{name}": float(law.samples(row.cell.global_batch)) if law else None
                for name in LAWS
                for law in (laws(noise).get(name),)
            },
        }
        for noise in noises
        for row in arrived(noise.rows)
    ]


def _screen(study: Measured) -> Iterator[Sentence]:
    compared = noise_scale.compared_families(study)
    found = (one for one in FINDING.of(study) if one.noise.family not in compared)
    return (Sentence(text=times.text) for times in found)


FINDING = Finding(
    name="predicted_solutions",
    title="Predicted time of training",
    compute=lambda study: predictions(noise_scale.FINDING.of(study), study.weak_scaling),
    sentences=lambda found: (Sentence(text=times.text, tags=tags_of(times.cell)) for times in found),
    plots=_plots,
    more=lambda found: (PREDICTED.of(shown_points(found)),),
    screen=_screen,
    data=lambda found: {"predicted_solutions": [time_row(shown) for shown in shown_points(found)]},
    figures={"larger-batches": batches_figure},
    under="noise_scales",
)
FINDINGS = (FINDING,)
