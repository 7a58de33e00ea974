"""Atomic and durable writing of files, and reading those that somebody else put there."""

from __future__ import annotations

import errno
import fcntl
import os
import secrets
import stat
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from dlscale.base.errors import UsageError

ANOTHER_FOLDER = "free space or choose another folder with --results, then run the same command again"


def write_atomically(
    path: Path, content: str | bytes, *, mode: int = 0o600, remedy: str = ANOTHER_FOLDER
) -> None:
    """Write `content` to `path` atomically: temporary file next to it, fsync, rename. Private to the user by default.

    Raises UsageError, which ends with `remedy`, if the disk is full or the folder is not writable.
    """
    # In a shared folder, others could put a link where a name can be guessed.
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}.tmp")
    try:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
        with os.fdopen(descriptor, "wb") as file:
            file.write(content.encode() if isinstance(content, str) else content)
            file.flush()
            os.fsync(file.fileno())
        temporary.rename(path)
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
    except OSError as error:
        with suppress(OSError):  # of a read-only disk, say: the first error is the one to tell
            temporary.unlink()
        raise UsageError(f"cannot write {path}: {error.strerror}; earlier files are kept: {remedy}") from None


LARGEST_BYTES = 2**30
APPENDED = os.O_WRONLY | os.O_CREAT | os.O_APPEND


def open_regular(path: str | Path, flags: int = os.O_RDONLY, *, links: bool = False) -> int:
    """A descriptor of a regular file, private to the user where `flags` create it.

    Raises OSError for anything else, as a FIFO would be waited for and /dev/zero has no end, and for a symbolic link
    unless `links`: in a folder that others write to it may lead to any file of the user's.
    """
    # A FIFO opens without its writer; one that is to be written to fails without its reader.
    safe = os.O_NONBLOCK | os.O_CLOEXEC | (0 if links else os.O_NOFOLLOW)
    try:
        descriptor = os.open(path, flags | safe, 0o600)
    except OSError as error:
        words = {
            errno.ELOOP: "a symbolic link, which is not followed here",
            errno.ENXIO: "not a regular file",
        }
        if error.errno in words and not links:
            raise OSError(error.errno, words[error.errno], str(path)) from None
        raise
    mode = os.fstat(descriptor).st_mode
    if stat.S_ISREG(mode):
        return descriptor
    os.close(descriptor)
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    raise OSError(errno.EINVAL, "not a regular file", str(path))


def read_regular(path: str | Path, *, limit: int = LARGEST_BYTES, links: bool = False) -> bytes:
    """The content of a regular file. `links`: one that the user named, or that was installed, may be a link.

    Raises OSError as `open_regular`, and for more than `limit` bytes.
    """
    with os.fdopen(open_regular(path, links=links), "rb") as file:
        size = os.fstat(file.fileno()).st_size
        content = file.read(min(size, limit) + 1)
        while size < len(content) <= limit and (piece := file.read(1 << 16)):  # it grows, or no size is known
            content += piece
    if len(content) > limit:
        raise OSError(errno.EFBIG, f"more than {limit} bytes", str(path))
    return content


def read_end(path: Path, *, limit: int = 1 << 20) -> str:
    """The last `limit` bytes of what programs printed into a file, as text. Empty where it cannot be read."""
    try:
        with os.fdopen(open_regular(path), "rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - limit))
            return file.read(limit).decode(errors="replace")
    except OSError:
        return ""


@contextmanager
def locked(path: Path, *, held: str) -> Iterator[None]:
    """Holds the lock of that name, which ends with its process.

    Raises UsageError, `held` if another process holds it, or that the file cannot be opened.
    """
    try:
        file = os.fdopen(open_regular(path, os.O_RDWR | os.O_CREAT), "r+b")
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror}; {ANOTHER_FOLDER}") from None
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UsageError(held) from None
        yield


def make_folder(path: Path, *, option: str = "--results") -> Path:
    """Create the folder `path`, which `option` names, and return it. Raises UsageError if it cannot be written to.

    Nobody else may write to it, nor to those above it that are created, whatever the umask says.
    """
    try:
        for folder in reversed([path, *path.parents]):
            if not folder.exists():
                folder.mkdir(mode=0o755, exist_ok=True)
        with tempfile.TemporaryFile(dir=path):
            pass
    except OSError as error:
        raise UsageError(
            f"folder {path} is not writable: {error.strerror}; choose another one with {option}"
        ) from None
    return path


def refuse_links(folders: Iterable[Path]) -> None:
    """Raises UsageError for a folder that is a symbolic link: what it leads to is not ours to write or to clear."""
    for folder in folders:
        if folder.is_symlink():
            raise UsageError(
                f"{folder} is a symbolic link, which is not followed here; put a folder there, or remove the link"
            )
