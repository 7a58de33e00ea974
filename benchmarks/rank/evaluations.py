"""Evaluations of a training to a target, and its audits: of its steps, as where steps are timed, and of the last one.

All ranks evaluate, each its own pieces of the samples, on a replica that is given what the trainer has learnt.

Replayed are the first step, stretches of steps that begin when a lot says, and a step after the last evaluation.
Windows end where a stretch begins and ends: all their steps are the training's own, and are timed. For the last
evaluation it is shown that its samples are held out by definition, that pieces drawn by lot give the same again, read
anew and with the trainer's weights of then, and that the metrics are those of all pieces.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Sequence
from typing import Any, cast

import numpy as np

from dlscale.benchmarks.rank.audit import ReplayAudit, draw
from dlscale.benchmarks.rank.case import CaseRun
from dlscale.benchmarks.rank.checkpoints import share_checkpoint
from dlscale.benchmarks.rank.deviation import largest_difference
from dlscale.benchmarks.rank.reference import AuditedTraining, all_held_out
from dlscale.benchmarks.records.cell import Cell, Target
from dlscale.benchmarks.records.record import End, Evaluation, Gate
from dlscale.collectives import CountingTrainer, Trainer
from dlscale.collectives.algorithms import SYNC
from dlscale.collectives.sharding import NONE
from dlscale.models.quality.metric import PIECE, HeldOut, Measured, read_usable
from dlscale.models.samples import Arrays
from dlscale.models.workload import Input, Replica, Shard, Weights, Workload

STRETCH = 4  # steps
# Steps after the first one, and after each stretch, within which the next one begins.
FIRST_SPAN, SPAN = 40, 1000
NUM_PIECES = 2  # that are measured again, over all ranks, by each at least one
SAME_METRIC = 1e-6  # of the same pieces; absolute


class Evaluator:
    """The quality of a trainer's networks on held-out samples. Collective.

    `replica` gets what the trainer has: its state, with what batch norm keeps, and where servers hold the weights, or
    each rank has its own, those that all have learnt together. Ranks keep statistics of their own for batch norm: those
    of rank 0 are the network's, as in its checkpoint. `pieces` are this rank's part of the last evaluation.
    """

    def __init__(self, cell: Cell, source: Input, replica: Replica, *, world: Any, facts: Workload) -> None:
        """`facts`: the cell's, with a user's file where it has one."""
        # Over all ranks; all others of the input are an epoch's.
        self.held_out = HeldOut(facts.data(), facts.quality(), preset=cell.preset_facts, source=source)
        self.replica, self._world = replica, world
        # Of whole samples, whoever shares them.
        self._part = Shard(index=world.Get_rank(), count=world.Get_size())
        self.pieces: Sequence[tuple[int, Measured]] = ()
        self._by_state = not cell.num_servers
        self._own_weights = cell.algorithm != SYNC  # ranks' states have weights of their own
        self._gathers = cell.shard != NONE
        if self._by_state:
            # The optimizers make what they keep in their first step; restoring overwrites all of it.
            replica.apply([np.zeros_like(weight) for weight in replica.weights()])

    def metrics(self, trainer: Trainer) -> dict[str, float]:
        """Every metric of the workload that can be computed, the same on all ranks."""
        self.load(trainer)
        self.pieces = list(self.held_out.measure(self.replica.predict, self._part))
        gathered = self._world.gather(self.pieces)
        metrics = self.held_out.metrics([piece for own in gathered for piece in own]) if gathered else None
        shared: dict[str, float] = self._world.bcast(metrics)
        return shared

    def load(self, trainer: Trainer) -> None:
        """Give the replica what the trainer has learnt."""
        if self._by_state:
            is_first = self._world.Get_rank() == 0
            state = trainer.state() if self._gathers or is_first else None  # a state is gathered by all ranks
            self.replica.restore(share_checkpoint(self._world, state if is_first else None))
        if not self._by_state or self._own_weights:
            self.replica.load(self.learnt(trainer))

    def learnt(self, trainer: Trainer) -> Weights:
        """The trainer's weights, those of all ranks together where each has its own; collective."""
        return trainer.weights() if self._by_state else cast(CountingTrainer, trainer).served_weights()


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
