"""Ties the ranks on a machine to their supervisor: they end with it, and it removes what they leave.

A launcher ends its ranks if it is asked to, but not while it or one of its helpers is stopped, nor if it is killed at
the wrong moment. So the supervisor holds a FIFO in the launch's spool open for writing, and each rank has it open for
reading and asks for SIGKILL as the signal of input or its end. When the supervisor is gone, for whatever reason, the
kernel itself ends the ranks, stopped ones too. No thread, no handler, and nothing to do in the timed loop.

MPI libraries remove their segments of /dev/shm when they are finalised, MPICH's launcher its description of the node
when it ends. Killed, they leave them, and some kills later a container's /dev/shm is full. Each rank notes the files
in the launch's spool once MPI has started, and the supervisor removes those that are left when all have ended.

    python lifeline.py [SPOOL_FOLDER]

is the guard of a launch: where the supervisor is killed, it ends what remains and removes what is left.

Imports nothing heavy, and nothing of dlscale: ranks call it before anything can start a thread.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import select
import signal
import stat
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO


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


SHARED_MEMORY = "/dev/shm"  # noqa: S108 - not for files of ours
LAUNCHER_FILES = "hydra_"  # how names of MPICH's launcher begin
LARGEST_NOTES = 1 << 20
SECONDS = 2.0  # that processes which were killed may take to be gone


def note_files(folder: Path) -> None:
    """On a rank, after MPI has started: note in `folder` what would be left if this rank or its launcher were killed.

    Another library's files need no note: what is removed while it is in use leaves nothing behind.
    """
    files = [*_mapped("self"), *_opened(str(os.getppid()))]
    path = folder / f"files-{boot_id()}-{os.getpid()}"
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as notes:
        notes.write(b"".join(os.fsencode(file) + b"\n" for file in files))


def sweep_files(folder: Path) -> None:
    """On the supervisor, after the launch has ended: remove what its ranks on this machine noted and left.

    Only regular files of this user that no living process has mapped or open.
    """
    noted: set[str] = set()
    for path in folder.glob(f"files-{boot_id()}-*"):
        with suppress(OSError), _opened_safely(path) as notes:
            noted.update(map(os.fsdecode, (notes.read(LARGEST_NOTES) or b"").splitlines()))
    left = {file for file in noted if _may_be_removed(file)}
    end = time.monotonic() + SECONDS
    while left:
        in_use = set(_in_use())
        for file in left - in_use:
            with suppress(OSError):
                os.unlink(file)
        left &= in_use
        if not left or time.monotonic() > end:
            return
        time.sleep(0.05)


def _opened_safely(path: Path) -> BinaryIO:
    """Neither through a link nor waiting for a FIFO's writer, as `base.files.open_regular`."""
    return os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb")


def _may_be_removed(file: str) -> bool:
    folder, name = os.path.split(file)
    if folder != SHARED_MEMORY and not (
        name.startswith(LAUNCHER_FILES) and folder in ("/tmp", tempfile.gettempdir())  # noqa: S108 - Hydra's choice
    ):
        return False
    try:
        status = os.lstat(file)
    except (OSError, ValueError):  # gone, or a name that no file can have
        return False
    return stat.S_ISREG(status.st_mode) and status.st_uid == os.geteuid()


def _in_use() -> Iterator[str]:
    for process in os.listdir("/proc"):
        if process.isdecimal():
            yield from _mapped(process)
            yield from _opened(process)


def _mapped(process: str) -> Iterator[str]:
    """The files of /dev/shm in a process's memory."""
    with suppress(OSError), open(f"/proc/{process}/maps", encoding="utf-8", errors="surrogateescape") as maps:
        for line in maps:
            _, mark, path = line.rstrip("\n").partition(f" {SHARED_MEMORY}/")
            if mark and not path.endswith(" (deleted)"):
                yield f"{SHARED_MEMORY}/{path}"


def _opened(process: str) -> Iterator[str]:
    """The files of MPICH's launcher that a process has open."""
    with suppress(OSError):
        for descriptor in os.listdir(f"/proc/{process}/fd"):
            with suppress(OSError):
                file = os.readlink(f"/proc/{process}/fd/{descriptor}")
                if os.path.basename(file).startswith(LAUNCHER_FILES):
                    yield file


DISMISSED = "dismissed"
GRACE_SECONDS = 3.0


def guard() -> None:
    """Wait until the starter of a process has died, and end that process with all that descends of it.

    Standard input brings its number, and at last `DISMISSED` from a starter that has ended it.
    """
    words = sys.stdin.read().split()  # until nobody is left who might write
    if words[-1:] == [DISMISSED]:
        return
    for pid in map(int, words):
        with suppress(ProcessLookupError):
            end_tree(pid)
    if sys.argv[1:] and sys.argv[1]:
        sweep_files(Path(sys.argv[1]))


def end_tree(pid: int) -> None:
    """End a process that leads a group, its group, and all that descend of it: politely, then by SIGKILL.

    A process that is stopped is continued, so that it can end politely. A launcher's helpers are in groups of their
    own, and have another parent once it has gone: they are looked for before. Raises ProcessLookupError.
    """
    first = os.pidfd_open(pid)
    tree = [first]
    for child in descendants(pid):
        with suppress(ProcessLookupError):
            tree.append(os.pidfd_open(child))
    os.killpg(pid, signal.SIGTERM)
    os.killpg(pid, signal.SIGCONT)
    _signal(tree, signal.SIGCONT)
    select.select([first], [], [], GRACE_SECONDS)
    _signal(tree, signal.SIGKILL)
    for descriptor in tree:
        os.close(descriptor)


def _signal(processes: list[int], number: signal.Signals) -> None:
    for descriptor in processes:
        with suppress(ProcessLookupError, PermissionError):
            signal.pidfd_send_signal(descriptor, number)


def descendants(pid: int) -> list[int]:
    """The processes of this machine that `pid` started, and those that they started."""
    children: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        if name.isdecimal():
            with suppress(OSError), open(f"/proc/{name}/stat", encoding="utf-8", errors="replace") as file:
                children.setdefault(int(file.read().rpartition(")")[2].split()[1]), []).append(int(name))
    found = [pid]
    for parent in found:
        found += children.get(parent, [])
    return found[1:]


if __name__ == "__main__":
    guard()
