"""Atomic and durable writing of files."""

from __future__ import annotations

import os
import secrets
import tempfile
from pathlib import Path

from dlscale.base.errors import UsageError

ANOTHER_FOLDER = "free space or choose another folder with --results, then run the same command again"


def write_atomically(
    path: Path, content: str | bytes, *, mode: int = 0o600, remedy: str = ANOTHER_FOLDER, durable: bool = True
) -> None:
    """Write `content` to `path` atomically: temporary file next to it, fsync, rename. Private to the user by default.

    `durable=False` does not wait for the disk: for files that are worthless after a crash of the machine.
    Raises UsageError, which ends with `remedy`, if the disk is full or the folder is not writable.
    """
    # In a shared folder, others could put a link where a name can be guessed.
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}.tmp")
    try:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
        with os.fdopen(descriptor, "wb") as file:
            file.write(content.encode() if isinstance(content, str) else content)
            file.flush()
            if durable:
                os.fsync(file.fileno())
        temporary.rename(path)
        if not durable:
            return
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise UsageError(f"cannot write {path}: {error.strerror}; earlier files are kept: {remedy}") from None


def make_folder(path: Path) -> None:
    """Create the folder `path`. Raises UsageError if that fails or it is not writable."""
    try:
        path.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path):
            pass
    except OSError as error:
        raise UsageError(
            f"results folder {path} is not writable: {error.strerror}; choose another one with --results"
        ) from None
