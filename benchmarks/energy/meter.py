"""Joules between two moments, from counters that begin again at 0 now and then.

Counters are read between windows only, outside of all that is timed: after each window of the warm-up, so that the last
of these readings is the first moment; then at most every `REREAD_SECONDS`, so that no counter begins again twice
unseen; and after the last window.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from dlscale.benchmarks.energy.counters import Counter, UnreadableError, pm_counters, rapl
from dlscale.benchmarks.energy.facts import Source
from dlscale.benchmarks.energy.nvml import Nvml

REREAD_SECONDS = 10.0
MOST_WATTS = 1000.0  # of one part; more than any package, memory or GPU takes
MAX_ERROR = 0.05  # of the joules, by the time that a counter stands still at either end

Clock = Callable[[], float]
Event = dict[str, Any]


class Tally:
    """One counter's joules since `begin`."""

    def __init__(self, counter: Counter) -> None:
        self._counter = counter
        self._before: list[float] = []
        self._moment = self._first = 0.0
        self._joules = 0.0
        self._reason: str | None = None

    def begin(self, moment: float) -> None:
        """From now on; what was counted before is forgotten."""
        self._joules, self._reason = 0.0, None
        self._first = self._moment = moment
        self._before = self._read()

    def add(self, moment: float) -> None:
        """Count what has come since the last reading."""
        if self._reason:
            return
        now, elapsed = self._read(), moment - self._moment
        for before, after, limit in zip(self._before, now, self._counter.ranges, strict=False):
            if limit is not None and elapsed * MOST_WATTS > limit:
                self._reason = f"unread for {elapsed:.0f} s, in which it may have begun at 0 more than once"
            elif after < before and limit is None:
                self._reason = "the counter went back"
            else:
                self._joules += after - before + (limit or 0.0) * (after < before)
        self._before, self._moment = now, moment

    def event(self) -> Event:
        """The fields of `NodeEnergy` that the reader knows."""
        seconds, period = self._moment - self._first, self._counter.period
        if not self._reason and 2 * period > MAX_ERROR * seconds:
            self._reason = (
                f"{seconds:.3g} s of windows are too short for a counter that moves every {period:g} s"
            )
        return {
            "source": self._counter.source,
            "parts": self._counter.parts,
            "joules": None if self._reason else self._joules,
            "seconds": seconds,
            "reason": self._reason,
        }

    def _read(self) -> list[float]:
        try:
            return self._counter.read()
        except UnreadableError as error:
            self._reason = str(error)
            return []


class Meter:
    """All counters of a node, for the one rank on it that reads them."""

    def __init__(
        self,
        counters: Sequence[Counter],
        missing: Sequence[tuple[Source, str]] = (),
        clock: Clock = time.monotonic,
    ) -> None:
        """`missing`: counters that there might be, and why they cannot be read."""
        self._tallies = [Tally(counter) for counter in counters]
        self._missing, self._clock = missing, clock
        self._moment = clock()

    def begin(self) -> None:
        """The windows that count begin now."""
        self._moment = self._clock()
        for tally in self._tallies:
            tally.begin(self._moment)

    def passed(self) -> None:
        """A window has ended. Reads only if that is due."""
        if self._tallies and self._clock() - self._moment >= REREAD_SECONDS:
            self._add()

    def end(self) -> list[Event]:
        """What was counted since `begin`: the fields of a `NodeEnergy` per counter, rank and node left out."""
        self._add()
        found = [tally.event() for tally in self._tallies]
        nothing = {"parts": "", "joules": None, "seconds": None}
        return found + [{"source": source, "reason": reason, **nothing} for source, reason in self._missing]

    def _add(self) -> None:
        self._moment = self._clock()
        for tally in self._tallies:
            tally.add(self._moment)


def node_meter(*, device: str, top: Path = Path("/")) -> Meter:
    """Of this node; GPUs count where ranks train on them. `top` is where /sys is."""
    makers: dict[Source, Callable[[], Counter]] = {
        "rapl": lambda: rapl(top),
        "pm_counters": lambda: pm_counters(top),
    }
    if device == "gpu":
        makers["nvml"] = Nvml
    counters, missing = [], []
    for source, make in makers.items():
        try:
            counters.append(make())
        except UnreadableError as error:
            missing.append((source, str(error)))
    return Meter(counters, missing)
