"""The audit of the timed trainer itself, between its windows: does it still do what the gates saw before the first?

A reference (`reference.py`) replays what the trainer did, from the trainer's own state. Replayed are single steps, at
the end of the warm-up and after the last window, and all steps of a window that is drawn by lot when the warm-up is
over, which no trainer can know. An audited step is an ordinary step of the training.

Where no rank waits for another, who pushes in between makes a step's result unknown, but not while all others wait: so
ranks take *turns* after the warm-up, after the drawn window, and after the last one, and each turn is replayed. All
ranks that step together have one turn.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, cast

from dlscale.benchmarks.rank.deviation import Bounds, Snapshot, deviation, whole_share
from dlscale.benchmarks.rank.reference import BackedUp, Reference, reference_of
from dlscale.benchmarks.rank.sample_order import num_wrong_samples
from dlscale.benchmarks.records.record import Gate
from dlscale.collectives.algorithms import downpour
from dlscale.collectives.backend import BackedUpTrainer, Backend, CountingTrainer, Trainer
from dlscale.collectives.control import Communicator
from dlscale.models.weights import NUM_DRAWN
from dlscale.models.workload import Replica, Shard, State

Measure = Callable[[Snapshot, Snapshot, Snapshot], Sequence[float]]
"""Deviations of what is there after some steps, from (before, after, expected)."""

# Where replays are not exact: how many more there are of what is beyond its bound, how many times their largest
# difference from the first one is allowed then, and up to where it can tell anything: a mean that is halved, or a step
# of two that is missing, deviates by 0.5.
NUM_REPLAYS = 3
ALLOWED_NOISES = 4.0
MOST_NOISE = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditedTraining:
    """A trainer, and what its replay needs beside it."""

    trainer: Trainer
    backend: Backend
    make_reference: Callable[[], Replica]  # with the samples and seed of the trainer's replica; called once
    control: Communicator  # of the ranks
    shard: Shard  # the trainer's
    bounds: Bounds
    passed: Callable[[int], None] = lambda _: None  # is given the number of steps outside of windows
    num_skipped: Callable[[], int] = lambda: 0  # samples that this rank left out so far
    held_out: float = 0.0  # share of the input's samples that no batch has
    order: int = 0  # of the samples, beside the order that all trainings share
    follow: Callable[[Replica, int], None] = lambda *_: None  # sets what that step has of its own
    step: Callable[[], None] | None = None  # takes an audited step; None: the trainer's own
    # Around what is no part of the training, so that nothing else is counted meanwhile.
    aside: Callable[[], AbstractContextManager[Any]] = nullcontext


@dataclass(slots=True)
class Judged:
    """The largest of some deviations, and the largest among replays of the same steps, where that was asked."""

    bound: float
    value: float = 0.0
    noise: float = 0.0
    count: int = 0

    def add(self, value: float) -> bool:
        """Returns whether it is beyond the bound."""
        self.value, self.count = max(self.value, value), self.count + 1
        return value > self.bound

    def add_noise(self, value: float) -> None:
        """Of a further replay; numbers that are not finite say nothing."""
        if math.isfinite(value):
            self.noise = max(self.noise, value)

    def gate(self, name: str, detail: str, *, control: Any) -> Gate:
        """The worst of all ranks; collective."""
        # No value is NaN, over which a plain maximum may pass: it is infinite where a number is not finite.
        values, noises = zip(*control.allgather((self.value, self.noise)), strict=True)
        if (noise := max(noises)) > MOST_NOISE:
            return unaudited(name, f"replays of the same steps differ by {noise:.2g} from each other")
        apart = f" (replays differ by {noise:.2g} from each other)" if noise else ""
        allowed = max(self.bound, ALLOWED_NOISES * noise)
        return Gate.at_most(allowed, max(values), name=name, detail=detail + apart)


def unaudited(name: str, why: str) -> Gate:
    """The entry of what could not be looked at."""
    return Gate.unchecked(name, f"not audited: {why}")


def draw(count: int, *, control: Any) -> int:
    """A number below `count`, the same on all ranks of `control`, which nobody could know before."""
    number: int = control.bcast(secrets.randbelow(count))
    return number


def turns(backend: Backend, num_ranks: int) -> list[range]:
    """Which ranks step together while all others wait: all of them, or most often each has its turn alone."""
    if not backend.asynchronous:
        return [range(num_ranks)]
    if isinstance(backend.served, downpour.Options):
        return backend.served.turns(num_ranks)
    return [range(rank, rank + 1) for rank in range(num_ranks)]


class Replay:
    """Lets a trainer take steps, and replays them by a reference. Collective."""

    def __init__(self, training: AuditedTraining, *, gate: bool = False) -> None:
        self.training, self._gate = training, gate
        self.num_taken = 0  # steps of this rank in this launch
        self.wrong_samples, self.miscounted = Judged(0.0), Judged(0.0)
        self._reference: Reference | None = None
        servers = training.backend.capabilities.servers
        # Of a training that is resumed.
        self._first = 0 if servers or gate else _num_drawn(training.trainer.held(slots=False))

    @property
    def reference(self) -> Reference:
        if self._reference is None:
            training = self.training
            self._reference = reference_of(
                training.make_reference(),
                training.trainer,
                gate=self._gate,
                backend=training.backend,
                control=training.control,
                bounds=training.bounds,
                follow=training.follow,
            )
        return self._reference

    def look(self) -> State:
        """The trainer's state; it must have drawn a batch in every step."""
        self.training.trainer.synchronize()
        state = self.reference.state()
        if not self._gate:
            self.wrong_samples.add(abs(_num_drawn(state) - self._first - self._num_batches()))
        return state

    def can_replay(self) -> bool:
        """Whether no rank left out samples, after which no replica can find the next ones from a state."""
        return not any(self.training.control.allgather(self.training.num_skipped()))

    def take_turn(self, turn: range, judged: Sequence[Judged], measure: Measure) -> None:
        """Let the ranks of a turn step while all others wait, and judge their last steps."""
        control, delay = self.training.control, self.training.backend.delay
        is_mine, state, late = control.Get_rank() in turn, None, None
        before, num_steps = self.reference.turn_steps(self.num_taken, gate=self._gate)
        if until := int(self.training.trainer.settings().get("pipelined_until_step", 0)) if delay else 0:
            # Past the begin of a cool-down, if it is due.
            before = until + 1 - self.num_taken if self.num_taken <= until <= self.num_taken + delay else 0
            delay = 0 if self.num_taken + before > until else delay
        self._step(before * is_mine)
        if is_mine:
            state = self.look()
        if delay:
            self._step(delay)
            late = self.look()
        self._step(num_steps * is_mine)
        if self.training.backend.capabilities.servers and not self._gate:
            self._check_count()
        if self.can_replay():
            self.reference.turn = turn
            self.judge(state, judged, measure, num_steps=num_steps, late=late)

    def judge(
        self,
        state: State | None,
        judged: Sequence[Judged],
        measure: Measure,
        *,
        num_steps: int,
        late: State | None = None,
    ) -> None:
        """Note how far what the trainer holds is from a replay of its last steps, from `state` on.

        Without a state they were other ranks'. Gradients are applied to `late` where that is another state. Beyond a
        bound also how far replays are from each other, if they may be.
        """
        reference, last = self.reference, self._first + self.num_taken - 1
        delay = self.training.backend.delay if late else 0

        def replay() -> Snapshot:
            if state is None:
                for _ in range(num_steps):
                    reference.idle()
                return {}
            reference.begin(state)
            for number in range(last + 1 - num_steps, last):
                reference.step(number)
            gradients = reference.gradients(last - delay)
            self._check_samples(state, delay)
            if late:
                reference.begin(late)
                self.training.follow(reference.replica, last)
            reference.apply(gradients, last)
            return reference.seen()

        before, after = Snapshot(), Snapshot()
        if state is not None:
            after = reference.seen_in_trainer()
            reference.begin(late or state)
            before = _copied(reference.seen())
        expected = replay()
        beyond: list[bool] = []
        if state is not None:
            found = measure(before, after, expected)
            beyond = [one.add(value) for one, value in zip(judged, found, strict=True)]
        if self.training.bounds.exact or not any(self.training.control.allgather(any(beyond))):
            return
        expected = _copied(expected)
        for _ in range(NUM_REPLAYS):
            again = replay()
            if state is not None:
                for one, value in zip(judged, measure(before, again, expected), strict=True):
                    one.add_noise(value)

    def _step(self, num_steps: int) -> None:
        """Between two moments in which all ranks are here and nothing is under way."""
        trainer = self.training.trainer
        self.training.control.Barrier()
        for _ in range(num_steps):
            (self.training.step or trainer.step)()
            self.num_taken += 1
        if num_steps:
            trainer.synchronize()
        self.training.control.Barrier()

    def _num_batches(self) -> int:
        """That the trainer has to have drawn in this launch."""
        if isinstance(self.reference, BackedUp):
            return cast(BackedUpTrainer, self.training.trainer).num_computed()
        return self.num_taken

    def _check_samples(self, state: State, delay: int) -> None:
        """Of the reference's last batch, if there was one since `state`."""
        training, place = self.training, self._first + self._num_batches() - 1 - delay
        if place >= _num_drawn(state) and not self._gate:
            wrong = num_wrong_samples(
                self.reference.replica,
                place,
                shard=training.shard,
                held_out=training.held_out,
                order=training.order,
            )
            self.wrong_samples.add(wrong)

    def _check_count(self) -> None:
        """The servers have taken up all that ranks pushed, and once."""
        training, accepted = self.training, self.training.backend.num_accepted
        num_ranks = training.control.Get_size()
        pushed = training.control.allreduce(self.num_taken) if accepted is None else accepted * self.num_taken
        missing = pushed - cast(CountingTrainer, training.trainer).num_applied()
        self.miscounted.add(max(-missing, missing - num_ranks * self.reference.most_waiting))


AUDITS = {
    "audit_step": "change of each tensor in {where} of the timed trainer against a replay, of the expected change",
    "audit_scale": "projection of the deviation in {where} on the expected change, less rounding",
    "audit_window": "change of the weights in the steps of {window}, against a replay",
    "audit_samples": "samples that are not those of this rank's shard and step, and batches too many or too few",
    "audit_count": "gradients that the servers count beyond the steps that ranks took, or miss",
}
LATE, APART = "gradients are applied late", "ranks do not wait for each other, and turns are replayed"
SKIPPED, UNKNOWN = "samples were left out", "whose gradients an update took is not known"


class ReplayAudit:
    """When the steps of a timed trainer are replayed, and what comes out. Collective."""

    num_opening = 1  # first step of a training to a target; further ones have its optimizer's state

    def __init__(self, training: AuditedTraining) -> None:
        self._training, self._replay = training, Replay(training)
        backend, bounds = training.backend, training.bounds
        self._is_known = backend.asynchronous or backend.in_step
        self._has_windows = backend.in_step and not backend.delay
        self._turns = turns(backend, training.control.Get_size())
        self._step, self._scale, self._whole = map(Judged, (bounds.share, bounds.scale, bounds.window))
        self._open: tuple[State, int] | None = None
        self._drawn, self._window = -1, "stretches drawn by lot"

    def count(self, num_steps: int) -> None:
        self._replay.num_taken += num_steps

    def before_warm(self) -> None:
        self.open_stretch()

    def after_warm(self) -> None:
        self.close_stretch()

    def warmed_up(self) -> None:
        """Replay a turn, if no step could be so far."""
        if not self._step.count:
            self._take_turns(self._one_turn())

    def begin(self, num_windows: int) -> None:
        self._drawn = draw(num_windows, control=self._training.control)
        if self._has_windows:
            self._window = f"timed window {self._drawn + 1} of {num_windows}, drawn by lot"

    def before(self, window: int) -> None:
        if window == self._drawn:
            self.open_stretch()

    def after(self, window: int) -> None:
        """Replay the drawn window, or where that cannot be a turn that is drawn by lot."""
        if window == self._drawn:
            self.close_stretch(whole=True)
            if self._training.backend.asynchronous:
                self._take_turns(self._one_turn())

    def end(self) -> None:
        """Replay a step after the last window: what went wrong and stayed so is seen whenever it began."""
        self._take_turns(self._turns)

    def open_stretch(self) -> None:
        """Note the state that some steps begin with, unless a state is not all that they depend on."""
        if self._has_windows and self._replay.can_replay():
            with self._training.aside():
                self._open = self._replay.look(), self._replay.num_taken

    def close_stretch(self, *, whole: bool = False) -> None:
        """Replay the steps since, which were counted: a single one as such, unless `whole`; several as a window."""
        (state, num_taken), self._open = self._open or (None, 0), None
        if state is None or not self._replay.can_replay():
            return
        with self._training.aside():
            self._training.trainer.synchronize()
            num_steps = self._replay.num_taken - num_taken
            if num_steps == 1 and not whole:
                self._replay.judge(state, (self._step, self._scale), self._measure, num_steps=1)
            else:
                self._replay.judge(state, (self._whole,), self._measure_whole, num_steps=num_steps)

    def _one_turn(self) -> list[range]:
        return [self._turns[draw(len(self._turns), control=self._training.control)]]

    def _take_turns(self, order: Sequence[range]) -> None:
        if not self._is_known:
            return
        taken = self._replay.num_taken
        with self._training.aside():
            for turn in order:
                self._replay.take_turn(turn, (self._step, self._scale), self._measure)
        self._training.passed(self._replay.num_taken - taken)

    def _measure(self, before: Snapshot, after: Snapshot, expected: Snapshot) -> Sequence[float]:
        noisy = self._replay.reference.noisy
        found = deviation(before, after, expected, bounds=self._training.bounds, noisy=noisy)
        return found.share, found.scale

    def _measure_whole(self, before: Snapshot, after: Snapshot, expected: Snapshot) -> Sequence[float]:
        return [whole_share(before, after, expected, noisy=self._replay.reference.noisy)]

    def gates(self) -> list[Gate]:
        control, backend = self._training.control, self._training.backend
        counts = control.allgather((self._step.count, self._whole.count))
        num_steps, num_windows = (sum(column) for column in zip(*counts, strict=True))
        why = SKIPPED if self._is_known else UNKNOWN
        found = {}
        if num_steps:
            found = {
                "audit_step": self._step,
                "audit_scale": self._scale,
                "audit_samples": self._replay.wrong_samples,
            }
        if num_windows:
            found["audit_window"] = self._whole
        if backend.capabilities.servers and self._is_known:
            found["audit_count"] = self._replay.miscounted
        turn = "turns of ranks whose others wait" if backend.asynchronous else "single steps"
        names = [name for name in AUDITS if name != "audit_count" or backend.capabilities.servers]
        reasons = {"audit_window": APART if backend.asynchronous else LATE if backend.delay else why}
        where = {"where": turn, "window": self._window}
        return [
            found[name].gate(name, AUDITS[name].format(**where), control=control)
            if name in found
            else unaudited(name, reasons.get(name, why))
            for name in names
        ]


def _num_drawn(state: State) -> int:
    return int(state[NUM_DRAWN][0])


def _copied(snapshot: Snapshot) -> Snapshot:
    return {name: array.copy() for name, array in snapshot.items()}
