"""Wheels that were built before, kept outside of any checkout."""

from __future__ import annotations

import fcntl
import hashlib
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from dlscale.models.errors import UsageError
from dlscale.models.files import write_atomically

REMEDY = "free space, or name another folder: XDG_CACHE_HOME=..."


def folder_of(key: str) -> Path:
    """Where wheels of that key lie: ${XDG_CACHE_HOME:-~/.cache}/dlscale/wheels/<key>."""
    named = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser()
    top = named if named.is_absolute() else Path.home() / ".cache"  # as the specification says
    return top / "dlscale" / "wheels" / key


@contextmanager
def opened(key: str, *, waiting: Callable[[], None]) -> Iterator[Path]:
    """The folder of that key, ours alone; `waiting` is called if another build holds it. Raises UsageError."""
    folder = folder_of(key)
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        descriptor = os.open(folder / ".lock", os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        raise UsageError(f"cannot keep wheels in {folder}: {error.strerror}; {REMEDY}") from None
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            waiting()
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield folder
    finally:
        os.close(descriptor)


def find(folder: Path) -> Path | None:
    """The wheel that is kept there, if it is whole."""
    for wheel in sorted(folder.glob("*.whl")):
        try:
            if _note(wheel).read_text(encoding="utf-8").split()[:1] == [_digest(wheel)]:
                return wheel
        except (OSError, UnicodeDecodeError):
            continue
    return None


def keep(wheel: Path, folder: Path) -> Path:
    """Moves a new wheel of the same file system there; it counts from when its note is written."""
    kept = folder / wheel.name
    try:
        wheel.replace(kept)
    except OSError as error:
        raise UsageError(f"cannot keep {kept}: {error.strerror}; {REMEDY}") from None
    write_atomically(_note(kept), f"{_digest(kept)}  {kept.name}\n", remedy=REMEDY)
    return kept


def _note(wheel: Path) -> Path:
    """Beside the wheel, as sha256sum writes and checks it."""
    return wheel.with_name(f"{wheel.name}.sha256")


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
