"""Audits of a training to a target: of its steps, as where steps are timed, and of what its evaluations say.

Replayed are the first step, a stretch of steps drawn by lot in each span of the training, and a step after the last
evaluation. Windows end where a stretch begins and ends: all their steps are the training's own, and are timed.
Of the last evaluation it is shown that its samples are held out by definition, that pieces drawn by lot give the same
again, read anew and with the trainer's weights of then, and that the metrics are those of all pieces.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from dlscale.benchmarks.rank.evaluations import EvaluatedPieces
from dlscale.benchmarks.rank.replaying import draw
from dlscale.benchmarks.rank.sample_order import all_held_out, is_held_out
from dlscale.benchmarks.records.record import Gate
from dlscale.benchmarks.records.target import End, Evaluation, Target
from dlscale.collectives.control import Communicator
from dlscale.models.quality.metric import PIECE, Measured, QualityModule, read_usable
from dlscale.models.samples import Arrays, Samples
from dlscale.models.workload import Indices, Replica, Weights

STRETCH = 4  # steps
FIRST_SPAN = 40  # steps, in each of which one stretch lies
SPAN = 500
MOST_HASHED = 4096  # samples whose place is looked at: all of a small input
NUM_PIECES = 2  # that are measured again, over all ranks, by each at least one
SAME_METRIC = 1e-6  # of the same pieces; absolute


class StretchAudit(Protocol):
    """What replays stretches of a training's steps. Collective, but `count`."""

    @property
    def num_opening(self) -> int:
        """How many first steps are looked at one by one."""

    def open_stretch(self) -> None:
        """The steps from here on are looked at."""

    def count(self, num_steps: int) -> None:
        """So many steps were taken."""

    def close_stretch(self) -> None:
        """Those steps are over."""

    def end_training(self) -> None:
        """The training is over; further steps may be taken."""

    def gates(self) -> list[Gate]:
        """The worst of all ranks."""


class Stretches:
    """Where the audited stretches of a launch's steps lie. Collective."""

    def __init__(self, audit: StretchAudit, *, control: Any) -> None:
        self._audit, self._control = audit, control
        self._taken = 0
        self._begin, self._end = 0, 1
        self._spans = _spans()
        self._is_open = False

    def num_to_next(self) -> int:
        """Steps until a stretch ends or, between two, begins; at least 1."""
        return (self._end if self._taken >= self._begin else self._begin) - self._taken

    def before(self) -> None:
        if self._taken == self._begin and not self._is_open:
            self._audit.open_stretch()
            self._is_open = True

    def after(self, num_steps: int) -> None:
        self._audit.count(num_steps)
        self._taken += num_steps
        if self._taken < self._end:
            return
        self._audit.close_stretch()
        self._is_open = False
        if self._taken < self._audit.num_opening:
            self._begin, self._end = self._taken, self._taken + 1
            return
        begin, end = next(self._spans)
        begin = max(begin, self._taken)
        self._begin = begin + draw(max(1, end - STRETCH - begin), control=self._control)
        self._end = self._begin + STRETCH


def _spans() -> Iterator[tuple[int, int]]:
    """(first step, step after the last) of one span after the other."""
    begin, end = 0, FIRST_SPAN
    while True:
        yield begin, end
        begin, end = end, end + SPAN


@dataclass(kw_only=True)
class TargetAudit:
    """What looks at a training to a target. Collective."""

    steps: StretchAudit
    world: Communicator  # of the workers
    target: Target
    quality: QualityModule
    samples: Samples  # of the input, opened for this alone
    skip_bad: bool  # whether bad ones were left out
    replica: Replica
    load: Callable[[], None]  # gives the replica what the trainer has learnt
    learnt: Callable[[], Weights]  # the trainer's weights
    tolerance: float  # of what networks give for the same samples
    stretches: Stretches = field(init=False)
    _gates: list[Gate] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.stretches = Stretches(self.steps, control=self.world)

    def end(self, end: End, last: Evaluation, evaluated: EvaluatedPieces | None) -> None:
        """The training is over: look at its last evaluation, and at a step more."""
        if end == "diverged" or evaluated is None:
            return
        self._gates = [
            self._held_out_gate(evaluated.indices),
            self._evaluation_gate(end, last, evaluated),
        ]
        self.steps.end_training()

    def gates(self) -> list[Gate]:
        return [*self.steps.gates(), *self._gates] if self._gates else []

    def _held_out_gate(self, claimed: Indices) -> Gate:
        count, share = len(self.samples), self.target.held_out
        if count > MOST_HASHED:
            looked = np.random.default_rng(secrets.randbits(64)).choice(count, MOST_HASHED, replace=False)
            held_out = is_held_out(looked, share=share)
        else:
            looked, held_out = np.arange(count), all_held_out(count, share=share)
        wrong = np.isin(looked, claimed) != held_out
        twice = len(claimed) - len(set(claimed.tolist()))  # np.unique would import half of NumPy
        worst = max(self.world.allgather(int(np.sum(wrong)) + twice))
        detail = f"of {len(looked)} samples those that were evaluated though trained on, or held out and not evaluated"
        return Gate.at_most(0.0, float(worst), name="audit_held_out", detail=detail)

    def _evaluation_gate(self, end: End, last: Evaluation, evaluated: EvaluatedPieces) -> Gate:
        self.load()
        learnt, own = self.learnt(), self.replica.weights()
        # Without any exchange ranks have weights of their own, of which rank 0's are judged.
        same = all(map(np.array_equal, learnt, own)) or self.world.Get_rank() > 0
        error = 0.0 if same else math.inf
        count = min(-(-NUM_PIECES // self.world.Get_size()), len(evaluated.pieces))
        drawn = secrets.SystemRandom().sample(evaluated.pieces, count)
        for number, measured in drawn:
            arrays = self._read(evaluated.indices, number)
            again = self.quality.measure(self.replica.predict, *arrays) if arrays else {}
            error = max(error, _difference(measured, again))
        gathered = self.world.allgather(list(evaluated.pieces))
        pieces = sorted((piece for own in gathered for piece in own), key=lambda piece: piece[0])
        numbers = [number for number, _ in pieces]
        missing = {*range(-(-len(evaluated.indices) // PIECE))} - {*numbers}
        if len({*numbers}) < len(numbers) or any(self._read(evaluated.indices, number) for number in missing):
            error = math.inf
        whole = {name: np.concatenate([piece[name] for _, piece in pieces]) for name in pieces[0][1]}
        name = self.target.metric
        value = float(self.quality.metrics(whole)[name])
        if abs(value - last.metrics[name]) > SAME_METRIC * max(1.0, abs(value)):
            error = math.inf
        is_higher_better = self.quality.METRICS[name].higher_is_better
        threshold = self.target.threshold
        if (value >= threshold if is_higher_better else value <= threshold) != (end == "reached"):
            error = math.inf
        worst = max(self.world.allgather(error))
        detail = (
            f"of pieces drawn by lot of the last evaluation, against measuring them anew; infinite if {name} or the "
            "end is not theirs"
        )
        return Gate.at_most(self.tolerance, worst, name="audit_evaluation", detail=detail)

    def _read(self, indices: Indices, number: int) -> Arrays | None:
        """The good samples of a piece of those; None if there are none."""
        piece = indices[number * PIECE : (number + 1) * PIECE]
        return read_usable(self.quality, self.samples, piece, skip_bad=self.skip_bad)[0]


def _difference(one: Measured, two: Measured) -> float:
    if one.keys() != two.keys():
        return math.inf
    return max((_largest(np.asarray(one[name]), np.asarray(two[name])) for name in one), default=0.0)


def _largest(one: NDArray[Any], two: NDArray[Any]) -> float:
    """The largest difference, of the largest value."""
    if one.shape != two.shape:
        return math.inf
    if np.array_equal(one, two):
        return 0.0
    first, second = one.astype(np.float64), two.astype(np.float64)
    found = float(np.max(np.abs(first - second)) / (np.max(np.abs(second)) or 1.0))
    return found if math.isfinite(found) else math.inf
