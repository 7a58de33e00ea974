"""What ranks and launchers leave on a machine when they are killed: shared memory, temporary files.

MPI libraries remove their segments of /dev/shm when they are finalised, MPICH's launcher its description of the node
when it ends. Killed, they leave them, and some kills later a container's /dev/shm is full. Each rank notes the files
in the launch's spool once MPI has started, and the supervisor removes those that are left when all have ended.
"""

from __future__ import annotations

import os
import stat
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from dlscale.benchmarks.rank.lifeline import boot_id

SHARED_MEMORY = "/dev/shm"  # noqa: S108 - not for files of ours
LAUNCHER_FILES = "hydra_"  # how names of MPICH's launcher begin
SECONDS = 2.0  # that processes which were killed may take to be gone


def note_files(folder: Path) -> None:
    """On a rank, after MPI has started: note in `folder` what would be left if this rank or its launcher were killed.

    Another library's files need no note: what is removed while it is in use leaves nothing behind.
    """
    files = [*_mapped("self"), *_opened(str(os.getppid()))]
    path = folder / f"files-{boot_id()}-{os.getpid()}"
    path.write_text("".join(f"{file}\n" for file in files), encoding="utf-8", errors="surrogateescape")


def sweep_files(folder: Path) -> None:
    """On the supervisor, after the launch has ended: remove what its ranks on this machine noted and left.

    Only regular files of this user that no living process has mapped or open.
    """
    noted = {
        line
        for path in folder.glob(f"files-{boot_id()}-*")
        for line in path.read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    }
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


def _may_be_removed(file: str) -> bool:
    folder, name = os.path.split(file)
    if folder != SHARED_MEMORY and not (
        name.startswith(LAUNCHER_FILES) and folder in ("/tmp", tempfile.gettempdir())  # noqa: S108 - Hydra's choice
    ):
        return False
    try:
        status = os.lstat(file)
    except OSError:
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
