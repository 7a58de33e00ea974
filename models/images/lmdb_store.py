"""Images in an LMDB database, a folder with `data.mdb`.

Key `00000000`, `00000001`, ...: the label, 4 bytes, little-endian, signed; then the encoded image. Key `__len__`:
the number of samples, as text.
"""

from __future__ import annotations

import struct
import threading
from pathlib import Path
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

from dlscale.base.errors import UsageError
from dlscale.models.images.store import Encoded, bad_sample, reason

if TYPE_CHECKING:
    import lmdb


DATA_FILE = "data.mdb"
_LENGTH_KEY = b"__len__"
_LABEL = struct.Struct("<i")

# LMDB must not open a file twice in one process, and a training has several readers: they share the database, which
# is closed with the last of them. By device and inode, so that a file that replaced another is another.
_OPEN: WeakValueDictionary[tuple[int, int], lmdb.Environment] = WeakValueDictionary()
_OPENING = threading.Lock()


class LmdbStore:
    """An LMDB database, open for reading. Raises UsageError if it is damaged or has another layout."""

    format = "LMDB"
    num_classes: int | None = None

    def __init__(self, path: Path) -> None:
        import lmdb

        self.path = path
        file = path / DATA_FILE
        try:
            self._database: lmdb.Environment | None = _open(path)
            # A page beyond the end of the file would end the process by a signal.
            num_bytes = self._database.stat()["psize"] * (self._database.info()["last_pgno"] + 1)
            if num_bytes > file.stat().st_size:
                raise UsageError(
                    f"{file}: needs {num_bytes} bytes, found {file.stat().st_size}; copy it again"
                )
            length, num_entries = self._get(_LENGTH_KEY), self._database.stat()["entries"]
        except (lmdb.Error, OSError) as error:
            raise UsageError(f"{file}: cannot be opened as LMDB ({reason(error)}); copy it again") from None
        if length is None or not length.isdigit() or not 0 < int(length[:18]) < num_entries:
            raise UsageError(
                f"{file}: needs the keys 00000000, 00000001, ... and {_LENGTH_KEY.decode()}, their number, and has "
                f"{num_entries} entries; see docs/own-model.md, or give class folders"
            )
        self._length = int(length[:18])

    def __len__(self) -> int:
        return self._length

    def encoded(self, index: int) -> Encoded:
        """Sample `index`. Raises BadSample if it is missing or cut off."""
        import lmdb

        key = b"%08d" % index
        where = f"{self.path / DATA_FILE}: key {key.decode()}"
        try:
            value = self._get(key)
        except lmdb.Error as error:
            raise bad_sample(where, reason(error), index=index) from None
        if value is None or len(value) < _LABEL.size:
            problem = "missing" if value is None else f"{len(value)} bytes, too few for a label and an image"
            raise bad_sample(where, problem, index=index)
        return Encoded(
            index=index, data=value[_LABEL.size :], label=_LABEL.unpack_from(value)[0], where=where
        )

    def close(self) -> None:
        self._database = None

    def _get(self, key: bytes) -> bytes | None:
        if self._database is None:
            raise ValueError(f"{self.path}: read after it was closed")
        with self._database.begin() as transaction:
            return transaction.get(key)


def _open(path: Path) -> lmdb.Environment:
    """The database, open in this process once. Raises lmdb.Error, OSError."""
    import lmdb

    status = (path / DATA_FILE).stat()
    with _OPENING:
        database = _OPEN.get((status.st_dev, status.st_ino))
        if database is None:
            # Without readahead, because samples are read in random order.
            database = lmdb.open(str(path), readonly=True, lock=False, readahead=False, create=False)
            _OPEN[status.st_dev, status.st_ino] = database
    return database
