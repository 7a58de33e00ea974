"""Audits of a training to a target: of its steps, as where steps are timed, and of what its last evaluation says.

Replayed are the first step, a stretch of steps drawn by lot in each span of the training, and a step after the last
evaluation. Windows end where a stretch begins and ends: all their steps are the training's own, and are timed.
Of the last evaluation it is shown that its samples are held out by definition, that pieces drawn by lot give the same
again, read anew and with the trainer's weights of then, and that the metrics are those of all pieces.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field

import numpy as np

from dlscale.benchmarks.rank.audit import ReplayAudit, draw
from dlscale.benchmarks.rank.evaluations import EvaluatedPieces
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


class Stretches:
    """Where the audited stretches of a launch's steps lie: the first step, then one in each span. Collective."""

    def __init__(self, audit: ReplayAudit, *, control: Communicator) -> None:
        self._audit, self._control = audit, control
        self._taken, self._begin, self._end = 0, 0, 1
        self._span = 0, FIRST_SPAN
        self._is_open = False

    def num_to_next(self) -> int:
        """Steps until a stretch ends or, between two, begins; at least 1."""
        return (self._end if self._taken >= self._begin else self._begin) - self._taken

    def before(self) -> None:
        """A window is to begin."""
        if self._taken == self._begin and not self._is_open:
            self._audit.open_stretch()
            self._is_open = True

    def after(self, num_steps: int) -> None:
        """A window of so many steps is over."""
        self._audit.count(num_steps)
        self._taken += num_steps
        if self._taken < self._end:
            return
        self._audit.close_stretch()
        self._is_open = False
        begin, end = max(self._span[0], self._taken), self._span[1]
        self._span = end, end + SPAN
        self._begin = begin + draw(max(1, end - STRETCH - begin), control=self._control)
        self._end = self._begin + STRETCH


@dataclass(kw_only=True)
class TargetAudit:
    """What looks at a training to a target. Collective."""

    steps: ReplayAudit
    world: Communicator  # of the workers
    target: Target
    quality: QualityModule
    samples: Samples  # of the input, opened for this alone
    skip_bad: bool  # whether bad ones were left out
    replica: Replica
    load: Callable[[], None]  # gives the replica what the trainer has learnt
    learnt: Callable[[], Weights]  # the trainer's weights
    tolerance: float  # of what networks give for the same samples
    aside: Callable[[], AbstractContextManager[None]]
    stretches: Stretches = field(init=False)
    _gates: list[Gate] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.stretches = Stretches(self.steps, control=self.world)

    def end(self, end: End, last: Evaluation, evaluated: EvaluatedPieces | None) -> None:
        """The training is over: look at its last evaluation, and at a step more."""
        if end == "diverged" or evaluated is None:
            return
        with self.aside():
            self._gates = [
                self._held_out_gate(evaluated.indices),
                self._evaluation_gate(end, last, evaluated),
            ]
        self.steps.end()

    def gates(self) -> list[Gate]:
        return [*self.steps.gates(), *self._gates] if self._gates else []

    def _held_out_gate(self, claimed: Indices) -> Gate:
        count, share = len(self.samples), self.target.held_out
        looked, held_out = np.arange(count), None
        if count > MOST_HASHED:
            rng = np.random.default_rng(secrets.randbits(64))
            looked = rng.choice(count, MOST_HASHED, replace=False)
            held_out = is_held_out(looked, share=share)
        wrong = np.isin(looked, claimed) != (
            all_held_out(count, share=share) if held_out is None else held_out
        )
        twice = len(claimed) - len(set(claimed.tolist()))  # np.unique would import half of NumPy
        worst = max(self.world.allgather(int(np.sum(wrong)) + twice))
        detail = f"of {len(looked)} samples those that were evaluated though trained on, or held out and not evaluated"
        return Gate.at_most(0.0, float(worst), name="audit_held_out", detail=detail)

    def _evaluation_gate(self, end: End, last: Evaluation, evaluated: EvaluatedPieces) -> Gate:
        error = self._pieces_error(evaluated)
        gathered = self.world.allgather(list(evaluated.pieces))
        pieces = sorted((piece for own in gathered for piece in own), key=lambda piece: piece[0])
        numbers = [number for number, _ in pieces]
        missing = {*range(-(-len(evaluated.indices) // PIECE))} - {*numbers}
        name, threshold = self.target.metric, self.target.threshold
        whole = {key: np.concatenate([piece[key] for _, piece in pieces]) for key in pieces[0][1]}
        value = float(self.quality.metrics(whole)[name])
        reached = value >= threshold if self.quality.METRICS[name].higher_is_better else value <= threshold
        if (
            len({*numbers}) < len(numbers)
            or any(self._read(evaluated.indices, number) for number in missing)
            or abs(value - last.metrics[name]) > SAME_METRIC * max(1.0, abs(value))
            or reached != (end == "reached")
        ):
            error = math.inf
        detail = (
            f"of pieces drawn by lot of the last evaluation, against measuring them anew; infinite if {name} or the "
            "end is not theirs"
        )
        return Gate.at_most(
            self.tolerance, max(self.world.allgather(error)), name="audit_evaluation", detail=detail
        )

    def _pieces_error(self, evaluated: EvaluatedPieces) -> float:
        """Of pieces of this rank, measured anew with what the trainer has learnt."""
        self.load()
        # Without any exchange ranks have weights of their own, of which rank 0's are judged.
        same = all(map(np.array_equal, self.learnt(), self.replica.weights())) or self.world.Get_rank() > 0
        error = 0.0 if same else math.inf
        count = min(-(-NUM_PIECES // self.world.Get_size()), len(evaluated.pieces))
        for number, measured in secrets.SystemRandom().sample(evaluated.pieces, count):
            arrays = self._read(evaluated.indices, number)
            error = max(
                error,
                _difference(measured, self.quality.measure(self.replica.predict, *arrays) if arrays else {}),
            )
        return error

    def _read(self, indices: Indices, number: int) -> Arrays | None:
        """The good samples of a piece of those; None if there are none."""
        piece = indices[number * PIECE : (number + 1) * PIECE]
        return read_usable(self.quality, self.samples, piece, skip_bad=self.skip_bad)[0]


def _difference(one: Measured, two: Measured) -> float:
    """The largest difference, of the largest value of each."""
    worst = 0.0
    for name in one.keys() | two.keys():
        if name not in one or name not in two or np.shape(one[name]) != np.shape(two[name]):
            return math.inf
        first, second = (np.asarray(found[name], np.float64) for found in (one, two))
        if not np.array_equal(first, second):
            error = float(np.max(np.abs(first - second)) / (np.max(np.abs(second)) or 1.0))
            worst = max(worst, error if math.isfinite(error) else math.inf)
    return worst
