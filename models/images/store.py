"""What all formats of image data have in common: random access to encoded images with labels."""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from dlscale.base.errors import UsageError
from dlscale.models.samples import BadSample

REMEDY = "; mend or remove it, or leave bad samples out (skip_bad)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Encoded:
    """One sample as it is stored."""

    index: int
    data: bytes | NDArray[np.uint8]  # a JPEG or PNG file, or RGB pixels (H, W, C)
    label: int  # 0 is the first class; may lie outside the classes, if the file says so
    where: str  # file and place in it, for messages


class ImageStore(Protocol):
    """One data set in one format. `len()` of it is the number of samples, bad ones included."""

    format: str
    path: Path
    num_classes: int | None  # labels are below it; None if only reading every sample would tell

    def __len__(self) -> int: ...
    def encoded(self, index: int) -> Encoded:
        """Sample `index` of 0 .. len() - 1. Raises BadSample if it cannot be read."""

    def close(self) -> None:
        """Closes its files; reading is over."""


class OpenFiles:
    """Reads pieces of many files, of which at most `limit` are kept open; not for several threads."""

    def __init__(self, limit: int = 64) -> None:
        self._limit = limit
        self._descriptors: OrderedDict[Path, int] = OrderedDict()  # last used last

    def read(self, path: Path, offset: int, *, num_bytes: int) -> bytes:
        """The bytes from `offset` on; fewer at the end of the file. Raises OSError."""
        if path in self._descriptors:
            self._descriptors.move_to_end(path)
        else:
            self._descriptors[path] = os.open(path, os.O_RDONLY)
            if len(self._descriptors) > self._limit:
                os.close(self._descriptors.popitem(last=False)[1])
        return os.pread(self._descriptors[path], num_bytes, offset)

    def close(self) -> None:
        while self._descriptors:
            os.close(self._descriptors.popitem()[1])


def bad_sample(where: str, what: str, *, index: int) -> BadSample:
    """The error for a sample that cannot be used, in the words that all formats share."""
    return BadSample(f"{where}: {what}{REMEDY}", index=index)


def reason(error: Exception) -> str:
    """The error in one line, without the name of the file, which the message names anyway."""
    text = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return " ".join(text.split()) or type(error).__name__


@contextmanager
def extra_packages(path: Path) -> Iterator[None]:
    """Tells of a package that is missing for the format of `path`. Raises UsageError."""
    try:
        yield
    except ModuleNotFoundError as error:
        raise UsageError(
            f"{path}: {error.name} is not installed here; pip install 'dlscale[images]'"
        ) from error
