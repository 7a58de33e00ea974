"""Writing files so that they are there whole or not at all."""

from __future__ import annotations

import os
from pathlib import Path

from dlscale.base.errors import UsageError

ANOTHER_FOLDER = "free space or choose another folder with --results, then run the same command again"


def write_atomically(
    path: Path, content: str | bytes, *, mode: int = 0o600, remedy: str = ANOTHER_FOLDER, durable: bool = True
) -> None:
    """`path` holds `content`, durably: temporary file beside it, fsync, rename. Private to the user by default.

    `durable=False` does not wait for the disk: for what is worth nothing once the machine has gone down.
    Raises UsageError, which ends with `remedy`, if the disk is full or the folder cannot be written.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
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
        raise UsageError(
            f"cannot write {path}: {error.strerror}; what was written before is kept: {remedy}"
        ) from None


def make_folder(path: Path) -> None:
    """`path` is a folder that can be written to. Raises UsageError if not."""
    try:
        path.mkdir(parents=True, exist_ok=True)
        probe = path / f".probe.{os.getpid()}"
        probe.touch(mode=0o600)
        probe.unlink()
    except OSError as error:
        raise UsageError(
            f"results folder {path} cannot be written: {error.strerror}; choose another one with --results"
        ) from None
