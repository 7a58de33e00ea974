"""Whose clock says how long each step of a window took. None of them makes a step wait."""

from __future__ import annotations

import time
from collections.abc import Callable
from itertools import pairwise
from typing import Any, Protocol

from dlscale.benchmarks.record import Cell
from dlscale.models.gpus import gpu_module

MILLISECONDS_PER_SECOND = 1e3


class Stamper(Protocol):
    """Takes the stamps of one window after the other."""

    def begin(self, num_steps: int) -> None:
        """Make room for a window of that many steps; outside the interval."""
        ...

    def stamp(self) -> None:
        """Now: at the window's start, then after each step."""
        ...

    def seconds(self) -> list[float]:
        """Of each step of the window, after the trainer was synchronised."""
        ...


class HostClock:
    """The host's monotonic clock: right where a step is done when it returns (`Stamper`)."""

    def __init__(self) -> None:
        self._stamps: list[float] = []
        self._next = 0

    def begin(self, num_steps: int) -> None:
        """Make room: nothing is allocated between the stamps."""
        self._stamps, self._next = [0.0] * (num_steps + 1), 0

    def stamp(self) -> None:
        """Read the clock."""
        self._stamps[self._next] = time.perf_counter()
        self._next += 1

    def seconds(self) -> list[float]:
        """Differences of the stamps."""
        return [end - begin for begin, end in pairwise(self._stamps)]


class Event(Protocol):
    """A `torch.cuda.Event` with timing."""

    def record(self) -> None: ...  # noqa: D102
    def elapsed_time(self, end_event: Any) -> float: ...  # noqa: D102 - milliseconds


class DeviceEvents:
    """A GPU's own clock (`Stamper`).

    The host runs ahead of a GPU: its stamps would say when a step's kernels were launched, not when they ended. So a
    mark is put among the work of the current stream, and its time is asked for when the window is over.
    """

    def __init__(self, make_event: Callable[[], Event]) -> None:
        self._make_event = make_event
        self._events: list[Event] = []
        self._next = 0

    def begin(self, num_steps: int) -> None:
        """Make what events are missing; those of earlier windows serve again."""
        self._events += [self._make_event() for _ in range(num_steps + 1 - len(self._events))]
        self._next = 0

    def stamp(self) -> None:
        """Mark where the GPU's work stands."""
        self._events[self._next].record()
        self._next += 1

    def seconds(self) -> list[float]:
        """Times between the marks, all of which were reached."""
        reached = self._events[: self._next]
        return [begin.elapsed_time(end) / MILLISECONDS_PER_SECOND for begin, end in pairwise(reached)]


def stamper_for(cell: Cell, *, exchanges: bool) -> Stamper | None:
    """What stamps the steps of a cell over a backend that `exchanges` gradients, or not; None: nothing does.

    Only where no rank waits for another, in training over `none`, do stamps show which rank was late when. TensorFlow
    has no events in Python, and waiting for the GPU after every step would slow what all efficiencies are relative to:
    there a window on a GPU has no stamps.
    """
    if exchanges or cell.control != "train":
        return None
    if cell.device == "cpu":
        return HostClock()
    if cell.framework != "torch":
        return None
    gpus: Any = gpu_module("torch")
    return DeviceEvents(gpus.event)
