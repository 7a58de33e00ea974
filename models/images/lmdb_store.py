"""Images in an LMDB database, a folder with `data.mdb`.

Key `00000000`, `00000001`, ...: the label, 4 bytes, little-endian, signed; then the encoded image. Key `__len__`:
the number of samples, as text; key `__classes__`: the names of the classes in order, one per line, empty if not
known.
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
LENGTH_KEY, CLASSES_KEY = b"__len__", b"__classes__"
LABEL = struct.Struct("<i")
_MOST_DIGITS = 18
_MOST_LOST = 1000  # samples for each that is there; beyond, it is the length that is damaged

# LMDB must not open a file twice in one process, and a training has several readers: they share the database, which
# is closed with the last of them. By device and inode, so that a file that replaced another is another.
_OPEN: WeakValueDictionary[tuple[int, int], lmdb.Environment] = WeakValueDictionary()
_OPENING = threading.Lock()


def sample_key(index: int) -> bytes:
    """The key of a sample."""
    return b"%08d" % index


class LmdbStore:
    """An LMDB database, open for reading. Raises UsageError if it is damaged or has another layout."""

    format = "LMDB"

    def __init__(self, path: Path) -> None:
        import lmdb

        self.path = path
        file = path / DATA_FILE
        remedy = "copy it again, or make it with `dlscale data convert`"
        try:
            self._database: lmdb.Environment | None = _open(path)
            # A page beyond the end of the file would end the process by a signal.
            num_bytes = self._database.stat()["psize"] * (self._database.info()["last_pgno"] + 1)
            if num_bytes > file.stat().st_size:
                raise UsageError(f"{file}: needs {num_bytes} bytes, found {file.stat().st_size}; {remedy}")
            length, names = self._get(LENGTH_KEY), self._get(CLASSES_KEY)
            num_entries = self._database.stat()["entries"]
        except (lmdb.Error, OSError) as error:
            raise UsageError(f"{file}: cannot be opened as LMDB ({reason(error)}); {remedy}") from None
        if length is None or not length.isdigit() or len(length) > _MOST_DIGITS or names is None:
            raise UsageError(
                f"{file}: needs the keys {LENGTH_KEY.decode()} (a number) and {CLASSES_KEY.decode()} as `dlscale data "
                "convert` writes them, does not have them; make it from class folders or a list with that command"
            )
        self._length = int(length)
        if num_entries > self._length + 2:
            raise UsageError(
                f"{file}: has {num_entries - 2} samples, and {LENGTH_KEY.decode()} says {self._length}; {remedy}"
            )
        if self._length > _MOST_LOST * num_entries:
            raise UsageError(f"{file}: promises {self._length} samples, has {num_entries} entries; {remedy}")
        self.classes = tuple(names.decode(errors="surrogateescape").rstrip("\n").split("\n") if names else ())
        self.num_classes: int | None = len(self.classes) or None

    def __len__(self) -> int:
        return self._length

    def encoded(self, index: int) -> Encoded:
        """Sample `index`. Raises BadSample if it is missing or cut off."""
        import lmdb

        where = f"{self.path / DATA_FILE}: key {sample_key(index).decode()}"
        try:
            value = self._get(sample_key(index))
        except lmdb.Error as error:
            raise bad_sample(where, reason(error), index=index) from None
        if value is None or len(value) < LABEL.size:
            problem = "missing" if value is None else f"{len(value)} bytes, too few for a label and an image"
            raise bad_sample(where, problem, index=index)
        return Encoded(index=index, data=value[LABEL.size :], label=LABEL.unpack_from(value)[0], where=where)

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
