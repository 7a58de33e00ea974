"""Audits of a training to a target: of its steps, as where steps are timed, and of its last evaluation.

Replayed are the first step, stretches of steps that begin when a lot says, and a step after the last evaluation.
Windows end where a stretch begins and ends: all their steps are the training's own, and are timed.
For the last evaluation it is shown that its samples are held out by definition, that pieces drawn by lot give the same
again, read anew and with the trainer's weights of then, and that the metrics are those of all pieces.
"""

from __future__ import annotations

import math
import secrets

import numpy as np

from dlscale.benchmarks.rank.audit import ReplayAudit, draw
from dlscale.benchmarks.rank.case import CaseRun
from dlscale.benchmarks.rank.deviation import largest_difference
from dlscale.benchmarks.rank.evaluations import Evaluator
from dlscale.benchmarks.rank.reference import AuditedTraining, all_held_out
from dlscale.benchmarks.records.cell import Target
from dlscale.benchmarks.records.record import End, Evaluation, Gate
from dlscale.models.quality.metric import PIECE, read_usable
from dlscale.models.samples import Arrays

STRETCH = 4  # steps
FIRST_SPAN, SPAN = (
    40,
    1000,
)  # steps after the first one, and after each stretch, within which the next one begins
NUM_PIECES = 2  # that are measured again, over all ranks, by each at least one
SAME_METRIC = 1e-6  # of the same pieces; absolute


class TargetAudit:
    """Looks at a training to a target. Collective."""

    def __init__(
        self, case: CaseRun, training: AuditedTraining, target: Target, evaluator: Evaluator
    ) -> None:
        self._steps, self._training = ReplayAudit(training), training
        self._target, self._evaluator = target, evaluator
        facts, source = case.context.spec.facts(case.cell), case.context.spec.source(case.cell)
        self._quality, self._skip_bad = facts.quality(), source.skip_bad
        # Opened for this alone.
        self._samples = facts.data().open_samples(source, case.cell.preset_facts, seed=None)
        self._taken, self._begin, self._end, self._span = 0, 0, 1, FIRST_SPAN
        self._is_open = False
        self._gates: list[Gate] = []

    def num_to_next(self) -> int:
        """Steps until a stretch ends or, between two, begins; at least 1."""
        return (self._end if self._taken >= self._begin else self._begin) - self._taken

    def before(self) -> None:
        """A window is to begin."""
        if self._taken == self._begin and not self._is_open:
            self._steps.open_stretch()
            self._is_open = True

    def after(self, num_steps: int) -> None:
        """A window of so many steps is over."""
        self._steps.count(num_steps)
        self._taken += num_steps
        if self._taken < self._end:
            return
        self._steps.close_stretch()
        self._is_open = False
        self._begin = self._taken + draw(self._span, control=self._training.control)
        self._end, self._span = self._begin + STRETCH, SPAN

    def end(self, end: End, last: Evaluation) -> None:
        """The training is over: look at its last evaluation, and at a step more."""
        if end == "diverged":
            return
        with self._training.aside():
            self._gates = [self._held_out_gate(), self._evaluation_gate(end, last)]
        self._steps.end()

    def gates(self) -> list[Gate]:
        return [*self._steps.gates(), *self._gates] if self._gates else []

    def _held_out_gate(self) -> Gate:
        claimed, count = self._evaluator.held_out.indices, len(self._samples)
        wrong = np.isin(np.arange(count), claimed) != all_held_out(count, share=self._target.held_out)
        twice = len(claimed) - len(set(claimed.tolist()))  # np.unique would import half of NumPy
        worst = max(self._training.control.allgather(int(np.sum(wrong)) + twice))
        detail = "samples that were evaluated though trained on, or held out and not evaluated"
        return Gate.at_most(0.0, float(worst), name="audit_held_out", detail=detail)

    def _evaluation_gate(self, end: End, last: Evaluation) -> Gate:
        control, error = self._training.control, self._pieces_error()
        gathered = control.allgather(self._evaluator.pieces)
        pieces = sorted((piece for own in gathered for piece in own), key=lambda piece: piece[0])
        numbers = [number for number, _ in pieces]
        missing = {*range(-(-len(self._evaluator.held_out.indices) // PIECE))} - {*numbers}
        name, threshold = self._target.metric, self._target.threshold
        whole = {key: np.concatenate([piece[key] for _, piece in pieces]) for key in pieces[0][1]}
        value = float(self._quality.metrics(whole)[name])
        reached = value >= threshold if self._quality.METRICS[name].higher_is_better else value <= threshold
        if (
            len({*numbers}) < len(numbers)
            or any(self._read(number) for number in missing)
            or abs(value - last.metrics[name]) > SAME_METRIC * max(1.0, abs(value))
            or reached != (end == "reached")
        ):
            error = math.inf
        worst, allowed = max(control.allgather(error)), self._training.bounds.outputs
        detail = (
            f"of pieces drawn by lot of the last evaluation, against measuring them anew; infinite if {name} or the "
            "end is not theirs"
        )
        return Gate.at_most(allowed, worst, name="audit_evaluation", detail=detail)

    def _pieces_error(self) -> float:
        """The worst error of pieces of this rank, measured anew with what the trainer has learnt."""
        evaluator, control, trainer = self._evaluator, self._training.control, self._training.trainer
        evaluator.load(trainer)
        # Without any exchange ranks have weights of their own, of which rank 0's are judged.
        same = all(map(np.array_equal, evaluator.learnt(trainer), evaluator.replica.weights()))
        error = 0.0 if same or control.Get_rank() > 0 else math.inf
        count = min(-(-NUM_PIECES // control.Get_size()), len(evaluator.pieces))
        for number, measured in secrets.SystemRandom().sample(evaluator.pieces, count):
            arrays = self._read(number)
            again = self._quality.measure(evaluator.replica.predict, *arrays) if arrays else {}
            if measured.keys() != again.keys():
                return math.inf
            error = max(error, *(largest_difference(value, again[name]) for name, value in measured.items()))
        return error

    def _read(self, number: int) -> Arrays | None:
        """The good samples of a piece; None if there are none."""
        piece = self._evaluator.held_out.indices[number * PIECE : (number + 1) * PIECE]
        return read_usable(self._quality, self._samples, piece, skip_bad=self._skip_bad)[0]
