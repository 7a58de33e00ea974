"""CIFAR-10 in its published binary format.

A file is a row of records of 3073 bytes: the label 0 .. 9, then 32x32 pixels of red, of green, of blue, each row
by row. A folder of five such files, `data_batch_1.bin` ..., is the training set.

Source: the binary version in A. Krizhevsky, https://www.cs.toronto.edu/~kriz/cifar.html.
"""

from __future__ import annotations

from fnmatch import fnmatch
from pathlib import Path

import numpy as np

from dlscale.base.errors import UsageError
from dlscale.models.images.store import Encoded, OpenFiles, bad_sample, reason
from dlscale.models.samples import part_files

TRAINING_FILES = "data_batch_*.bin"
_SHAPE = (3, 32, 32)  # (C, H, W)
_RECORD_BYTES = 1 + 3 * 32 * 32


class CifarStore:
    """CIFAR-10's records in the order of the files' names.

    Raises UsageError if a file is no row of records, unless bad samples are skipped: then a last part of a record
    is a sample that cannot be read.
    """

    format = "CIFAR-10"

    def __init__(self, path: Path, *, skip_bad: bool = False) -> None:
        self.path = path
        self.num_classes: int | None = 10
        self._files = OpenFiles()
        self._paths = _training_files(path, skip_bad=skip_bad) if path.is_dir() else [path]
        self._ends = np.cumsum([_num_records(file, skip_bad=skip_bad) for file in self._paths])

    def __len__(self) -> int:
        return int(self._ends[-1])

    def encoded(self, index: int) -> Encoded:
        """Sample `index`, pixels as an array (32, 32, 3). Raises BadSample if it is cut off."""
        place = int(np.searchsorted(self._ends, index, side="right"))
        record = index - int(self._ends[place - 1] if place else 0)
        offset = record * _RECORD_BYTES
        where = f"{self._paths[place]}: record {record} at byte {offset}"
        try:
            data = self._files.read(self._paths[place], offset, num_bytes=_RECORD_BYTES)
        except OSError as error:
            raise bad_sample(where, reason(error), index=index) from None
        if len(data) < _RECORD_BYTES:
            raise bad_sample(where, f"cut off after {len(data)} of {_RECORD_BYTES} bytes", index=index)
        pixels = np.frombuffer(data, dtype=np.uint8, offset=1).reshape(_SHAPE).transpose(1, 2, 0)
        return Encoded(index=index, data=pixels, label=data[0], where=where)

    def close(self) -> None:
        self._files.close()


def _training_files(path: Path, *, skip_bad: bool) -> list[Path]:
    files = part_files(path, lambda name: fnmatch(name, TRAINING_FILES))
    missing = sorted(
        {TRAINING_FILES.replace("*", str(number)) for number in range(1, 6)} - {file.name for file in files}
    )
    if missing and not skip_bad:
        raise UsageError(
            f"{path}: of CIFAR-10's 5 training files it lacks {', '.join(missing)}; copy the rest, name one file, or "
            "leave out what is missing (skip_bad)"
        )
    return files


def _num_records(path: Path, *, skip_bad: bool) -> int:
    """Records of a file, with a last one that is cut off if such are skipped."""
    num_bytes = path.stat().st_size
    whole, rest = divmod(num_bytes, _RECORD_BYTES)
    if (rest or not whole) and not skip_bad:
        raise UsageError(
            f"{path}: CIFAR-10 needs a multiple of {_RECORD_BYTES} bytes, found {num_bytes}: cut off in record "
            f"{whole} at byte {whole * _RECORD_BYTES}; copy it again"
        )
    return whole + (rest > 0)
