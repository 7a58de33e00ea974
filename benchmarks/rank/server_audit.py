"""Audits of training on servers, which keep what optimizers do: no rank can give a state to replay a later step from.

What is known is how a training begins. So its first steps are replayed where ranks step together. Later the weights
themselves have to show that updates are made, not the servers' own count: in a window drawn by lot, and in steps after
the last one, which ranks take in turn where nobody waits for others. Where ranks step together the samples of the last
step are known.
"""

from __future__ import annotations

import math
from typing import cast

import numpy as np

from dlscale.benchmarks.rank import deviation
from dlscale.benchmarks.rank.audit import (
    AuditedTraining,
    draw,
    mean_over_ranks,
    unaudited,
)
from dlscale.benchmarks.rank.deviation import snapshot
from dlscale.benchmarks.rank.sample_order import num_wrong_samples
from dlscale.benchmarks.rank.turns import first_update, left_of_first_update, num_turn_steps, turns
from dlscale.benchmarks.records.record import Gate
from dlscale.benchmarks.records.required_gates import SERVER_AUDITS
from dlscale.collectives.backend import BackedUpTrainer, CountingTrainer
from dlscale.models.workload import Replica, Weights

OPENING_STEPS = 4
# Of a first update, less what the servers' rule itself makes of later ones (Adagrad's fall by the root of their
# number); later ones of Adam are smaller, and those of a window add up.
LEAST_MOVEMENT = 0.01


class ServerAudit:
    """Audits a trainer whose weights are on servers (`measure.Audit`). Collective."""

    def __init__(self, training: AuditedTraining, trainer: CountingTrainer, replica: Replica) -> None:
        """`replica` is that of `trainer`."""
        self._training, self._trainer, self._replica = training, trainer, replica
        self._together = training.backend.in_step
        # Where an update takes the first gradients to come, whose they were is the trainer's to say.
        self._backed_up: BackedUpTrainer | None = None
        if self._together and training.backend.num_accepted is not None:
            self._backed_up = cast(BackedUpTrainer, trainer)
        self._num_taken = 0  # steps of this rank
        self._wrong_samples: int | None = None
        self._drawn, self._num_windows, self._window = -1, 0, "stretches drawn by lot"
        self._before: tuple[Weights, int] | None = None
        self._update = 0.0  # length of a first update
        self._movements: list[float] = []  # in units of what is left of it
        self._miscounted = 0
        self._opening: float | None = None
        self._reference: Replica | None = None  # of the opening, of which so many steps were replayed
        self._num_replayed = 0
        self._first: Weights = []
        self._noisy: set[str] = set()

    def count(self, num_steps: int) -> None:
        """So many steps were taken in a window."""
        self._num_taken += num_steps

    def opening(self) -> None:
        """Replay the first steps, before all others, where ranks step together; else look at one update."""
        for _ in range(self.num_opening):
            self.open_stretch()
            self._step()
            self.close_stretch()
        if self.num_opening:
            self._training.passed(self.num_opening)
        else:
            self._note_first_update()

    @property
    def num_opening(self) -> int:
        """How many first steps can be replayed: those of ranks that step together, or of one alone."""
        backend = self._training.backend
        by_rule = backend.served is not None or backend.num_accepted is not None
        alone = not by_rule and self._training.control.Get_size() == 1
        return OPENING_STEPS if self._together or alone else 0

    def _note_first_update(self) -> None:
        backend, reference = self._training.backend, self._training.make_reference()
        reference.load(self._trainer.weights())
        settings = self._trainer.settings() if backend.served else {}
        self._update = _length(first_update(backend.served, reference, settings=settings))

    def open_stretch(self) -> None:
        """Note what is replayed from, or has to move."""
        if self._num_replayed < self.num_opening and self._reference is None:
            self._reference, self._first = self._training.make_reference(), self._trainer.weights()
            self._reference.load(self._first)
        if self._num_replayed >= self.num_opening:
            if not self._update:
                self._note_first_update()
            self._before = self._trainer.weights(), self._trainer.num_applied()

    def close_stretch(self) -> None:
        """Replay a first step, or see whether the weights moved, if the servers say so."""
        if self._num_replayed >= self.num_opening or self._reference is None:
            if self._before and self._trainer.num_applied() > self._before[1]:
                self._moved(self._before[0])
            return
        training, reference = self._training, self._reference
        training.follow(reference, self._num_replayed)
        gradients = self._mean(reference)
        self._noisy |= deviation.noisy_weights(gradients, bounds=training.bounds)
        reference.apply(gradients)
        self._num_replayed += 1
        self._trainer.synchronize()
        wanted = reference.weights()
        if self._num_replayed == 1:
            self._update = _distance(self._first, wanted)
        pieces = (snapshot(weights, {}) for weights in (self._first, self._trainer.weights(), wanted))
        self._opening = max(self._opening or 0.0, deviation.whole_share(*pieces, noisy=self._noisy))

    def _mean(self, reference: Replica) -> Weights:
        """What the last step's update is made of: the gradients of all ranks, or those that came in time."""
        control, num_accepted = self._training.control, self._training.backend.num_accepted
        if self._backed_up is None:
            return mean_over_ranks(reference.gradients(), control=control)
        taken = self._backed_up.taken()
        if taken is None:
            own = taken = [np.zeros_like(weight) for weight in reference.weights()]
        else:
            own = [gradient * part for gradient, part in zip(reference.gradients(), taken, strict=True)]
        parts = mean_over_ranks(taken, control=control, num_accepted=num_accepted)
        self._miscounted += any(np.any(part != 1) for part in parts)
        return mean_over_ranks(own, control=control, num_accepted=num_accepted)

    def warmed_up(self) -> None:
        """Nothing is looked at."""

    def begin(self, num_windows: int) -> None:
        """Draw the window."""
        self._drawn, self._num_windows = draw(num_windows, control=self._training.control), num_windows

    def before(self, window: int) -> None:
        """Note the weights that the drawn window begins with."""
        if window == self._drawn:
            self.open_stretch()

    def after(self, window: int) -> None:
        """See whether they moved, if the servers say so."""
        if window == self._drawn:
            self._window = f"timed window {self._drawn + 1} of {self._num_windows}, drawn by lot"
            self.close_stretch()

    def end(self) -> None:
        """Ranks take two steps each, in turn where they do not wait for others; the first may only fetch.

        Where an algorithm has them push now and then, the second one is as many as it takes.
        """
        control, size = self._training.control, self._training.control.Get_size()
        in_turn, served = self._training.backend.asynchronous, self._training.backend.served
        num_steps = num_turn_steps(served)
        for turn in turns(served, size) if in_turn else (range(size),):
            is_mine = control.Get_rank() in turn
            control.Barrier()
            if is_mine:
                self._step()
                self._trainer.synchronize()
            if in_turn:
                control.Barrier()  # in a group one pushes for all
            if is_mine:
                before, num_applied = self._trainer.weights(), self._trainer.num_applied()
            if in_turn:
                control.Barrier()
            if is_mine:
                for _ in range(num_steps):
                    self._step()
                self._trainer.synchronize()
            if in_turn:
                control.Barrier()
            if is_mine:
                added = self._trainer.num_applied() - num_applied
                if (
                    added or self._training.backend.num_accepted is None
                ):  # else it may have to wait for further ranks'
                    self._moved(before)
                if in_turn or self._together:
                    expected = (
                        num_steps * len(turn) if in_turn else self._training.backend.num_accepted or size
                    )
                    self._miscounted += abs(added - expected)
        control.Barrier()
        if self._together and not self._training.num_skipped():
            num_batches = self._backed_up.num_computed() if self._backed_up else self._num_taken
            training = self._training
            self._wrong_samples = num_wrong_samples(
                self._replica,
                num_batches - 1,
                control=control,
                before=training.samples_before,
                held_out=training.held_out,
                order=training.order,
            )
        self._training.passed(1 + num_steps)

    def end_training(self) -> None:
        """The same."""
        self.end()

    def _step(self) -> None:
        (self._training.step or self._trainer.step)()
        self._num_taken += 1

    def gates(self) -> list[Gate]:
        """The worst of all ranks; collective."""
        control, bounds = self._training.control, self._training.bounds
        gates = [unaudited("audit_step", "the servers keep what optimizers do, and do not give it")]
        unseen = dict.fromkeys(SERVER_AUDITS, "it can be known only where ranks step together")
        unseen["audit_movement"] = "no gradient reaches the weights"
        if self._opening is not None:
            detail = f"change of the weights in the first {OPENING_STEPS} steps against a replay"
            worst = max(control.allgather(self._opening))
            gates.append(Gate.at_most(bounds.window, worst, name="audit_opening", detail=detail))
        least = min(control.allgather(min(self._movements, default=math.inf)))
        if math.isfinite(least):
            gates.append(
                Gate(
                    name="audit_movement",
                    passed=bool(least >= LEAST_MOVEMENT),
                    value=least,
                    tolerance=LEAST_MOVEMENT,
                    detail="least change of the fetched weights, of what first gradients would make, in "
                    f"{self._window} and in a step after the last; at least",
                )
            )
        miscounted = max(control.allgather(self._miscounted))
        if self._training.backend.num_accepted is None or self._together:
            detail = "gradients that the servers count beyond the steps that ranks took in the end, or miss"
            gates.append(Gate.at_most(0.0, float(miscounted), name="audit_count", detail=detail))
        wrong = [number for number in control.allgather(self._wrong_samples) if number is not None]
        if wrong:
            detail = "samples in the last step that are not those of this rank's shard and step"
            gates.append(Gate.at_most(0.0, float(max(wrong)), name="audit_samples", detail=detail))
        there = {gate.name for gate in gates}
        return [*gates, *(unaudited(name, why) for name, why in unseen.items() if name not in there)]

    def _moved(self, before: Weights) -> None:
        moved = _distance(before, self._trainer.weights())
        if self._update:  # 0 where no gradient reaches the weights
            served, num_batches = self._training.backend.served, self._trainer.num_applied()
            expected = self._update * left_of_first_update(served, num_batches=num_batches)
            self._movements.append(moved / expected if math.isfinite(moved) else 0.0)


def _distance(one: Weights, two: Weights) -> float:
    return _length([b.astype(np.float64) - a for a, b in zip(one, two, strict=True)])


def _length(changes: Weights) -> float:
    return math.sqrt(sum(float(np.sum(change.astype(np.float64) ** 2)) for change in changes))
