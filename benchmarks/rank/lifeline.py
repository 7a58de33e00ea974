"""Ties the ranks on a machine to their supervisor's life, whatever stands between them.

A launcher ends its ranks if it is asked to, but not while it or one of its helpers is stopped, nor if it is killed at
the wrong moment. So the supervisor holds a FIFO in the launch's spool open for writing, and each rank has it open for
reading and asks for SIGKILL as the signal of input or its end. When the supervisor is gone, for whatever reason, the
kernel itself ends the ranks, stopped ones too. No thread, no handler, and nothing to do in the timed loop.

Imports nothing heavy: ranks call it before anything can start a thread.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def hold_lifeline(folder: Path) -> Iterator[None]:
    """The supervisor's end: ranks of this machine that follow the lifeline in `folder` live until the block is left.

    On a file system without FIFOs there is none, and ranks end with their launcher only.
    """
    path = _path(folder)
    try:
        path.unlink(missing_ok=True)
        os.mkfifo(path, 0o600)
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)  # for writing alone it would wait for a reader
    except OSError:
        yield
        return
    try:
        yield
    finally:
        os.close(descriptor)


def follow_lifeline(folder: Path) -> int | None:
    """A rank's end: this process ends with whoever holds the lifeline in `folder`, at once if nobody does any more.

    The descriptor that it rests on is returned. Without effect (None) on machines other than the supervisor's, whose
    kernel does not know the FIFO's other end.
    """
    try:
        # Open until the process ends.
        descriptor = os.open(_path(folder), os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    fcntl.fcntl(descriptor, fcntl.F_SETSIG, signal.SIGKILL)
    fcntl.fcntl(descriptor, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(descriptor, fcntl.F_SETFL, os.O_ASYNC | os.O_NONBLOCK)
    try:
        os.read(descriptor, 1)
    except BlockingIOError:
        return descriptor  # nothing to read, and somebody who might write
    os.kill(os.getpid(), signal.SIGKILL)  # the supervisor went before its end could be heard of
    return None


def is_held(folder: Path) -> bool:
    """Whether somebody on this machine holds the lifeline in `folder`."""
    try:
        descriptor = os.open(_path(folder), os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        return bool(os.read(descriptor, 1))
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)


def boot_id() -> str:
    """A hash that is equal for processes on the same booted machine."""
    text = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii")
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _path(folder: Path) -> Path:
    """The FIFO's place. Another machine looks elsewhere: the folder may be shared, the kernel is not."""
    return folder / f"lifeline-{boot_id()}"
