"""The time to a target on nodes that are not here: samples that local trainings took, over the predicted rate.

    T(n, B) = S(B) / R(n, B)

S(B) are the samples to the target at global batch B, which do not depend on where they are computed: the median of
local trainings with its interval. R is predicted at the same global batch, divided over the ranks of n nodes, so that
no batch is extrapolated: one that nobody trained with has no prediction. The band goes from the fewest samples at the
highest rate to the most at the lowest. Times are those of training, without start and evaluations.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dlscale.analysis.declare import Column, Table, TableOf
from dlscale.analysis.findings.solutions import TimeToSolution, goal_text, times_to_solution
from dlscale.analysis.launches import launches_of
from dlscale.analysis.predict.prediction import PredictedCurve, PredictedPoint, prediction_record
from dlscale.analysis.records import prediction_row
from dlscale.analysis.text import number
from dlscale.benchmarks.records.files import load_records
from dlscale.benchmarks.records.prediction import Band, PredictionRecord
from dlscale.collectives.algorithms.registry import SYNC

Columns = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplesToTarget:
    """What local trainings took at one global batch."""

    global_batch: int
    framework: str
    preset: str
    samples: Band
    target: str
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictedSolution:
    """A predicted time on one number of nodes."""

    curve: PredictedCurve
    point: PredictedPoint
    trained: SamplesToTarget

    @property
    def seconds(self) -> Band:
        """The time of training to the target."""
        rate, samples = self.point.samples_per_second, self.trained.samples
        return Band(
            low=samples.low / rate.high,
            center=samples.center / rate.center,
            high=samples.high / rate.low,
        )

    def record(self, *, commit: str, command: str) -> PredictionRecord:
        """The prediction's record."""
        plain = prediction_record(self.curve, self.point, commit=commit, command=command)
        return plain.model_copy(
            update={
                "target": self.trained.target,
                "samples_to_target": self.trained.samples,
                "samples_source": self.trained.source,
                "seconds_to_target": self.seconds,
            }
        )


def samples_in(folder: Path, workload: str, frameworks: Collection[str]) -> list[SamplesToTarget]:
    """The samples that the trainings of the study in `folder` took."""
    records, _ = load_records(folder)
    rows = times_to_solution(launches_of(records), base="1")
    return [it for it in samples_of(rows, workload, folder.name) if it.framework in frameworks]


def samples_of(rows: Iterable[TimeToSolution], workload: str, study: str) -> list[SamplesToTarget]:
    """The samples by global batch, of plain synchronous trainings with an interval: the cell of most trainings."""
    found: dict[int, tuple[int, SamplesToTarget]] = {}
    for row in rows:
        cell, samples = row.cell, row.samples
        if cell.workload != workload or cell.algorithm != SYNC or samples is None:
            continue
        if cell.precision != "fp32" or set(cell.backend_options) - {"allow_open_ports"}:
            continue
        if samples.low is None or samples.high is None or row.target.evaluate_seconds:
            continue
        text = (
            f"{len(row.trainings)} {row.evidence} trainings of {cell.workload} {cell.preset} in {cell.framework} over "
            f"{cell.backend} at global batch {cell.global_batch}, study {study}"
        )
        trained = SamplesToTarget(
            global_batch=cell.global_batch,
            framework=cell.framework,
            preset=cell.preset,
            samples=Band(low=samples.low, center=samples.center, high=samples.high),
            target=goal_text(row.target),
            source=text,
        )
        if len(row.trainings) > found.get(cell.global_batch, (0, None))[0]:
            found[cell.global_batch] = len(row.trainings), trained
    return [trained for _, (_, trained) in sorted(found.items())]


def solution_caption(solutions: Sequence[PredictedSolution]) -> str:
    """What is trained, to which target and where."""
    first = solutions[0]
    profile, network = first.curve.scenario.profile, first.curve.scenario.network
    trained = f"training {profile.workload} {profile.preset} to {first.trained.target}"
    return f"{trained} on {network.name}, {profile.framework}"


def solution_table(solutions: Sequence[PredictedSolution]) -> Table:
    """A row per backend, global batch and number of nodes."""
    return TableOf[PredictedSolution](
        name="predicted-solutions",
        caption=solution_caption(solutions),
        columns=(
            Column("backend", lambda it: it.curve.scenario.rule.backend, numeric=False),
            Column("batch", lambda it: it.trained.global_batch),
            Column("nodes", lambda it: it.point.num_nodes),
            Column("ranks", lambda it: it.point.num_ranks),
            Column("samples", lambda it: number(it.trained.samples.center)),
            Column("samples/s", lambda it: number(it.point.samples_per_second.center)),
            Column("time", lambda it: number(it.seconds.center), unit="s"),
            Column("low", lambda it: number(it.seconds.low), unit="s"),
            Column("high", lambda it: number(it.seconds.high), unit="s"),
        ),
        data=solution_row,
        legend="low and high: the interval's fewest samples at the highest rate, its most at the lowest",
        group=lambda it: (it.curve.scenario.rule.backend, it.trained.global_batch),
    ).of(solutions)


def solution_row(solution: PredictedSolution) -> Columns:
    """A flat row for programs, with the prediction's own columns behind."""
    trained, seconds = solution.trained, solution.seconds
    return {
        "target": trained.target,
        "seconds_to_target": seconds.center,
        "seconds_to_target_low": seconds.low,
        "seconds_to_target_high": seconds.high,
        "samples_to_target": trained.samples.center,
        "samples_to_target_low": trained.samples.low,
        "samples_to_target_high": trained.samples.high,
        "samples_source": trained.source,
    } | prediction_row(prediction_record(solution.curve, solution.point))
