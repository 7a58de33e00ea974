"""The windows of a record as arrays, and as compact as the file that they were read from.

A study may have millions of windows, and a Python object for each is slow to make and large to keep. So a record that
was read from a file keeps the text of its windows beside their arrays, and makes objects of them only on demand.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cache
from itertools import chain
from types import NoneType
from typing import TYPE_CHECKING, Any, overload

import numpy as np
from numpy.typing import NDArray
from pydantic import TypeAdapter
from pydantic_core import from_json

if TYPE_CHECKING:
    from dlscale.benchmarks.records.record import Window

Numbers = NDArray[np.float64]
MOST = 2.0**53  # integers up to here are exact in arrays


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowArrays:
    """Columns of W windows on P ranks. A missing value is NaN; a column without any value is None.

    The times of a window that has not those of all ranks are NaN.
    """

    steady: NDArray[np.bool_]  # [W]
    num_steps: Numbers  # [W]
    num_applied: Numbers | None  # [W]
    num_samples: Numbers | None  # [W]
    foreign_cpu: Numbers | None  # [W]
    start_seconds: Numbers  # [W, P]
    seconds: Numbers  # [W, P]

    def __len__(self) -> int:
        return len(self.steady)

    @property
    def world(self) -> Numbers:
        """Seconds of each window on its slowest rank, [W]."""
        slowest: Numbers = self.seconds.max(axis=1, initial=0.0)
        return slowest

    def where(self, which: NDArray[np.bool_]) -> WindowArrays:
        """Those windows; no copy if they follow each other, as those after a warm-up do."""
        places = np.flatnonzero(which)
        if len(places) == len(which):
            return self
        first, end = (int(places[0]), int(places[-1]) + 1) if len(places) else (0, 0)
        chosen = slice(first, end) if len(places) == end - first else which
        columns: dict[str, Any] = {}
        for field in fields(self):
            column = getattr(self, field.name)
            columns[field.name] = None if column is None else column[chosen]
        return WindowArrays(**columns)


def arrays_of(windows: Sequence[Window]) -> WindowArrays:
    """The columns of windows."""
    if isinstance(windows, Windows):
        return windows.arrays
    names = [field.name for field in fields(WindowArrays) if field.name != "steady"]
    return _arrays({name: [getattr(window, name) for window in windows] for name in ("phase", *names)})


def _arrays(columns: Mapping[str, Sequence[Any]]) -> WindowArrays:
    """The arrays of a record's windows, given by field. Raises TypeError if a time is no number."""

    def optional(name: str) -> Numbers | None:
        values = columns.get(name, ())
        return None if values.count(None) == len(values) else np.array(values, dtype=np.float64)

    return WindowArrays(
        steady=np.array([phase == "steady" for phase in columns["phase"]], dtype=np.bool_),
        num_steps=np.array(columns["num_steps"], dtype=np.float64),
        num_applied=optional("num_applied"),
        num_samples=optional("num_samples"),
        foreign_cpu=optional("foreign_cpu"),
        start_seconds=_matrix(columns["start_seconds"]),
        seconds=_matrix(columns["seconds"]),
    )


def _matrix(rows: Sequence[Sequence[float]]) -> Numbers:
    lengths = set(map(len, rows))
    longest = max(lengths, default=0)
    if len(lengths) > 1:
        rows = [row if len(row) == longest else [math.nan] * longest for row in rows]
    # Many times faster than NumPy's own reading of lists.
    flat = array("d", chain.from_iterable(rows))
    return np.frombuffer(flat, dtype=np.float64).reshape(len(rows), longest)


class Windows(Sequence["Window"]):
    """The windows of a record, kept as JSON and as arrays; each access makes new objects."""

    __slots__ = ("arrays", "text")

    def __init__(self, text: bytes, arrays: WindowArrays) -> None:
        self.text = text
        self.arrays = arrays

    def __len__(self) -> int:
        return len(self.arrays)

    @overload
    def __getitem__(self, index: int) -> Window: ...

    @overload
    def __getitem__(self, index: slice) -> list[Window]: ...

    def __getitem__(self, index: int | slice) -> Window | list[Window]:
        return _adapter().validate_json(self.text)[index]

    def __iter__(self) -> Iterator[Window]:
        return iter(_adapter().validate_json(self.text))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return repr(list(self))


def windows_json(windows: Sequence[Window]) -> bytes:
    """The windows as records have them, without shares of other programs where none is known."""
    if isinstance(windows, Windows):
        known = windows.arrays.foreign_cpu is not None
        return windows.text if known else windows.text.replace(b',"foreign_cpu":null', b"")
    known = any(window.foreign_cpu is not None for window in windows)
    return _adapter().dump_json(list(windows), exclude=None if known else {"__all__": {"foreign_cpu"}})


def parse_windows(text: bytes) -> Windows | None:
    """The windows in `text`, a JSON list; None if it is not in every respect as dlscale writes most of them.

    Then it may still be valid, and only pydantic can say why it is not.
    """
    try:
        rows = from_json(text)
        layouts = set(map(tuple, rows))
        if len(layouts) != 1 or not _is_usual(layout := layouts.pop()):
            return None
        columns = dict(zip(layout, zip(*(row.values() for row in rows), strict=True), strict=True))
        arrays = _arrays(columns) if _are_valid(columns) else None
    except (ValueError, TypeError, AttributeError, OverflowError):
        return None
    if arrays is None or arrays.seconds.shape != arrays.start_seconds.shape:
        return None
    # NaN is below nothing.
    possible = all((np.abs(times) < MOST).all() for times in (arrays.seconds, arrays.start_seconds))
    return Windows(text, arrays) if possible else None


UNUSUAL = ("rank_steps", "step_seconds", "bucket_seconds")  # of some controls only
LATER = ("foreign_cpu", "num_samples")  # the last fields, which files need not have


@cache
def _is_usual(layout: tuple[str, ...]) -> bool:
    """Whether windows have these fields, in this order."""
    from dlscale.benchmarks.records.record import Window

    known = tuple(Window.model_fields)
    return layout in (known, known[:-1], known[:-2], (*known[:-2], known[-1])) and known[-2:] == LATER


def _are_valid(columns: Mapping[str, Sequence[Any]]) -> bool:
    """Whether all values of usual windows but their times have the types and limits that `Window` asks for."""

    def whole(name: str, least: int, *others: type) -> bool:
        values = columns.get(name, ())
        known = set(values) - {None}
        return set(map(type, values)) <= {int, *others} and all(least <= value < MOST for value in known)

    return (
        set(columns["phase"]) <= {"warmup", "steady"}
        and all(columns[name].count(None) == len(columns[name]) for name in UNUSUAL)
        and whole("num_steps", 1)
        and whole("num_applied", 0, NoneType)
        and whole("num_samples", 1, NoneType)
        and set(map(type, columns.get("foreign_cpu", ()))) <= {float, NoneType}
        and all(
            set(map(type, chain.from_iterable(columns[name]))) <= {float}
            for name in ("start_seconds", "seconds")
        )
    )


@cache
def _adapter() -> TypeAdapter[list[Window]]:
    from dlscale.benchmarks.records.record import Window

    return TypeAdapter(list[Window])
