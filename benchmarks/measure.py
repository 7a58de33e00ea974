"""The one timed loop: every workload, framework, backend and control passes through these lines.

A window is: barrier, stamp, K steps, synchronise, stamp. The barrier is outside the interval; nothing is
printed, gathered or written inside. Every rank keeps its own seconds; that the slowest rank counts is applied
when the record is read (docs/metrics.md). Rules M9-M15 of the methodology.
"""

from __future__ import annotations

import functools
import math
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, Protocol

from pydantic import NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt, model_validator

from dlscale.benchmarks.record import Frozen
from dlscale.benchmarks.stampers import Stamper

STEADY_GROUP = 5  # steps in each of the two groups that the steady-state test compares
STEADY_CHANGE = 0.10  # largest relative change of their medians


class Steppable(Protocol):
    """What can be timed: a trainer, or a control that only looks like one."""

    def step(self) -> None: ...  # noqa: D102
    def synchronize(self) -> None: ...  # noqa: D102


class Counting(Steppable, Protocol):
    """What can be timed though its ranks do not step together: it counts what the weights took up."""

    def num_applied(self) -> int: ...  # noqa: D102


class Control(Protocol):
    """The control plane of a launch, separate from what carries the gradients. Collective."""

    def barrier(self) -> None: ...  # noqa: D102
    def maximum(self, value: float) -> float: ...  # noqa: D102


class Course(Protocol):
    """A training that a launch measures a part of, where it is longer than that or is to be saved. Collective."""

    def passed(self, num_steps: int) -> None:
        """So many steps have been taken since the last call; outside of any interval."""
        ...

    def num_left(self) -> int:
        """Steps that are to come whatever is measured; not collective."""
        ...


class Rules(Frozen):
    """How long to warm up and to measure, per launch and control; from the study's [rules].

    `train_steps` are those of a whole training, over all launches that it takes: they are all taken, whatever the
    budget and `max_steps` say; 0 means as many as the windows need. Its state is saved at the first end of a window
    after every `checkpoint_every` steps; 0 means never.
    """

    warmup_steps: PositiveInt = 10
    max_warmup_steps: PositiveInt = 40
    min_windows: PositiveInt = 10
    min_window_seconds: NonNegativeFloat = 0.15
    min_steps: PositiveInt = 20
    max_steps: PositiveInt = 5000
    max_windows: PositiveInt = 200
    train_steps: NonNegativeInt = 0
    checkpoint_every: NonNegativeInt = 0
    stall_seconds: PositiveFloat = 300.0  # without any news from any rank

    @property
    def is_course(self) -> bool:
        """Whether a training is more than its windows: of a length of its own, or saved."""
        return bool(self.train_steps or self.checkpoint_every)

    @property
    def longest_warm_up(self) -> int:
        """The most steps that a warm-up may take, steady or not."""
        return max(self.warmup_steps, self.max_warmup_steps)

    @model_validator(mode="after")
    def _warm_up_leaves_enough(self) -> Rules:
        left, needed = self.max_steps - self.longest_warm_up, max(self.min_steps, self.min_windows)
        if left < needed:
            raise ValueError(
                f"a warm-up of up to {self.longest_warm_up} steps leaves {max(left, 0)} of max_steps = "
                f"{self.max_steps}, and at least {needed} must be measured; shorten the warm-up or raise max_steps"
            )
        return self


@dataclass(frozen=True, slots=True)
class Measured:
    """One rank's stamps of one window, on its own monotonic clock.

    `num_applied` is of a window of fixed time: local batches of all ranks that the weights took up in it.
    """

    phase: Literal["warmup", "steady"]
    num_steps: int
    start: float
    seconds: float
    step_seconds: list[float] | None = None
    num_applied: int | None = None


Emit = Callable[[Measured], None]


def time_window(
    trainer: Steppable,
    control: Control,
    *,
    phase: Literal["warmup", "steady"],
    num_steps: int,
    stamper: Stamper | None = None,
) -> Measured:
    """One window of `num_steps` steps; collective.

    `stamper` adds the seconds of each step: where no rank waits for another, as over `none`, they show which rank was
    late when.
    """
    if stamper:
        stamper.begin(num_steps)
    control.barrier()  # outside the interval
    start = time.perf_counter()
    if stamper is None:
        for _ in range(num_steps):
            trainer.step()
    else:
        stamper.stamp()
        for _ in range(num_steps):
            trainer.step()
            stamper.stamp()
    trainer.synchronize()  # a GPU is not done when Python is
    seconds = time.perf_counter() - start
    return Measured(phase, num_steps, start, seconds, stamper.seconds() if stamper else None)


def time_fixed_window(
    trainer: Counting, control: Control, *, phase: Literal["warmup", "steady"], seconds: float
) -> Measured:
    """One window in which every rank takes as many steps as it can begin in `seconds`; collective.

    For ranks that do not step together: a fixed number of steps would end when the slowest rank had done them, with
    the others idle. What was applied is counted between barriers, outside the interval, when nothing is under way.
    """
    control.barrier()
    before = trainer.num_applied()
    control.barrier()
    num_steps = 0
    start = time.perf_counter()
    end = start + seconds
    while time.perf_counter() < end:
        trainer.step()
        num_steps += 1
    trainer.synchronize()
    taken = time.perf_counter() - start
    control.barrier()
    return Measured(phase, num_steps, start, taken, num_applied=trainer.num_applied() - before)


def measure(
    trainer: Steppable,
    control: Control,
    rules: Rules,
    *,
    deadline: float,
    emit: Emit,
    stamper: Stamper | None = None,
    counting: Counting | None = None,
    course: Course | None = None,
) -> bool:
    """Warm up, then measure windows until `deadline` on this rank's monotonic clock; collective.

    Windows have a fixed number of steps, or, of the trainer `counting`, whose ranks do not step together, the time
    that so many would take. All ranks run the same windows, because every decision is taken on the maximum over
    ranks. At least the rules' minimum is measured, however late it is, and a `course` is gone to its end: in at most
    `max_windows`, unless those would be so long that their silence looked like a hang. Returns whether the warm-up met
    the steady-state test.
    """
    num_warm_up, steady, world_step = _warm_up(trainer, control, rules, deadline=deadline, emit=emit)
    steps = max(1, math.ceil(rules.min_window_seconds / max(world_step, 1e-7)))
    num_windows = max(rules.min_windows, math.ceil(rules.min_steps / steps))
    steps = min(steps, max(1, (rules.max_steps - rules.longest_warm_up) // num_windows))
    # The time left differs from rank to rank; the least of them decides, as -max(-left).
    left = -control.maximum(time.perf_counter() - deadline)
    fitting = min(int(left / (steps * world_step)), rules.max_windows) if left > 0 else 0
    room = (rules.max_steps - rules.longest_warm_up) // steps
    wanted = max(num_windows, min(fitting, room))
    if course:
        course.passed(num_warm_up)
        in_time = int(rules.stall_seconds / 4 / world_step)  # nobody hears of a window before it has ended
        steps = max(steps, min(math.ceil(course.num_left() / rules.max_windows), in_time))
    one_window = functools.partial(
        time_window, trainer, control, phase="steady", num_steps=steps, stamper=stamper
    )
    if counting:
        one_window = functools.partial(
            time_fixed_window, counting, control, phase="steady", seconds=steps * world_step
        )
    while wanted > 0 or (course and course.num_left() > 0):
        emit(one_window())
        wanted -= 1
        if course:
            course.passed(steps)
    return steady


def _warm_up(
    trainer: Steppable, control: Control, rules: Rules, *, deadline: float, emit: Emit
) -> tuple[int, bool, float]:
    """Steps one by one until their time is steady; returns (how many, whether it became so, world seconds per step).

    The test compares the medians over the last STEADY_GROUP steps and over those before: steady if they
    differ by at most STEADY_CHANGE. Half of the time until the deadline is the most that warm-up may take.
    """
    begin = time.perf_counter()
    world: list[float] = []
    while True:
        window = time_window(trainer, control, phase="warmup", num_steps=1)
        emit(window)
        world.append(control.maximum(window.seconds))
        last = statistics.median(world[-STEADY_GROUP:])
        if len(world) < max(rules.warmup_steps, 2 * STEADY_GROUP) and len(world) < rules.longest_warm_up:
            continue
        before = statistics.median(world[-2 * STEADY_GROUP : -STEADY_GROUP] or world)
        steady = len(world) >= 2 * STEADY_GROUP and abs(last / before - 1) <= STEADY_CHANGE
        late = control.maximum(float(time.perf_counter() > begin + (deadline - begin) / 2)) > 0
        if steady or late or len(world) >= rules.longest_warm_up:
            return len(world), steady, last
