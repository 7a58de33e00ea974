"""Signals that stop dlscale: a Ctrl-C, a batch system's SIGTERM, a closed terminal's SIGHUP.

None of them raises an exception between two arbitrary lines, where a library may drop it or leave something half done.
What must be brought to an end runs `deferred`: there a signal is only noted, and `check`, which is called wherever
something is waited for, raises it. Anywhere else the program ends at once, since files appear whole or not at all.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType

STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
BY_SIGNAL = 128  # a shell's number of what a signal ended, less the signal: 130 for Ctrl-C
SHOW_CURSOR = b"\x1b[?25h"


class _Noted:  # of the process, as its handlers are
    """The first signal that arrived in a deferred block, and how many such blocks are open."""

    number = 0
    depth = 0


@contextmanager
def handled(last_line: str) -> Iterator[None]:
    """Inside, those signals stop the program as this module says; main thread only.

    `last_line` is printed where it ends at once.
    A signal that this process was told to ignore stays ignored: SIGHUP under nohup, SIGINT in a shell's background.
    """

    def arrived(number: int, _: FrameType | None) -> None:
        if _Noted.depth:
            _Noted.number = _Noted.number or number
        else:
            _end_at_once(last_line, number)

    before = {number: signal.getsignal(number) for number in STOPPING}
    heard = {number: handler for number, handler in before.items() if handler is not signal.SIG_IGN}
    for number in heard:
        signal.signal(number, arrived)
    try:
        yield
    finally:
        for number, handler in heard.items():
            signal.signal(number, handler)
        _Noted.number = 0


@contextmanager
def deferred() -> Iterator[None]:
    """Inside, a signal waits for the next `check`; at the latest it is raised when the outermost block is left.

    Main thread only.
    """
    _Noted.depth += 1
    try:
        yield
    finally:
        _Noted.depth -= 1
        if not _Noted.depth:
            check()


def check() -> None:
    """Raises KeyboardInterrupt, whose argument is the signal, if one has arrived."""
    if _Noted.number:
        raise KeyboardInterrupt(_Noted.number)


def _end_at_once(last_line: str, number: int) -> None:
    """End this process and the programs that it has started."""
    with suppress(Exception):  # psutil itself may be half imported now
        import psutil

        for child in psutil.Process().children(recursive=True):
            child.terminate()
    with suppress(OSError):
        os.write(2, (SHOW_CURSOR if os.isatty(2) else b"") + f"\n{last_line}\n".encode())
    os._exit(BY_SIGNAL + number)
