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
from typing import Annotated, Any, Literal, overload

import msgspec
import numpy as np
from numpy.typing import NDArray
from pydantic import Field, TypeAdapter, model_validator

from dlscale.base.definitions import Frozen, where_given

Numbers = NDArray[np.float64]
MOST = 2**53  # integers up to here are exact in arrays
Start = Annotated[float, Field(gt=-MOST, lt=MOST)]  # seconds on some clock
Seconds = Annotated[float, Field(ge=0, lt=MOST)]
Count = Annotated[int, Field(ge=1, lt=MOST)]
CountFromZero = Annotated[int, Field(ge=0, lt=MOST)]


class Window(Frozen):
    """K steps between two stamps on every rank; the barrier before the first stamp is not inside.

    `start_seconds` counts on a machine's monotonic clock from the first window's earliest start among the ranks there.
    Clocks of two machines count from their own boots, so only ranks of one boot have a start skew, maximum - minimum
    over them (`Record.clocks`). If ranks do not step together, a window has a fixed time instead:
    `num_steps` is then the maximum over ranks, and `num_applied` is what counts.
    """

    phase: Literal["warmup", "steady"]
    num_steps: Count
    num_applied: CountFromZero | None = None  # local batches of all ranks that the weights took up
    rank_steps: list[CountFromZero] | None = None  # [P]
    start_seconds: list[Start]  # [P]
    seconds: list[Seconds]  # [P]
    step_seconds: list[list[Seconds]] | None = None  # [P][num_steps], if the control needs them
    bucket_seconds: list[list[Seconds]] | None = None  # [P][buckets], over all steps; of control `exchange`
    # Share of the time of the ranks' cores that other programs took, on the node where it was most; None: unknown.
    # It is counted in ticks, so that one of a short window is coarse, and may be below 0.
    foreign_cpu: float | None = None
    # Over all ranks, where the batch grows; None: as many as the steps have.
    num_samples: Count | None = where_given(None)

    @model_validator(mode="after")
    def _of_equal_lengths(self) -> Window:
        """What findings look up by rank and step is there for all of them."""
        num_ranks = len(self.seconds)
        for name in ("start_seconds", "rank_steps", "step_seconds", "bucket_seconds"):
            each = getattr(self, name)
            if each is not None and len(each) != num_ranks:
                raise ValueError(f"{name} are those of {len(each)} ranks, and seconds of {num_ranks}")
        for name in ("step_seconds", "bucket_seconds"):
            if len(set(map(len, getattr(self, name) or ()))) > 1:
                raise ValueError(f"{name} are not as many on all ranks")
        return self


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

    @property
    def foreign_share(self) -> float | None:
        """The share of CPU time that other programs took over all steady windows; None if it is unknown."""
        if self.foreign_cpu is None:
            return None
        counts = self.steady & ~np.isnan(self.foreign_cpu)
        if not counts.any():
            return None
        seconds = self.world[counts]
        return max(0.0, float((seconds * self.foreign_cpu[counts]).sum() / seconds.sum()))

    def where(self, which: NDArray[np.bool_]) -> WindowArrays:
        """Those windows; no copy if they follow each other, as those after a warm-up do."""
        places = np.flatnonzero(which)
        if len(places) == len(which):
            return self
        first, end = (int(places[0]), int(places[-1]) + 1) if len(places) else (0, 0)
        chosen = slice(first, end) if len(places) == end - first else which
        columns: dict[str, Any] = {}
        for name in self.__slots__:
            column = getattr(self, name)
            columns[name] = None if column is None else column[chosen]
        return WindowArrays(**columns)


def arrays_of(windows: Sequence[Window]) -> WindowArrays:
    """The columns of windows."""
    if isinstance(windows, Windows):
        return windows.arrays
    return _arrays({name: [getattr(window, name) for window in windows] for name in _COLUMNS})


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


class Windows(Sequence[Window]):
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
    """The windows in `text`, a JSON list; None if one of them is unusual.

    It may still be valid, and only pydantic can say why it is not.
    """
    try:
        rows = _usual_windows().decode(text)
        if not rows:
            return None
        columns = zip(*map(msgspec.structs.astuple, rows), strict=True)
        arrays = _arrays(dict(zip(_UsualWindow.__struct_fields__, columns, strict=False)))
    except (ValueError, OverflowError):
        return None
    if arrays.seconds.shape != arrays.start_seconds.shape:
        return None
    # NaN is below nothing.
    starts, seconds = arrays.start_seconds, arrays.seconds
    possible = (np.abs(starts) < MOST).all() and ((seconds >= 0) & (seconds < MOST)).all()
    return Windows(text, arrays) if possible else None


class _UsualWindow(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    """A `Window` without what only some controls have, read in a third of pydantic's time."""

    phase: Literal["warmup", "steady"]
    num_steps: Annotated[int, msgspec.Meta(ge=1, lt=MOST)]
    start_seconds: list[float]
    seconds: list[float]
    num_applied: Annotated[int, msgspec.Meta(ge=0, lt=MOST)] | None = None
    rank_steps: None = None
    step_seconds: None = None
    bucket_seconds: None = None
    foreign_cpu: float | None = None
    num_samples: Annotated[int, msgspec.Meta(ge=1, lt=MOST)] | None = None


_COLUMNS = ("phase", *(field.name for field in fields(WindowArrays) if field.name != "steady"))


@cache
def _usual_windows() -> msgspec.json.Decoder[list[_UsualWindow]]:
    return msgspec.json.Decoder(list[_UsualWindow])


@cache
def _adapter() -> TypeAdapter[list[Window]]:
    return TypeAdapter(list[Window])
