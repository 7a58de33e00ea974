"""The one timed loop: every workload, framework, backend and control passes through these lines.

A window is: barrier, stamp, K steps, synchronise, stamp. The barrier is outside the interval, and goes over the control
plane, apart from what carries the gradients; nothing is printed, gathered or written inside. Every rank keeps its own
seconds; that the slowest rank counts is applied when the record is read (docs/metrics.md).
"""

from __future__ import annotations

import functools
import math
import statistics
import time
from collections.abc import Callable
from itertools import pairwise
from typing import TYPE_CHECKING, Literal, Protocol

from dlscale.benchmarks.records.spool import MeasuredWindow
from dlscale.benchmarks.study.rules import MOST_WINDOWS, Rules
from dlscale.collectives.control import Communicator
from dlscale.collectives.job import rest

if TYPE_CHECKING:
    from dlscale.benchmarks.rank.audit import ReplayAudit

STEADY_GROUP = 5  # steps in each of the two groups that the steady-state test compares
STEADY_CHANGE = 0.10  # largest relative change of their medians
# A window ends when all work is done, which a long training does once. Where steps leave work to the next one, windows
# have so many of them at least, or little else would be measured than the end.
CARRIED_STEPS = 5
SHORTEST_STEP = 1e-7  # seconds, where a clock sees none
PATIENT_POLL_SECONDS = 0.0005


class Steppable(Protocol):
    """What can be timed: a trainer, or a control that only looks like one."""

    def step(self) -> None: ...
    def synchronize(self) -> None: ...


class Counting(Steppable, Protocol):
    """What can be timed though its ranks do not step together: it counts what the weights took up."""

    def num_applied(self) -> int: ...


class CommunicatorControl:
    """Barriers and maxima, apart from what carries the gradients; `patient` ranks leave their core while they wait."""

    def __init__(self, communicator: Communicator, *, patient: bool = False) -> None:
        self._communicator, self._patient = communicator, patient

    def barrier(self) -> None:
        if self._patient:
            rest(self._communicator.Ibarrier(), poll_seconds=PATIENT_POLL_SECONDS)
        else:
            self._communicator.Barrier()

    def maximum(self, value: float) -> float:
        if self._patient:
            self.barrier()  # then nobody waits for long inside MPI
        largest: float = self._communicator.allreduce(value, op=max)
        return largest


Emit = Callable[[MeasuredWindow], None]


def time_window(
    trainer: Steppable,
    control: CommunicatorControl,
    *,
    phase: Literal["warmup", "steady"],
    num_steps: int,
    stamped: bool = False,
) -> MeasuredWindow:
    """One window of `num_steps` steps; collective.

    `stamped` adds the seconds of each step by the host's clock: where no rank waits for another, as over `none`, they
    show which rank was late when.
    """
    stamps = [0.0] * (num_steps * stamped)  # nothing is allocated inside
    control.barrier()  # outside the interval
    start = time.perf_counter()
    if stamped:
        for step in range(num_steps):
            trainer.step()
            stamps[step] = time.perf_counter()
    else:
        for _ in range(num_steps):
            trainer.step()
    trainer.synchronize()  # a GPU is not done when Python is
    seconds = time.perf_counter() - start
    each = [end - begin for begin, end in pairwise([start, *stamps])] if stamped else None
    return MeasuredWindow(phase=phase, num_steps=num_steps, start=start, seconds=seconds, step_seconds=each)


def time_fixed_window(
    trainer: Counting,
    control: CommunicatorControl,
    *,
    phase: Literal["warmup", "steady"],
    seconds: float,
) -> MeasuredWindow:
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
    applied = trainer.num_applied() - before
    return MeasuredWindow(phase=phase, num_steps=num_steps, start=start, seconds=taken, num_applied=applied)


def measure(
    trainer: Steppable,
    control: CommunicatorControl,
    rules: Rules,
    *,
    deadline: float,
    emit: Emit,
    budgeted: bool = False,
    stamped: bool = False,
    counting: Counting | None = None,
    passed: Callable[[int], None] | None = None,
    audit: ReplayAudit | None = None,
    round_steps: int = 1,
    carries: bool = False,
) -> bool:
    """Warm up, then measure as few windows as the rules allow; collective.

    Where the time is `budgeted` there are as many as end before `deadline` on this rank's monotonic clock. Windows have
    a fixed number of steps, or, of the trainer `counting`, whose ranks do not step together, the time that so many
    would take. All ranks run the same windows, because every decision is taken on the maximum over ranks. `passed` is
    called with the steps since its last call, and an `audit` looks at the trainer, between windows. Where ranks
    exchange once in `round_steps`, each window has whole rounds, so that all have as many exchanges per step. Windows
    of a trainer that `carries` work into the next step have CARRIED_STEPS or more, unless the rules' largest number
    forbids it. Returns whether the warm-up met the steady-state test.
    """
    num_warm_up, steady, world_step = _warm_up(trainer, control, rules, deadline=deadline, emit=emit)
    if passed:
        passed(num_warm_up)
    if audit:
        audit.count(num_warm_up)
    steps, wanted = _sizes(rules, world_step, round_steps=round_steps, least=CARRIED_STEPS if carries else 1)
    if budgeted:
        # The time left differs from rank to rank; the least of them decides, as -max(-left).
        left = -control.maximum(time.perf_counter() - deadline)
        fitting = min(int(left / (steps * world_step)), MOST_WINDOWS) if left > 0 else 0
        wanted = max(wanted, min(fitting, (rules.max_steps - rules.longest_warm_up) // steps))
    next_window = functools.partial(
        time_window, trainer, control, phase="steady", num_steps=steps, stamped=stamped
    )
    if counting:
        next_window = functools.partial(
            time_fixed_window, counting, control, phase="steady", seconds=steps * world_step
        )
    if audit:
        audit.begin(wanted, num_steps=0 if counting else steps)
    for window in range(wanted):
        if audit:
            audit.before(window)
        taken = next_window()
        emit(taken)
        if passed:
            passed(steps)
        if audit:
            audit.count(taken.num_steps)
            audit.after(window)
    if audit:
        audit.end()
    return steady


def _sizes(rules: Rules, world_step: float, *, round_steps: int, least: int) -> tuple[int, int]:
    """Steps of a window, and the fewest windows, where a step takes that many seconds."""
    steps = max(1, math.ceil(rules.min_window_seconds / max(world_step, SHORTEST_STEP)), least)
    steps = math.ceil(steps / round_steps) * round_steps
    num_windows = max(rules.min_windows, math.ceil(rules.min_steps / steps))
    most = (rules.max_steps - rules.longest_warm_up) // num_windows
    return min(steps, max(round_steps, most // round_steps * round_steps)), num_windows


def _warm_up(
    trainer: Steppable,
    control: CommunicatorControl,
    rules: Rules,
    *,
    deadline: float,
    emit: Emit,
) -> tuple[int, bool, float]:
    """Steps one by one until their time is steady; returns (how many, whether it became so, world seconds per step).

    The test compares the medians over the last STEADY_GROUP steps and over those before: steady if they
    differ by at most STEADY_CHANGE. Half of the time until the deadline is the most that warm-up may take.
    """
    begin = time.perf_counter()
    world: list[float] = []
    fewest = max(rules.warmup_steps, 2 * STEADY_GROUP)
    while True:
        window = time_window(trainer, control, phase="warmup", num_steps=1)
        emit(window)
        world.append(control.maximum(window.seconds))
        if len(world) < fewest:
            continue
        last = statistics.median(world[-STEADY_GROUP:])
        before = statistics.median(world[-2 * STEADY_GROUP : -STEADY_GROUP])
        steady = abs(last / before - 1) <= STEADY_CHANGE
        late = control.maximum(float(time.perf_counter() > begin + (deadline - begin) / 2)) > 0
        if steady or late or len(world) >= rules.longest_warm_up:
            return len(world), steady, last
