"""Whether the windows of a record agree with what ranks saw of them by other means: gates of whoever makes the record.

A window's steps are those that were counted beside the loop, its seconds and starts those of another clock
(`rank.witness`). All windows of a launch fit into the time that its supervisor saw it run, by a clock that no rank has
in hand. The seconds and steps of a training's evaluations are those of the windows before them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import accumulate, pairwise

from dlscale.benchmarks.records.record import Gate
from dlscale.benchmarks.records.spool import MeasuredWindow, Witnessed
from dlscale.benchmarks.records.target import Evaluation
from dlscale.benchmarks.records.windows import Window

RESOLUTION = 1e-4  # seconds; both clocks are far better
CLOCK_TOLERANCE = 1e-3  # of the seconds compared
SUM_TOLERANCE = 1e-6  # of sums of the same numbers; relative


def window_gates(windows: Sequence[Window], measured: Sequence[Sequence[MeasuredWindow]]) -> list[Gate]:
    """Gates of windows as the record has them, against `measured`, those of each rank."""
    witnesses = [[window.witnessed for window in own[: len(windows)]] for own in measured]
    wrong = sum(
        _taken(window, rank) != (seen.num_steps if seen else None)
        for rank, own in enumerate(witnesses)
        for window, seen in zip(windows, own, strict=True)
    )
    worst = max((_clock_error(windows, own, rank) for rank, own in enumerate(witnesses)), default=math.inf)
    return [
        Gate.at_most(
            0.0,
            float(wrong),
            name="window_steps",
            detail="windows whose steps are not those that were counted beside the loop, over all ranks",
        ),
        Gate.at_most(
            CLOCK_TOLERANCE,
            worst,
            name="window_clocks",
            detail="seconds and starts of windows outside of those by another clock, of the seconds",
        ),
    ]


def launch_gate(measured: Sequence[Sequence[MeasuredWindow]], *, lasted: float | None) -> Gate:
    """Gate of all windows that each rank measured in a launch, which `lasted` so many seconds if that is known."""
    if lasted is None:
        return Gate.unchecked("launch_clock", "not checked: the supervisor of the launch did not see it end")
    longest = max((math.fsum(window.seconds for window in own) for own in measured), default=0.0)
    return Gate.at_most(
        CLOCK_TOLERANCE,
        outside(longest, 0.0, lasted),
        name="launch_clock",
        detail="seconds of all windows of a rank beyond those that the supervisor saw the launch run, of them",
    )


def evaluations_gate(
    evaluations: Sequence[Evaluation], windows: Sequence[Window], *, first_step: int
) -> Gate:
    """Whether evaluations came after windows, with the training time of all of them.

    A training that was resumed at `first_step` has some from before, and their time.
    """
    steps = [*accumulate((window.num_steps for window in windows), initial=first_step)]
    seconds = [*accumulate((max(window.seconds) for window in windows), initial=0.0)]
    known = dict(zip(steps, seconds, strict=True))
    own = [evaluation for evaluation in evaluations if evaluation.step > first_step]
    before = [one.training_seconds - known.get(one.step, math.inf) for one in own]
    earlier = [one.training_seconds for one in evaluations if one.step <= first_step]
    base = max(before, default=0.0) if first_step else 0.0
    wrong = max((abs(one - base) for one in before), default=0.0)
    if base < max(earlier, default=0.0):
        wrong = math.inf
    return Gate.at_most(
        SUM_TOLERANCE,
        wrong / (seconds[-1] or 1.0),
        name="evaluation_times",
        detail="training time of evaluations against the windows before them, of all windows' seconds",
    )


def _taken(window: Window, rank: int) -> int:
    return window.rank_steps[rank] if window.rank_steps else window.num_steps


def _clock_error(windows: Sequence[Window], witnesses: Sequence[Witnessed | None], rank: int) -> float:
    """The worst of one rank: of each window, of all together, of the time from one start to the next."""
    if any(seen is None for seen in witnesses):
        return math.inf
    seen = [one for one in witnesses if one is not None]
    own = [window.seconds[rank] for window in windows]
    found = [outside(seconds, one.within, one.around) for seconds, one in zip(own, seen, strict=True)]
    found.append(
        outside(math.fsum(own), math.fsum(one.within for one in seen), math.fsum(one.around for one in seen))
    )
    starts = [window.start_seconds[rank] for window in windows]
    for (start, later), (first, last) in zip(pairwise(starts), pairwise(seen), strict=True):
        found.append(outside(later - start, last.start - first.begun, last.begun - first.start))
    return max(found, default=math.inf)


def outside(seconds: float, least: float, most: float) -> float:
    """By how much seconds are outside of limits, of the upper one."""
    beyond = max(least - seconds, seconds - most) - RESOLUTION
    if not math.isfinite(beyond):
        return math.inf
    return max(0.0, beyond) / (max(abs(most), abs(seconds)) or 1.0)
