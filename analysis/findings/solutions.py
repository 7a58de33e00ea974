"""Time to solution: how long trainings took to reach their target, how many samples, and why.

`trainings.py` says what a training's time is. Relative to 1 rank it is a product: samples to the target x time per
sample.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from dlscale.analysis.censored import Run, expected_cost, median_cost, reached_share
from dlscale.analysis.curves import options_order, rates_are_tried
from dlscale.analysis.families import Family, base_cell, base_ranks
from dlscale.analysis.findings.server_updates import Staleness, stalenesses
from dlscale.analysis.findings.trainings import Training, closest_value, metric_of, trainings_of
from dlscale.analysis.launches import CellLaunches, good_launches
from dlscale.analysis.statistics import LEVEL, Interval, block_ratio, median_interval
from dlscale.analysis.text import cell_name, number, plural, ratio_text, with_limits
from dlscale.benchmarks.records.cell import Cell
from dlscale.benchmarks.records.record import Base
from dlscale.benchmarks.records.target import Target
from dlscale.collectives import capabilities
from dlscale.collectives.algorithms.registry import SYNC
from dlscale.collectives.registry import has_other_updates
from dlscale.collectives.sharding import NONE
from dlscale.models.optimizers import DECAY_FACTOR
from dlscale.models.quality.metric import Metric


@dataclass(frozen=True, slots=True, kw_only=True)
class Ratios:
    """Ratios of trainings to those of a reference, paired by seed; None where nobody knows (`_ratios`)."""

    speed_up: Interval | None = None  # of the time from the launch: reference over this
    training_speed_up: Interval | None = None  # the product of the next one and 1 / the one after it
    rate_ratio: Interval | None = None  # samples per second: this over the reference
    samples_ratio: Interval | None = None  # samples to the target: this over the reference


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeToSolution:
    """The trainings of one cell. Medians are None where half of them or fewer reached the target."""

    cell: Cell
    target: Target
    family: Family
    evidence: str
    base: Cell | None  # what the ratios are relative to
    trainings: tuple[Training, ...]
    seconds: Interval | None  # from the launch
    training_seconds: Interval | None  # from the first step, evaluations left out
    samples: Interval | None
    share: Interval  # of trainings that reached the target
    expected: Interval | None  # seconds from the launch, with restarts
    seconds_per_step: Interval  # steps alone, without the first one and evaluations
    seconds_per_epoch: Interval | None  # likewise; None if a training does not say how many samples that is
    # Base over this, paired by seed; None unless all trainings of both reached the target.
    speed_up: Interval | None = None  # of the time from the launch
    training_speed_up: Interval | None = None  # the product of the next one and 1 / the one after it
    rate_ratio: Interval | None = None  # samples per second: this over base
    # Samples to the target: this over base; None too where evaluations come after seconds (`_ratios`).
    samples_ratio: Interval | None = None
    # Of another algorithm the same ratios to synchronous SGD over the same backend, options and ranks.
    synchronous: Ratios = Ratios()
    samples_per_second: Interval | None = None  # of training, evaluations left out
    staleness: Staleness | None = None  # None where nobody counts it, as where ranks step together
    # Where ways of training are compared: synchronous SGD on as many ranks, and the ratios to it.
    reference: Cell | None = None
    versus: Ratios = Ratios()
    joint_speed_up: Interval | None = (
        None  # `versus.speed_up` at a level at which all comparisons hold together
    )

    @property
    def metric(self) -> Metric:
        """What the target is about."""
        return metric_of(self.cell, self.target)

    @property
    def num_reached(self) -> int:
        return sum(training.reached for training in self.trainings)

    @property
    def closest(self) -> float | None:
        """The best value of the metric that any training had; None if none was computed."""
        return closest_value(self.cell, self.target, self.trainings)

    @property
    def evaluating_share(self) -> float:
        """The median share of evaluating in the time from the first step."""
        last = [training.last for training in self.trainings]
        return float(
            np.median([e.evaluating_seconds / (e.evaluating_seconds + e.training_seconds) for e in last])
        )

    @property
    def saving_share(self) -> float | None:
        """The median share of saving and restoring in the time from the launch; None where no training was saved."""
        shares = [t.saving_seconds / t.seconds for t in self.trainings if t.launches and t.seconds]
        return float(np.median(shares)) if shares else None

    @property
    def num_resumed(self) -> int:
        return sum(len(training.launches) > 1 for training in self.trainings)

    @property
    def lost_seconds(self) -> float:
        """Work that was done again, over all trainings."""
        return math.fsum(training.lost_seconds for training in self.trainings)

    @property
    def verdict(self) -> str:
        """`sooner` or `later` than the reference, or `not shown`, all of a study together; or why there is none."""
        if self.reference is None:
            return ""
        if self.reference == self.cell:
            return "reference"
        if missed := len(self.trainings) - self.num_reached:
            return f"{missed} missed it"
        joint = self.joint_speed_up
        if joint is None:
            return "reference missed it"
        if joint.low is None or joint.high is None:
            return "too few seeds"
        return "sooner" if joint.low > 1 else "later" if joint.high < 1 else "not shown"

    @property
    def text(self) -> str:
        """Sentences with the result, and with what interruptions lost."""
        if not self.num_resumed:
            return self._result + self._versus_synchronous
        trainings = plural(len(self.trainings), "training")
        lost = f"{number(self.lost_seconds)} s of work was done twice and is not counted."
        took = f"{self.num_resumed} of {trainings} took more than one launch; {lost}"
        return f"{self._result}{self._versus_synchronous} {took}"

    @property
    def _versus_synchronous(self) -> str:
        """` Versus synchronous SGD over ring: 1.10 times as fast, ...`; empty where that is not known."""
        own, backend = self.synchronous, self.cell.backend
        if not own.speed_up and self.reference:
            own, backend = self.versus, self.reference.backend
        if not (own.speed_up and own.rate_ratio):
            return ""
        text = f" Versus synchronous SGD over {backend} it is {ratio_text(own.speed_up)} times as fast: "
        text += f"{ratio_text(own.rate_ratio)} times as many samples/s"
        if not own.samples_ratio:
            return text + "."
        return f"{text}, {ratio_text(own.samples_ratio)} times as many samples are needed."

    @property
    def _result(self) -> str:
        goal = goal_text(self.target)
        where = f"{cell_name(self.cell, self.evidence)} on {plural(self.cell.num_ranks, 'rank')}"
        if not self.seconds:
            how = f"{self.num_reached} of {plural(len(self.trainings), 'training')} reached {goal}"
            near = "" if self.closest is None else f"; the best had {self.closest:.4g}"
            samples = f"{self.target.max_samples} samples and " if self.target.max_samples else ""
            return f"{where}: {how} in at most {samples}{number(self.target.max_seconds)} s{near}."
        text = f"{where} reaches {goal} in a median of {with_limits(self.seconds)} s"
        if self.num_reached < len(self.trainings):
            text += f" ({self.num_reached} of {plural(len(self.trainings), 'training')} did)"
        if not (self.base and self.speed_up and self.rate_ratio):
            return text + "."
        base = f"{self.base.backend} on {plural(self.base.num_ranks, 'rank')}"
        text += f", by geometric means {ratio_text(self.speed_up)} times as fast as {base}: "
        text += f"{ratio_text(self.rate_ratio)} times as many samples/s"
        if not self.samples_ratio:
            return text + "."
        return f"{text}, {ratio_text(self.samples_ratio)} times as many samples are needed."


def fastest_first(rows: Iterable[TimeToSolution]) -> list[TimeToSolution]:
    """Rows on the most ranks first; among them by median time, those without one last."""
    return sorted(
        rows, key=lambda row: (-row.cell.num_ranks, row.seconds.center if row.seconds else math.inf)
    )


def goal_text(target: Target) -> str:
    """`AUC 0.993`: metric and threshold."""
    return f"{metric_name(target)} {target.threshold:g}"


def rules_text(target: Target) -> str:
    """How the learning rate of 1 rank scales and changes, and the optimizer by name; empty if it stays as it is."""
    parts = [] if target.scaling == "none" else [f"learning rate scaling with the batch: {target.scaling}"]
    if schedule := target.schedule:
        if schedule.warm_up_samples:
            parts.append(f"warm-up over {schedule.warm_up_samples} samples")
        if schedule.decay_samples:
            after = ", ".join(map(str, schedule.decay_samples))
            parts.append(f"learning rate times {DECAY_FACTOR:g} after {after} samples")
    if target.optimizer:
        terms = target.optimizer.model_dump(exclude={"name"}, exclude_none=True)
        values = ", ".join(f"{term.replace('_', ' ')} {value:g}" for term, value in terms.items())
        parts.append(f"optimizer {target.optimizer.name}" + (f" ({values})" if values else ""))
    return "; ".join(parts)


def training_goal(rows: Sequence[TimeToSolution]) -> str:
    """What the trainings of a family have in common: its constants, the target, and the rules of the learning rate."""
    target = rows[0].target
    rules = "".join(f"; {text}" for text in [rules_text(target)] if text)
    return f"{rows[0].family.constants}; to {goal_text(target)} on held-out samples{rules}"


def metric_name(target: Target) -> str:
    """`AUC`, `signal efficiency`."""
    return target.metric.replace("auc", "AUC").replace("_", " ")


def times_to_solution(measured: Sequence[CellLaunches], *, base: Base) -> tuple[TimeToSolution, ...]:
    """What every cell with a target took, by family, ranks and backend."""
    cells = [launches for launches in good_launches(measured) if launches.cell.target]
    found = [_of_cell(launches, cells, base=base) for launches in cells]
    rows = [row for row in found if row]
    return tuple(
        sorted(
            rows,
            key=lambda row: (
                row.family,
                row.cell.num_ranks,
                row.cell.backend != "none",
                row.cell.backend,
                row.cell.algorithm != SYNC,
                row.cell.algorithm,
                row.cell.shard != NONE,
                row.cell.shard,
                row.cell.split,
                options_order(row.cell),
                row.target.learning_rate,
            ),
        )
    )


def _of_cell(launches: CellLaunches, cells: Sequence[CellLaunches], *, base: Base) -> TimeToSolution | None:
    target, trainings = launches.cell.target, trainings_of(launches)
    if not trainings or target is None:
        return None
    reference = _base_of(launches, cells, base=base)
    ratios, synchronous = Ratios(), Ratios()
    if reference and reference.cell != launches.cell:
        ratios = _ratios(trainings, trainings_of(reference))
    if other := _synchronous_of(launches, cells):
        synchronous = _ratios(trainings, trainings_of(other))
    versus, joint = Ratios(), None
    compared = _compared_with(launches, cells)
    plain = _plainest(compared)
    if plain and plain.cell != launches.cell:
        versus = _ratios(trainings, trainings_of(plain))
        level = 1 - (1 - LEVEL) / (len(compared) - 1)
        joint = _ratios(trainings, trainings_of(plain), level=level).speed_up
    timed = [training for training in trainings if training.seconds is not None]
    whole = [Run(training.seconds or 0.0, training.reached) for training in timed]
    return TimeToSolution(
        cell=launches.cell,
        target=target,
        family=launches.family,
        evidence=launches.evidence,
        base=reference.cell if reference else None,
        trainings=trainings,
        seconds=median_cost(whole),
        training_seconds=median_cost(
            [Run(training.last.training_seconds, training.reached) for training in trainings]
        ),
        samples=median_cost([Run(training.last.samples, training.reached) for training in trainings]),
        share=reached_share([Run(0.0, training.reached) for training in trainings]),
        expected=expected_cost(whole, limit=target.max_seconds),
        seconds_per_step=median_interval([training.seconds_per_step for training in trainings]),
        seconds_per_epoch=_median_if_known([training.seconds_per_epoch for training in trainings]),
        speed_up=ratios.speed_up,
        training_speed_up=ratios.training_speed_up,
        rate_ratio=ratios.rate_ratio,
        samples_ratio=ratios.samples_ratio,
        synchronous=synchronous,
        samples_per_second=median_interval(
            [training.last.samples / training.last.training_seconds for training in trainings]
        ),
        staleness=next(iter(stalenesses(case.record for case in launches.good)), None),
        reference=plain.cell if plain else None,
        versus=versus,
        joint_speed_up=joint,
    )


def _median_if_known(values: Sequence[float | None]) -> Interval | None:
    known = [value for value in values if value is not None]
    return median_interval(known) if len(known) == len(values) else None


def _base_of(launches: CellLaunches, cells: Sequence[CellLaunches], *, base: Base) -> CellLaunches | None:
    """The launches without a communication layer on the base's ranks, of the same kind of evidence."""
    own = [
        other for other in cells if other.family == launches.family and other.evidence == launches.evidence
    ]
    ranks = base_ranks((other.cell for other in own), base)
    if rates_are_tried(other.cell for other in own):  # one of them each: that of the same rate
        own = [other for other in own if _rate(other.cell) == _rate(launches.cell)]
    cell = base_cell(launches.cell, [other.cell for other in own], same_backend=False, num_ranks=ranks)
    return next((other for other in own if other.cell == cell), None)


def _synchronous_of(launches: CellLaunches, cells: Sequence[CellLaunches]) -> CellLaunches | None:
    """The launches of synchronous SGD that differ from these of another algorithm in nothing else."""
    if launches.cell.algorithm == SYNC:
        return None
    wanted = launches.cell.model_copy(update={"algorithm": SYNC, "algorithm_options": {}}).id
    return next(
        (other for other in cells if other.cell.id == wanted and other.evidence == launches.evidence), None
    )


def _compared_with(launches: CellLaunches, cells: Sequence[CellLaunches]) -> list[CellLaunches]:
    """The launches on as many ranks that train in several ways, these included; none where all train in one way."""
    own = launches.cell

    def alike(other: CellLaunches) -> bool:
        same = (other.family, other.evidence) == (launches.family, launches.evidence)
        cell = other.cell
        return (
            same
            and capabilities(cell.backend).exchanges
            and (cell.num_ranks, cell.num_nodes) == (own.num_ranks, own.num_nodes)
        )

    found = [other for other in cells if alike(other)]
    if not alike(launches) or rates_are_tried(other.cell for other in found):
        return []
    plain = [_is_plain(other.cell) for other in found]
    return [] if all(plain) or not any(plain) else found


def _is_plain(cell: Cell) -> bool:
    return cell.algorithm == SYNC and not has_other_updates(cell.backend_options)


def _plainest(compared: Sequence[CellLaunches]) -> CellLaunches | None:
    """Synchronous SGD over the ring, or over the first other backend that has it, servers last."""

    def order(launches: CellLaunches) -> tuple[bool, bool, str]:
        backend = launches.cell.backend
        return backend != "ring", capabilities(backend).servers, backend

    return min((other for other in compared if _is_plain(other.cell)), key=order, default=None)


def _rate(cell: Cell) -> float | None:
    return cell.target.learning_rate if cell.target else None


def _ratios(trainings: Sequence[Training], reference: Sequence[Training], *, level: float = LEVEL) -> Ratios:
    """The ratios to a reference; none unless all trainings reached the target: nobody knows what the others take."""
    if not reference or not all(training.reached for training in (*trainings, *reference)):
        return Ratios()

    def ratio(name: str, *, of_base: bool) -> Interval | None:
        own, base = (
            {t.block: v for t in group if (v := _value(t, name))} for group in (trainings, reference)
        )
        if not (own and base):
            return None
        return block_ratio(base, own, level=level) if of_base else block_ratio(own, base, level=level)

    return Ratios(
        speed_up=ratio("seconds", of_base=True),
        training_speed_up=ratio("training_seconds", of_base=True),
        rate_ratio=ratio("rate", of_base=False),
        samples_ratio=ratio("samples", of_base=False),
    )


def _value(training: Training, name: str) -> float | None:
    last = training.last
    return {
        "seconds": training.seconds,
        "training_seconds": last.training_seconds,
        "rate": last.samples / last.training_seconds,
        "samples": float(last.samples),
    }[name]
