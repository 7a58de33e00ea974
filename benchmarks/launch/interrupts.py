"""Signals that stop dlscale: each takes effect, once nothing is left half done.

A handler that raises is not enough: where Python runs it inside a hook, a finaliser or a callback, the exception is
printed and dropped. So it is raised again and again, by a timer, until somebody has caught it.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import NoReturn

AGAIN_SECONDS = 0.5
LEAST_SECONDS = 1e-3  # none would stop the timer
_STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def interruptible() -> Iterator[None]:
    """Inside, a signal that stops this program is a KeyboardInterrupt: ranks are ended and records kept.

    Its argument is the signal. A batch system ends a job by SIGTERM, a closed terminal by SIGHUP. What this process was
    told to ignore it does: SIGHUP under nohup, SIGINT in the background of a shell's script.
    """
    before = _handlers()
    try:
        for number in before:
            signal.signal(number, _interrupt)
        yield
    finally:
        if before:
            caught()
        _give_back(before)


@contextmanager
def undisturbed() -> Iterator[None]:
    """Signals that stop this program take effect when the block is left: a second Ctrl-C stops no clearing up."""
    arrived: list[int] = []
    before = _handlers()
    repeated, left = 0, AGAIN_SECONDS
    try:
        for number in before:
            signal.signal(number, lambda number, _: arrived.append(number))
        if before:
            repeated, left = _disarmed()
        yield
    finally:
        _give_back(before)
        if repeated:
            _raise_again_later(repeated, left)  # not later than it was due: blocks may come all the time
        elif arrived:
            signal.raise_signal(arrived[0])


def caught() -> int:
    """Called where a KeyboardInterrupt was caught, not to be raised again; the signal that would be, or 0."""
    return _disarmed()[0]


def _disarmed() -> tuple[int, float]:
    """`caught`, and in how many seconds it would be raised."""
    again = signal.getsignal(signal.SIGALRM)
    if not isinstance(again, _Again):
        return 0, AGAIN_SECONDS
    left, _ = signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    return again.number, left


def _interrupt(number: int, _: FrameType | None) -> NoReturn:
    _raise_again_later(number)
    raise KeyboardInterrupt(number)


@dataclass(frozen=True, slots=True)
class _Again:
    """The handler of the timer: that signal's exception once more."""

    number: int

    def __call__(self, _: int, frame: FrameType | None) -> NoReturn:
        _interrupt(self.number, frame)


def _raise_again_later(number: int, seconds: float = AGAIN_SECONDS) -> None:
    signal.signal(signal.SIGALRM, _Again(number))
    signal.setitimer(signal.ITIMER_REAL, max(seconds, LEAST_SECONDS))


def _handlers() -> dict[signal.Signals, signal._HANDLER]:
    """What handles those of the signals that are not ignored; outside the main thread, where none takes effect, {}."""
    if threading.current_thread() is not threading.main_thread():
        return {}
    handlers = {number: signal.getsignal(number) for number in _STOPPING}
    return {number: handler for number, handler in handlers.items() if handler is not signal.SIG_IGN}


def _give_back(handlers: Mapping[signal.Signals, signal._HANDLER]) -> None:
    """Let these handle the signals again, all of them even if one comes meanwhile, whose handler raises."""
    try:
        for number, handler in handlers.items():
            signal.signal(number, handler)
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
