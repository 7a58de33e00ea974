"""The audit of the timed trainer itself, between its windows: does it still do what the gates saw before the first?

A reference (`reference.py`) replays what the trainer did, from the trainer's own state: all steps of a window that is
drawn by lot when the warm-up is over, which no trainer can know, and a further step at the end. Where windows have one
step, which is long then, the last window is both.

Where no rank waits for another, pushes in between make a step's result unknown, but not while all others wait: so ranks
take *turns* after the drawn window and after the last one, and each turn is replayed. All ranks that step together have
one turn.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, cast

import numpy as np

from dlscale.benchmarks.rank.deviation import Snapshot, deviation, whole_share
from dlscale.benchmarks.rank.reference import AuditedTraining, Reference, num_wrong_samples, reference_of
from dlscale.benchmarks.records.record import Gate
from dlscale.collectives.backend import GATHER_SIZES, Backend, CountingTrainer, bytes_of
from dlscale.collectives.sharding import NONE, PARAMETERS
from dlscale.models.workload import NUM_DRAWN, State

Measure = Callable[[Snapshot, Snapshot, Snapshot], dict[str, float]]
"""Deviations after some steps by the names of their gates: from (before, after, expected)."""

# Where replays are not exact: how many times larger than between two replays a fault's deviation is.
NOISES = 4.0


@dataclass(slots=True)
class Judged:
    """The largest of some deviations."""

    bound: float
    value: float | None = None  # None: nothing was looked at
    is_vague: bool = False  # what was beyond the bound is no more than replays differ by

    def add(self, value: float) -> bool:
        """Returns whether it is beyond the bound."""
        self.value = max(self.value or 0.0, value)
        return value > self.bound

    def gate(self, name: str, detail: str, *, control: Any, why: str = "") -> Gate:
        """The worst of all ranks; `why` nothing was looked at, if no rank did. Collective."""
        # No value is NaN, over which a plain maximum may pass: it is infinite where a number is not finite.
        values, vague = zip(*control.allgather((self.value, self.is_vague)), strict=True)
        known = [value for value in values if value is not None]
        if not known or any(vague):
            reason = "replays of the same steps differ" if known else why
            return Gate.unchecked(name, f"not audited: {reason}")
        return Gate.at_most(self.bound, max(known), name=name, detail=detail)


def draw(count: int, *, control: Any) -> int:
    """A number below `count`, the same on all ranks of `control`, that no trainer can know before."""
    number: int = control.bcast(secrets.randbelow(count))
    return number


def turns(backend: Backend, num_ranks: int) -> list[range]:
    """The ranks that step together while all others wait: all of them, or each alone."""
    if not backend.asynchronous:
        return [range(num_ranks)]
    return [range(rank, rank + 1) for rank in range(num_ranks)]


class Replay:
    """Lets a trainer take steps, and replays them by a reference. Collective.

    `judged` takes the results, by the names of gates; other deviations are not looked at.
    """

    def __init__(self, training: AuditedTraining, judged: dict[str, Judged], *, gate: bool = False) -> None:
        self.training, self.judged, self._gate = training, judged, gate
        self.num_taken = 0  # steps of this rank in this launch
        resumes = not (training.backend.capabilities.servers or gate)
        self._first = _num_drawn(training.trainer.held(slots=False)) if resumes else 0

    @cached_property
    def reference(self) -> Reference:
        """Made when the first steps are looked at."""
        return reference_of(self.training, gate=self._gate)

    def look(self) -> State:
        """The trainer's state; it must have drawn a batch in every step."""
        self.training.trainer.synchronize()
        state = self.reference.state()
        self._note("audit_samples", abs(_num_drawn(state) - self._first - self.num_taken))
        return state

    def can_replay(self) -> bool:
        """Whether no rank left out samples, after which no replica can find the next ones from a state."""
        return not any(self.training.control.allgather(self.training.num_skipped()))

    def take_turn(self, turn: range, measure: Measure) -> None:
        """Let the ranks of a turn step while all others wait, and judge their last steps."""
        trainer, delay = self.training.trainer, self.training.backend.delay
        is_mine, late = self.training.control.Get_rank() in turn, None
        before, num_steps = self.reference.turn_steps(self.num_taken, gate=self._gate)
        if until := int(trainer.settings().get("pipelined_until_step", 0)) if delay else 0:
            # Past the begin of a cool-down, if it is due.
            before = until + 1 - self.num_taken if self.num_taken <= until <= self.num_taken + delay else 0
            delay = 0 if self.num_taken + before > until else delay
        self._step(before * is_mine)
        state = self.look() if is_mine else None
        if delay:
            self._step(delay)
            late = self.look()
        self._step(num_steps * is_mine)
        if "audit_count" in self.judged:
            # The servers have taken up all that ranks pushed, and once.
            applied = cast(CountingTrainer, trainer).num_applied()
            missing = self.training.control.allreduce(self.num_taken) - applied
            waiting = self.training.control.Get_size() * self.reference.most_waiting
            self._note("audit_count", max(-missing, missing - waiting))
        if self.can_replay():
            self.reference.turn = turn
            self.judge(state, measure, num_steps=num_steps, late=late)

    def judge(
        self, state: State | None, measure: Measure, *, num_steps: int, late: State | None = None
    ) -> None:
        """Note how far what the trainer holds is from a replay of its last steps, from `state` on.

        Without a state they were other ranks'. Gradients are applied to `late` where that is another state. What is
        beyond its bound is replayed once more where replays may differ.
        """
        reference, last = self.reference, self._first + self.num_taken - 1
        delay = self.training.backend.delay if late else 0

        def replay() -> Snapshot:
            if state is None:
                reference.idle(num_steps)
                return {}
            reference.begin(state)
            for number in range(last + 1 - num_steps, last):
                reference.apply(reference.gradients(number), number)
            gradients = reference.gradients(last - delay)
            if last - delay >= _num_drawn(state) and "audit_samples" in self.judged:
                shard, held_out, order = self.training.shard, self.training.held_out, self.training.order
                wrong = num_wrong_samples(
                    reference.replica, last - delay, shard=shard, held_out=held_out, order=order
                )
                self._note("audit_samples", wrong)
            if late:
                reference.begin(late)
                self.training.follow(reference.replica, last)
            reference.apply(gradients, last)
            return reference.seen()

        after = {} if state is None else reference.seen_in_trainer()
        before, expected = Snapshot(), replay()
        beyond: list[str] = []
        if state is not None:
            if _equal(after, expected):  # mostly, and then nothing has to be measured
                after, expected = {}, {}
            else:
                expected = _copied(expected)
                reference.begin(late or state)
                before = _copied(reference.seen())
            beyond = [
                name for name, value in measure(before, after, expected).items() if self._note(name, value)
            ]
        if self.training.bounds.exact or not any(self.training.control.allgather(beyond)):
            return
        again = replay()
        noises = measure(before, again, expected) if beyond else {}
        for judged, noise in [(self.judged[name], noises[name]) for name in beyond]:
            judged.is_vague |= NOISES * noise > (judged.value or 0.0)

    def _note(self, name: str, value: float) -> bool:
        return name in self.judged and self.judged[name].add(value)

    def _step(self, num_steps: int) -> None:
        """Between two moments in which all ranks are here and nothing is under way."""
        self.training.control.Barrier()
        for _ in range(num_steps):
            (self.training.step or self.training.trainer.step)()
            self.num_taken += 1
        if num_steps:
            self.training.trainer.synchronize()
        self.training.control.Barrier()


class ReplayAudit:
    """When the steps of a timed trainer are replayed, and the gates that follow. Collective."""

    def __init__(self, training: AuditedTraining) -> None:
        backend, bounds = training.backend, training.bounds
        allowed = {"audit_step": bounds.share, "audit_scale": bounds.scale, "audit_window": bounds.window}
        allowed |= {"audit_samples": 0.0} | ({"audit_count": 0.0} if backend.capabilities.servers else {})
        self._training = training
        self._replay = Replay(training, {name: Judged(bound) for name, bound in allowed.items()})
        self._has_windows = not (backend.asynchronous or backend.delay)
        self._turns = turns(backend, training.control.Get_size())
        self._open: tuple[State, int] | None = None
        self._drawn, self._is_single, self._window = -1, False, "stretches drawn by lot"

    def count(self, num_steps: int) -> None:
        """So many steps were taken in a window; not collective."""
        self._replay.num_taken += num_steps

    def begin(self, num_windows: int, *, num_steps: int) -> None:
        """Windows of so many steps follow."""
        self._is_single = self._has_windows and num_steps == 1
        drawn = draw(num_windows, control=self._training.control)
        self._drawn = num_windows - 1 if self._is_single else drawn
        self._window = f"timed window {self._drawn + 1} of {num_windows}"
        if self._has_windows:
            with self._training.aside():
                self._replay.reference  # noqa: B018 - made here, not between two windows

    def before(self, window: int) -> None:
        if window == self._drawn:
            self.open_stretch()

    def after(self, window: int) -> None:
        """Replay the window, or where that cannot be a turn that is drawn by lot."""
        if window != self._drawn:
            return
        self.close_stretch()
        if self._training.backend.asynchronous:
            self._take_turns([self._turns[draw(len(self._turns), control=self._training.control)]])

    def end(self) -> None:
        """Replay a step after the last window: what went wrong and stayed so is seen whenever it began."""
        if not self._is_single:
            self._take_turns(self._turns)

    def open_stretch(self) -> None:
        """Note the state that some steps begin with, unless a state is not all that they depend on."""
        if self._has_windows and self._replay.can_replay():
            with self._training.aside():
                self._open = self._replay.look(), self._replay.num_taken

    def close_stretch(self) -> None:
        """Replay the steps since, which were counted: as a window, and a single one also as a step."""
        (state, num_taken), self._open = self._open or (None, 0), None
        if state is None or not self._replay.can_replay():
            return
        with self._training.aside():
            self._training.trainer.synchronize()
            num_steps = self._replay.num_taken - num_taken
            measure = self._of_single if num_steps == 1 else self._of_window
            self._replay.judge(state, measure, num_steps=num_steps)

    def gates(self) -> list[Gate]:
        """The worst of all ranks."""
        backend, control = self._training.backend, self._training.control
        where = "turns of ranks whose others wait" if backend.asynchronous else "single steps"
        details = {
            "audit_step": f"change of each tensor in {where} against a replay, of the expected change",
            "audit_scale": f"projection of the deviation in {where} on the expected change, less rounding",
            "audit_window": f"change of the weights in the steps of {self._window}, against a replay",
            "audit_samples": "samples that are not those of this rank's shard and step, and batches too many or few",
            "audit_count": "gradients that servers count beyond the steps that ranks took, or miss",
        }
        whys = dict.fromkeys(details, "samples were left out")
        if backend.asynchronous:
            whys["audit_window"] = "ranks do not wait for each other, and turns are replayed"
        elif backend.delay:
            whys["audit_window"] = "gradients are applied late"
        gates = [
            judged.gate(name, details[name], control=control, why=whys[name])
            for name, judged in self._replay.judged.items()
        ]
        is_sharded = backend.shard != NONE and gates[0].value is not None
        return [*gates, self._shards_gate()] if is_sharded else gates

    def _take_turns(self, order: Sequence[range]) -> None:
        taken = self._replay.num_taken
        with self._training.aside():
            for turn in order:
                self._replay.take_turn(turn, self._of_step)
        self._training.passed(self._replay.num_taken - taken)

    def _of_step(self, *seen: Snapshot) -> dict[str, float]:
        share, scale = deviation(*seen, bounds=self._training.bounds, noisy=self._replay.reference.noisy)
        return {"audit_step": share, "audit_scale": scale}

    def _of_window(self, *seen: Snapshot) -> dict[str, float]:
        return {"audit_window": whole_share(*seen, noisy=self._replay.reference.noisy)}

    def _of_single(self, *seen: Snapshot) -> dict[str, float]:
        return self._of_step(*seen) | self._of_window(*seen)

    def _shards_gate(self) -> Gate:
        """A rank's state is nearer to its part than to the whole, and its weights are gathered for each pass."""
        training, replica = self._training, self._replay.reference.replica
        own, whole = training.trainer.state_bytes(), bytes_of(replica.held())
        pairs = [(own.optimizer or 0, whole.optimizer or 0)]
        missing, size = 0, training.control.Get_size()
        if training.backend.shard == PARAMETERS and size > 1:
            settings = training.trainer.settings()
            pairs.append((own.parameters, whole.parameters))
            num_gathers, units = len(str(settings.get(GATHER_SIZES, "")).split(",")), int(settings["units"])
            # The last unit is the network's rest. Of several losses each network is whole for a step.
            missing = (2 * (units - 1) if len(replica.objectives) == 1 else units) - num_gathers
        kept = math.inf if missing > 0 else max((part / total for part, total in pairs if total), default=0.0)
        detail = "part of the sharded state that a rank keeps; infinite if gathers of a step are missing"
        worst = max(training.control.allgather(kept))
        return Gate.at_most((1 + 1 / size) / 2, worst, name="audit_shards", detail=detail)


def _num_drawn(state: State) -> int:
    return int(state[NUM_DRAWN][0])


def _equal(after: Snapshot, expected: Snapshot) -> bool:
    return expected.keys() <= after.keys() and all(
        np.array_equal(after[name], value) for name, value in expected.items()
    )


def _copied(snapshot: Snapshot) -> Snapshot:
    return {name: array.copy() for name, array in snapshot.items()}
