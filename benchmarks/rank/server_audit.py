"""Audits of training on servers, from all that they hold: weights, what optimizers keep, and who was taken up.

Where ranks step together their steps and a window are replayed as those of any other training (`InStepAudit`).

Where no rank waits for another, who pushes in between makes a step's result unknown, but not while all others wait. So
ranks take turns after the warm-up, after a window that is drawn by lot, and after the last one, and each turn is
replayed exactly (`ServerAudit`): whatever goes wrong with a push and stays so is seen by the last turn, of each tensor
by itself and hence of each shard. Of the drawn window a bound holds (our derivation). Servers whose rule is
s, w <- f(s, w, g) would be at w' = f(... f(s, w, 0) ..., 0) after its n updates if no gradient had reached them: by
momentum alone, or Adam's first moment, with which weights move on. What gradients made of a tensor is hence |w - w'|,
which n pushes of gradients like this rank's, that add up, leave larger than one of them would: less than
LEAST_MOVEMENT of that is no training. Pushes may cancel, which is why the bound is low, and it has no upper one,
for gradients may shrink from the window to the next.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, cast

import numpy as np

from dlscale.benchmarks.rank import deviation
from dlscale.benchmarks.rank.audit import REPLAY_GATES, AuditedTraining, ReplayAudit
from dlscale.benchmarks.rank.deviation import CENTRE, Judged, Snapshot
from dlscale.benchmarks.rank.replaying import (
    draw,
    judged_gate,
    loss_error,
    mean_over_ranks,
    num_drawn,
    unaudited,
)
from dlscale.benchmarks.rank.sample_order import num_wrong_samples
from dlscale.benchmarks.rank.served_replay import Mean, ServedReplay, served_replay
from dlscale.benchmarks.rank.turns import num_turn_steps, turns
from dlscale.benchmarks.records.record import Gate
from dlscale.collectives.algorithms import easgd
from dlscale.collectives.backend import BackedUpTrainer, CountingTrainer
from dlscale.models.weights import WEIGHT
from dlscale.models.workload import Replica, State, Weights

LEAST_MOVEMENT = 1e-3
# After so many updates little is left of momentum: more of them need not be replayed to know where it leads.
MOST_IDLE = 100


class InStepAudit(ReplayAudit):
    """Replays ranks that step together on servers, from what the servers hold (`measure.Audit`). Collective."""

    def __init__(self, training: AuditedTraining) -> None:
        self._trainer = cast(CountingTrainer, training.trainer)
        # Where an update takes the first gradients to come, whose they were is the trainer's to say.
        self._backed_up: BackedUpTrainer | None = None
        if training.backend.num_accepted is not None:
            self._backed_up = cast(BackedUpTrainer, training.trainer)
        self._miscounted = 0
        super().__init__(training)

    def gates(self) -> list[Gate]:
        detail = "gradients that the servers count beyond the steps that ranks took, or miss"
        count = self._gate("audit_count", Judged(0.0, self._miscounted), detail)
        movement = unaudited("audit_movement", "a window is replayed instead")
        return [*super().gates(), count, movement]

    def _num_drawn_before(self) -> int:
        return 0  # none is resumed

    def _state(self) -> State:
        return self._trainer.served_state()

    def _num_batches(self) -> int:
        return self._backed_up.num_computed() if self._backed_up else self._num_taken

    def _synchronized(self, look: Callable[[], State]) -> State:
        state = super()._synchronized(look)
        each = self._training.backend.num_accepted or self._training.control.Get_size()
        wrong = abs(self._trainer.num_applied() - each * self._num_taken)
        self._miscounted = max(self._miscounted, wrong)
        return state

    def _gradients(self, reference: Replica, step: int) -> Weights:
        """The mean of all ranks' gradients, or of those that came in time."""
        if self._backed_up is None:
            return super()._gradients(reference, step)
        self._training.follow(reference, step)
        taken = self._backed_up.taken(step)
        if taken is None:
            own = taken = [np.zeros_like(weight) for weight in reference.weights()]
        else:
            own = [gradient * part for gradient, part in zip(reference.gradients(), taken, strict=True)]
        control, num_accepted = self._training.control, self._training.backend.num_accepted
        parts = mean_over_ranks(taken, control=control, num_accepted=num_accepted)
        self._miscounted += any(np.any(part != 1) for part in parts)
        return mean_over_ranks(own, control=control, num_accepted=num_accepted)

    def _check_samples(self, reference: Replica, state: State, num_steps: int) -> None:
        if self._backed_up:
            num_steps = self._backed_up.num_computed() - num_drawn(state)
        if num_steps:
            super()._check_samples(reference, state, num_steps)

    def _check_losses(self, found: list[float], expected: list[float]) -> None:
        if self._backed_up is None or self._backed_up.taken(self._num_taken - 1) is not None:
            super()._check_losses(found, expected)


class ServerAudit:
    """Audits ranks that do not wait for each other (`measure.Audit`). Collective."""

    def __init__(self, training: AuditedTraining) -> None:
        self._training, self._trainer = training, cast(CountingTrainer, training.trainer)
        self._turns = turns(training.backend.served, training.control.Get_size())
        self._num_taken = 0  # steps of this rank
        self._drawn, self._num_windows, self._window = -1, 0, "stretches drawn by lot"
        self._before: tuple[State, int] | None = None
        self._movements: list[float] = []
        bounds = training.bounds
        self._share, self._scale, self._loss = map(Judged, (bounds.share, bounds.scale, bounds.loss))
        self._wrong_batches, self._wrong_samples, self._miscounted = Judged(0.0), Judged(0.0), Judged(0.0)
        self._num_replayed = 0  # turns, of all ranks
        self._made: ServedReplay | None = None
        self._reference: Replica | None = None

    @property
    def num_opening(self) -> int:
        """None: what ranks do at first is in no order."""
        return 1

    def count(self, num_steps: int) -> None:
        self._num_taken += num_steps

    def before_warm(self) -> None:
        """Nothing to note: who pushes in between is not known."""

    def after_warm(self) -> None:
        """Nothing to replay."""

    def warmed_up(self) -> None:
        self._take_turns(self._one_turn())

    def begin(self, num_windows: int) -> None:
        self._drawn, self._num_windows = draw(num_windows, control=self._training.control), num_windows

    def before(self, window: int) -> None:
        if window == self._drawn:
            self.open_stretch()

    def after(self, window: int) -> None:
        """See whether it moved the weights; then a turn that is drawn by lot."""
        if window == self._drawn:
            self._window = f"timed window {self._drawn + 1} of {self._num_windows}, drawn by lot"
            self.close_stretch()
            self._take_turns(self._one_turn())

    def open_stretch(self) -> None:
        """Note what has to move; rank 0 looks for all."""
        if self._training.control.Get_rank() == 0:
            with self._training.aside():
                self._before = self._trainer.served_state(), self._trainer.num_applied()

    def close_stretch(self) -> None:
        """See whether the weights moved by what was pushed, if the servers say that something was."""
        if self._before is None:
            return
        (state, num_applied), self._before = self._before, None
        with self._training.aside():
            num_updates = self._trainer.num_applied() - num_applied
            if num_updates:
                self._movements.append(self._movement(state, self._trainer.served_state(), num_updates))

    def _movement(self, old: State, new: State, num_applied: int) -> float:
        """The least of all tensors' movements, in units of what this rank's gradients would make of it now."""
        replay = self._replay()
        replay.restore(new)
        moved, last = replay.seen(), replay.num_updates()
        replay.idle()
        by_itself = replay.seen()
        replay.restore(new)
        gradients = replay.push()
        unit = replay.seen()
        replay.restore(old)
        num_updates = num_applied // (self._training.backend.num_accepted or 1)
        if last is not None:
            num_updates = last - (replay.num_updates() or 0)
        for _ in range(min(num_updates, MOST_IDLE)):
            replay.idle()
        idle = replay.seen()
        kind = CENTRE if isinstance(self._training.backend.served, easgd.Options) else WEIGHT
        noisy = deviation.noisy_weights(gradients, bounds=self._training.bounds)
        shares = [math.inf]
        for place in range(len(gradients)):
            name = f"{kind}.{place}"
            expected = _distance(unit[name], by_itself[name])
            if expected and f"{WEIGHT}.{place}" not in noisy:
                found = _distance(moved[name], idle[name])
                shares.append(found / expected if math.isfinite(found) else 0.0)
        return min(shares)

    def end(self) -> None:
        self._take_turns(self._turns)

    def end_training(self) -> None:
        self.end()

    def _one_turn(self) -> list[range]:
        return [self._turns[draw(len(self._turns), control=self._training.control)]]

    def _take_turns(self, order: Sequence[range]) -> None:
        """Ranks step one after the other, those of a group together, while all others wait."""
        if not self._training.backend.asynchronous:
            return  # of the first gradients to come nobody knows whose they were
        control, taken = self._training.control, self._num_taken
        with self._training.aside():
            is_replayed = not any(control.allgather(self._training.num_skipped()))
            for turn in order:
                self._take_turn(turn, is_replayed=is_replayed)
        self._training.passed(self._num_taken - taken)

    def _take_turn(self, turn: range, *, is_replayed: bool) -> None:
        control, trainer = self._training.control, self._trainer
        num_steps = num_turn_steps(self._training.backend.served)
        is_mine = control.Get_rank() in turn
        state: State | None = None
        control.Barrier()
        if is_mine:  # the first may train on weights of before; then to where nothing is accrued
            self._step(1 + -(self._num_taken + 1) % num_steps)
        control.Barrier()
        if is_mine:
            state, num_applied = trainer.served_state(), trainer.num_applied()
            self._wrong_batches.add(abs(num_drawn(state) - self._num_taken))
        control.Barrier()
        if is_mine:
            self._step(num_steps)
        control.Barrier()
        if is_mine:
            self._miscounted.add(abs(trainer.num_applied() - num_applied - num_steps * len(turn)))
        if is_replayed:
            self._num_replayed += 1
            self._judge(state, turn, num_steps)

    def _judge(self, state: State | None, turn: range, num_steps: int) -> None:
        """Replay a turn of this rank, which began at `state`; None: it is that of others."""
        mean, noisy, bounds = self._mean_of(turn), set[str](), self._training.bounds

        def replay() -> Snapshot:
            if state is None:
                for _ in range(num_steps * (len(turn) > 1)):  # a group forms its mean over all ranks
                    mean([np.zeros_like(weight) for weight in self._trainer.weights()])
                return {}
            self._replay().restore(state)
            for number in range(self._num_taken - num_steps, self._num_taken):
                gradients = self._replay().step(number, mean)
                noisy.update(deviation.noisy_weights(gradients, bounds=bounds))
            return self._replay().seen()

        expected, judged = replay(), (self._share, self._scale)
        beyond, before = False, Snapshot()
        if state is not None:
            self._check_batch()
            before, found = self._seen(state), self._seen(self._trainer.served_state())
            noisy |= {name.replace(WEIGHT, CENTRE, 1) for name in noisy}
            one = deviation.deviation(before, found, expected, bounds=bounds, noisy=noisy)
            beyond = self._share.add(one.share) | self._scale.add(one.scale)
        if bounds.exact or not any(self._training.control.allgather(beyond)):
            return
        for _ in range(deviation.NUM_REPLAYS):
            if again := replay():
                one = deviation.deviation(before, again, expected, bounds=bounds, noisy=noisy)
                for kind, value in zip(judged, (one.share, one.scale), strict=True):
                    kind.add_noise(value)

    def _seen(self, state: State) -> Snapshot:
        self._replay().restore(state)
        return self._replay().seen()

    def _check_batch(self) -> None:
        """Of the last step, which was replayed."""
        training, reference = self._training, cast(Replica, self._reference)
        self._loss.add(loss_error(self._trainer.losses(), reference.losses()))
        wrong = num_wrong_samples(
            reference,
            self._num_taken - 1,
            shard=training.shard,
            held_out=training.held_out,
            order=training.order,
        )
        self._wrong_samples.add(wrong)

    def _mean_of(self, turn: range) -> Mean:
        if len(turn) == 1:
            return list
        control = self._training.control
        return lambda gradients: mean_over_ranks(gradients, control=control, num_accepted=len(turn))

    def _replay(self) -> ServedReplay:
        if self._made is None:
            self._reference = self._training.make_reference()
            self._made = served_replay(self._training, self._reference)
        return self._made

    def _step(self, num_steps: int) -> None:
        for _ in range(num_steps):
            (self._training.step or self._trainer.step)()
            self._num_taken += 1
        self._trainer.synchronize()

    def gates(self) -> list[Gate]:
        control = self._training.control
        judged = {}
        if self._num_replayed:
            judged = {
                "audit_step": self._share,
                "audit_scale": self._scale,
                "audit_batches": self._wrong_batches,
                "audit_samples": self._wrong_samples,
                "audit_loss": self._loss,
            }
        where = f"{self._num_replayed} turns of ranks whose others wait"
        details = {name: REPLAY_GATES[name].format(where=where) for name in judged}
        if self._training.backend.num_accepted is None:
            judged["audit_count"] = self._miscounted
            details["audit_count"] = "gradients that servers count beyond the steps of a rank's turn, or miss"
        gates = [judged_gate(name, one, details[name], control=control) for name, one in judged.items()]
        least = min(control.allgather(min(self._movements, default=math.inf)))
        if math.isfinite(least):
            gates.append(
                Gate(
                    name="audit_movement",
                    passed=bool(least >= LEAST_MOVEMENT),
                    value=least,
                    tolerance=LEAST_MOVEMENT,
                    detail=f"least change of a tensor in {self._window}, beyond what optimizers do by themselves, of "
                    "what one rank's gradients make of it; at least",
                )
            )
        there = {gate.name for gate in gates}
        why = {
            "audit_window": "ranks do not wait for each other, and turns are replayed",
            "audit_movement": "no gradient reaches the weights",
        }
        unknown = "whose gradients an update took is not known"
        names = [*REPLAY_GATES, "audit_count", *why]
        return [*gates, *(unaudited(name, why.get(name, unknown)) for name in names if name not in there)]


def _distance(one: Any, two: Any) -> float:
    return float(np.linalg.norm(one.astype(np.float64) - two))
