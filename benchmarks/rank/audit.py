"""Audits of the timed trainer itself, between its windows: does it still do what the gates saw before the first?

A replica that no backend touches replays what the trainer did, from the trainer's own state: local gradients of the
same batches, averaged over the control plane in float64, and the workload's own optimizer. Replayed are single steps,
at the end of the warm-up and after the last window, and all steps of a window that is drawn by lot when the warm-up is
over, which no trainer can know. An audited step is an ordinary step of the training.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol, cast

from dlscale.benchmarks.rank import deviation
from dlscale.benchmarks.rank.compressed import Replay
from dlscale.benchmarks.rank.deviation import Bounds, Judged, Snapshot
from dlscale.benchmarks.rank.measure import Audit
from dlscale.benchmarks.rank.replaying import (
    draw,
    judged_gate,
    loss_error,
    make_slots,
    mean_over_ranks,
    num_drawn,
    unaudited,
)
from dlscale.benchmarks.rank.sample_order import num_wrong_samples
from dlscale.benchmarks.records.record import Gate
from dlscale.collectives.backend import Backend, Trainer
from dlscale.collectives.compression.trainer import CompressedTrainer
from dlscale.collectives.control import Communicator
from dlscale.models.workload import Replica, Shard, State, Weights

Averaging = Callable[[Weights], Weights]
"""From this rank's gradients of a step to the means that are applied."""

NUM_LAST_STEPS = 4  # after a training in which no stretch of steps was replayed


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditedTraining:
    """A timed trainer, and what an audit needs beside it."""

    trainer: Trainer
    backend: Backend
    make_reference: Callable[[], Replica]  # with the samples and seed of the trainer's replica; called once
    control: Communicator  # of the ranks
    shard: Shard  # the trainer's
    bounds: Bounds
    passed: Callable[[int], None]  # told of steps outside of the windows
    num_skipped: Callable[[], int]  # samples that this rank left out so far
    held_out: float = 0.0  # share of the input's samples that no batch has
    order: int = 0  # of the samples, beside the order that all trainings share
    follow: Callable[[Replica, int], None] = lambda *_: (
        None
    )  # sets what that step of the training has of its own
    step: Callable[[], None] | None = None  # takes an audited step; None: the trainer's own
    # Around what is no part of the training, so that nothing else is counted meanwhile.
    aside: Callable[[], AbstractContextManager[Any]] = nullcontext


class TrainingAudit(Audit, Protocol):
    """What looks at a timed trainer between its windows, and judges it in the end. Collective."""

    def count(self, num_steps: int) -> None:
        """So many steps were taken in a window; not collective."""

    def gates(self) -> list[Gate]:
        """The worst of all ranks."""


REPLAY_GATES = {
    "audit_step": "change of each tensor in {where} of the timed trainer against a replay, of the expected change",
    "audit_scale": "projection of the deviation in {where} on the expected change, less rounding",
    "audit_batches": "batches drawn beyond the steps that were counted, or missing",
    "audit_samples": "samples in {where} that are not those of this rank's shard and step",
    "audit_loss": "loss that the trainer gave for {where} against a replay's",
}


class ReplayAudit:
    """Replays steps of a trainer that gives its state (`measure.Audit`). Collective."""

    def __init__(self, training: AuditedTraining) -> None:
        self._training = training
        self._reference: Replica | None = None
        self._first_batch = self._num_drawn_before()
        self._num_taken = 0  # steps in this launch
        self._drawn = -1  # the audited window
        self._num_windows = 0
        # That window's, the steps before it, and how gradients are averaged from there on.
        self._before: tuple[Snapshot, State, int, Callable[[], Averaging]] | None = None
        self._places: list[int] = []  # the steps that were replayed one by one
        self._share = Judged(training.bounds.share)
        self._scale = Judged(training.bounds.scale)
        self._window_share: Judged | None = None
        self._window_steps, self._window = 0, "a stretch drawn by lot"
        self._wrong_batches = 0  # by which the trainer drew more or fewer than it took steps
        self._wrong_samples = 0
        self._loss_error = 0.0

    def _num_drawn_before(self) -> int:
        """Batches of the trainer before this launch: some where a training is resumed."""
        return num_drawn(self._training.trainer.held(slots=False))

    def _state(self) -> State:
        """All that the trainer's next steps depend on."""
        return self._training.trainer.state()

    def _num_batches(self) -> int:
        """That the trainer has to have drawn in this launch."""
        return self._num_taken

    def count(self, num_steps: int) -> None:
        self._num_taken += num_steps

    def before_warm(self) -> None:
        self.open_stretch()

    def after_warm(self) -> None:
        self.close_stretch()

    def warmed_up(self) -> None:
        """Replay one step, if none could be so far."""
        if not self._places:
            self._audit_step()

    def begin(self, num_windows: int) -> None:
        self._drawn, self._num_windows = draw(num_windows, control=self._training.control), num_windows

    def before(self, window: int) -> None:
        """Note the state that the drawn window begins with."""
        if window == self._drawn:
            self.open_stretch()

    def after(self, window: int) -> None:
        if window == self._drawn:
            self._window = f"timed window {self._drawn + 1} of {self._num_windows}, drawn by lot"
            self.close_stretch(whole=True)

    @property
    def num_opening(self) -> int:
        """One step is looked at by itself: further ones have its optimizer's state."""
        return 1

    def open_stretch(self) -> None:
        """Note the state that some steps begin with, unless a state is not all that they depend on."""
        if not self._training.backend.delay and not self._has_skipped():
            with self._training.aside():
                self._before = *self._look(), self._num_taken, self._averaging()

    def close_stretch(self, *, whole: bool = False) -> None:
        """Replay the steps since, which were counted: a single one as such, unless `whole`; several as a window."""
        if self._before is None or self._has_skipped():
            self._before = None
            return
        with self._training.aside():
            (old, state, num_taken, averaging), self._before = self._before, None
            new = self._look_again()
            noisy: set[str] = set()

            def replay() -> Snapshot:
                reference = self._restored(old, state)
                self._mean = averaging()
                for step in range(num_taken, self._num_taken):
                    gradients = self._gradients(reference, step)
                    noisy.update(self._noisy(gradients))
                    self._apply(reference, gradients, step)
                return self._replayed(reference)

            expected = replay()
            self._check_samples(self._replica(), state, self._num_taken - num_taken)
            if self._num_taken - num_taken == 1 and not whole:
                self._check_losses(self._training.trainer.losses(), self._replica().losses())
                self._judge_step(old, new, expected, noisy, replay)
            else:
                self._window_steps = self._num_taken - num_taken
                self._window_share = self._window_share or Judged(self._training.bounds.window)
                measure = partial(deviation.whole_share, old, noisy=noisy)
                self._judge([self._window_share], lambda *pair: [measure(*pair)], new, expected, replay)

    def _judge_step(
        self,
        old: Snapshot,
        new: Snapshot,
        expected: Snapshot,
        noisy: set[str],
        replay: Callable[[], Snapshot],
    ) -> None:
        def measure(found: Snapshot, expected: Snapshot) -> list[float]:
            bounds = self._training.bounds
            one = deviation.deviation(old, found, expected, bounds=bounds, noisy=noisy)
            return [one.share, one.scale]

        self._judge([self._share, self._scale], measure, new, expected, replay)
        self._places.append(self._num_taken)

    def _judge(
        self,
        judged: Sequence[Judged],
        measure: Callable[[Snapshot, Snapshot], Sequence[float]],
        new: Snapshot,
        expected: Snapshot,
        replay: Callable[[], Snapshot],
    ) -> None:
        """Note how far what the trainer holds is from a replay.

        Beyond a bound also how far replays are from each other, if they may be.
        """
        beyond = [one.add(value) for one, value in zip(judged, measure(new, expected), strict=True)]
        if self._training.bounds.exact or not any(self._training.control.allgather(any(beyond))):
            return
        expected = {name: array.copy() for name, array in expected.items()}
        for _ in range(deviation.NUM_REPLAYS):
            for one, value in zip(judged, measure(replay(), expected), strict=True):
                one.add_noise(value)

    def end(self) -> None:
        """Replay one step after the last window: what went wrong and stayed so is seen whenever it began."""
        self._audit_step()

    def end_training(self) -> None:
        """The same; and a stretch of steps, where the training was too short for one."""
        self.end()
        if self._window_share is None and not self._training.backend.delay and not self._has_skipped():
            self.open_stretch()
            for _ in range(NUM_LAST_STEPS):
                self._step(self._training.trainer)
            self.close_stretch()

    def gates(self) -> list[Gate]:
        bounds, late = self._training.bounds, self._training.backend.delay
        if not self._places:
            why = "samples were left out, and the next ones cannot be found from a state"
            return [unaudited(name, why) for name in (*REPLAY_GATES, "audit_window")]
        where = f"step{'s' * (len(self._places) > 1)} {', '.join(map(str, self._places))}"
        found = {
            "audit_step": self._share,
            "audit_scale": self._scale,
            "audit_batches": Judged(0.0, self._wrong_batches),
            "audit_samples": Judged(0.0, self._wrong_samples),
            "audit_loss": Judged(bounds.loss, self._loss_error),
        }
        gates = [
            self._gate(name, judged, REPLAY_GATES[name].format(where=where))
            for name, judged in found.items()
            if name != "audit_loss" or not late
        ]
        if late:
            gates.append(unaudited("audit_loss", "gradients are applied late"))
        return [*gates, self._window_gate()]

    def _window_gate(self) -> Gate:
        if self._window_share is None:
            why = (
                "samples were left out" if not self._training.backend.delay else "gradients are applied late"
            )
            return unaudited("audit_window", f"{why}, and no window can be replayed from its state")
        return self._gate(
            "audit_window",
            self._window_share,
            f"change of the weights in the {self._window_steps} steps of {self._window}, against a replay",
        )

    def _gate(self, name: str, judged: Judged, detail: str) -> Gate:
        return judged_gate(name, judged, detail, control=self._training.control)

    def _audit_step(self) -> None:
        """Take the steps until gradients of now are applied, one where they are not late, and replay the last."""
        if self._has_skipped():
            return
        trainer = self._training.trainer
        with self._training.aside():
            taken_before = self._num_taken
            delay = self._settle()
            begin, state = self._look()
            averaging = self._averaging()
            for _ in range(delay):
                self._step(trainer)
            late, late_state = self._look() if delay else (begin, state)
            self._step(trainer)
            after = self._look_again()
            last = self._num_taken - 1
            noisy: set[str] = set()

            def replay() -> Snapshot:
                reference = self._restored(begin, state)
                self._mean = averaging()
                gradients = self._gradients(reference, last - delay)
                noisy.update(self._noisy(gradients))
                self._check_samples(reference, state, 1)
                if delay:
                    reference.restore(late_state)
                    self._training.follow(reference, self._first_batch + last)
                self._apply(reference, gradients, last)
                return self._replayed(reference)

            expected = replay()
            if not delay:
                self._check_losses(trainer.losses(), self._replica().losses())
            self._judge_step(late, after, expected, noisy, replay)
        self._training.passed(self._num_taken - taken_before)

    def _check_losses(self, found: list[float], expected: list[float]) -> None:
        self._loss_error = max(self._loss_error, loss_error(found, expected))

    def _check_samples(self, reference: Replica, state: State, num_steps: int) -> None:
        """Of the last of so many steps that the reference took from `state` on."""
        training, last = self._training, num_drawn(state) + num_steps - 1
        wrong = num_wrong_samples(
            reference,
            last,
            shard=training.shard,
            held_out=training.held_out,
            order=training.order,
        )
        self._wrong_samples = max(self._wrong_samples, wrong)

    def _step(self, trainer: Trainer) -> None:
        (self._training.step or trainer.step)()
        self._num_taken += 1

    def _settle(self) -> int:
        """Step on past the begin of a cool-down, if it is due; returns by how many steps gradients are late then."""
        trainer, delay = self._training.trainer, self._training.backend.delay
        until = int(trainer.settings().get("pipelined_until_step", 0)) if delay else 0
        while until and self._num_taken <= until <= self._num_taken + delay:
            self._step(trainer)
        return 0 if until and self._num_taken > until else delay

    def _has_skipped(self) -> bool:
        """Whether any rank left out samples, so that no replica can find its next ones from its state."""
        return any(self._training.control.allgather(self._training.num_skipped()))

    def _look(self) -> tuple[Snapshot, State]:
        """The trainer as it is, and its state, to begin a replay with."""
        state = self._synchronized(self._state)
        seen = self._seen(state)
        return {name: state[name] if name in state else array.copy() for name, array in seen.items()}, state

    def _look_again(self) -> Snapshot:
        """The trainer as it is; valid until its next step."""
        return self._seen(self._synchronized(self._held))

    def _synchronized(self, look: Callable[[], State]) -> State:
        """What it gives when nothing is under way; the trainer must have drawn a batch in every step."""
        self._training.trainer.synchronize()
        state = look()
        wrong = abs(num_drawn(state) - self._first_batch - self._num_batches())
        self._wrong_batches = max(self._wrong_batches, wrong)
        return state

    def _held(self) -> State:
        """What is enough of a state to see the trainer by."""
        return self._training.trainer.held()

    def _seen(self, state: State) -> Snapshot:
        """What the trainer holds that its steps change, with what optimizers keep in `state`; collective."""
        return deviation.changed(
            deviation.kept_by_optimizers(state) | self._training.trainer.held(slots=False)
        )

    def _replayed(self, reference: Replica) -> Snapshot:
        """What it ought to hold, after a replay; valid until the next one."""
        return deviation.changed(reference.held())

    def _replica(self) -> Replica:
        if self._reference is None:
            self._reference = self._training.make_reference()
            make_slots(self._reference)
        return self._reference

    def _restored(self, old: Snapshot, state: State) -> Replica:  # noqa: ARG002 - of audits that replay more
        """The reference, where the trainer was when it was seen as `old`."""
        reference = self._replica()
        reference.restore(state)
        return reference

    def _gradients(self, reference: Replica, step: int) -> Weights:
        """What the update of that step (0 is this launch's first) is made of; collective."""
        self._training.follow(reference, self._first_batch + step)
        return self._mean(reference.gradients())

    def _averaging(self) -> Callable[[], Averaging]:
        """Begins what the trainer's exchanges come to from now on; compressed ones begin with what it has left over."""
        training = self._training
        if not training.backend.capabilities.exchanges:
            return lambda: list
        if compressor := training.backend.compressor:
            trainer = cast(CompressedTrainer, training.trainer)
            states = trainer.bucket_states()
            begin = partial(Replay, compressor, trainer, control=training.control)
            return lambda: begin(states=copy.deepcopy(states)).mean_gradients
        return lambda: partial(mean_over_ranks, control=training.control, order="K")

    def _apply(self, reference: Replica, gradients: Weights, step: int) -> None:  # noqa: ARG002
        """Replay the update of that step; collective."""
        reference.apply(gradients)

    def _noisy(self, gradients: Weights) -> set[str]:
        return deviation.noisy_weights(gradients, bounds=self._training.bounds)
