"""The windows of a record as columns of numbers: a study may have millions of them."""

from __future__ import annotations

import math
from typing import Annotated, Any, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, GetPydanticSchema, PlainSerializer, model_validator
from pydantic_core import core_schema

from dlscale.base.definitions import Frozen

Numbers = NDArray[np.float64]
MOST = 2**53  # integers up to here are exact in arrays
Start = Annotated[float, Field(gt=-MOST, lt=MOST)]  # seconds on some clock
Seconds = Annotated[float, Field(ge=0, lt=MOST)]
Count = Annotated[int, Field(ge=1, lt=MOST)]
CountFromZero = Annotated[int, Field(ge=0, lt=MOST)]


def _array_of(lists: Any) -> GetPydanticSchema:
    """How a field is checked as those lists and kept as an array, of which the lists' last index is the first."""

    def array(checked: list[Any]) -> Numbers:
        try:
            return np.moveaxis(np.array(checked, dtype=np.float64), -1, 0)
        except ValueError:
            raise ValueError("not equally many for every rank") from None

    return GetPydanticSchema(
        lambda _, handler: core_schema.no_info_after_validator_function(array, handler.generate_schema(lists))
    )


def _plain(kind: type[Any] = float) -> PlainSerializer:
    """How the array is written: as it was read, NaN as null."""

    def lists(column: Any) -> Any:
        if isinstance(column, list):
            return [lists(each) for each in column]
        return None if math.isnan(column) else kind(column)

    return PlainSerializer(lambda array: lists(np.moveaxis(array, 0, -1).tolist()))


_STARTS = Annotated[Numbers, _array_of(list[list[Start]]), _plain()]
_SECONDS = Annotated[Numbers, _array_of(list[list[Seconds]]), _plain()]
_COUNTS = Annotated[Numbers, _array_of(list[Count]), _plain(int)]
_RANK_COUNTS = Annotated[Numbers, _array_of(list[list[CountFromZero]]), _plain(int)]
_KNOWN_COUNTS = Annotated[Numbers, _array_of(list[CountFromZero | None]), _plain(int)]
_SHARES = Annotated[Numbers, _array_of(list[float | None]), _plain()]
_BUCKETS = Annotated[Numbers, _array_of(list[list[list[Seconds]]]), _plain()]
_IF_MEASURED = Field(exclude_if=lambda column: column is None)  # written only where it has numbers


class Windows(Frozen):
    """W windows on P ranks, those of the warm-up first: K steps between two stamps on every rank.

    The barrier before the first stamp is not inside. If ranks do not step together, a window has a fixed time instead:
    `num_steps` is then the maximum over ranks, and `num_applied` is what counts. A missing number is NaN, a column
    without any None. The file has a list for each rank, here they are [W, P].

    `start_seconds` counts on a machine's monotonic clock from the first window's earliest start among the ranks there.
    Clocks of two machines count from their own boots, so only ranks of one boot have a start skew, maximum - minimum
    over them (`Record.clocks`).
    """

    num_warm_up: CountFromZero
    num_steps: _COUNTS  # [W]
    start_seconds: _STARTS
    seconds: _SECONDS
    # [W] local batches of all ranks that the weights took up
    num_applied: Annotated[_KNOWN_COUNTS | None, _IF_MEASURED] = None
    # [W] over all ranks, where the steps' are not as many as usual
    num_samples: Annotated[_KNOWN_COUNTS | None, _IF_MEASURED] = None
    # [W] Share of the time of the ranks' cores that other programs took, on the node where it was most. It is counted
    # in ticks, so that one of a short window is coarse, and may be below 0.
    foreign_cpu: Annotated[_SHARES | None, _IF_MEASURED] = None
    rank_steps: Annotated[_RANK_COUNTS | None, _IF_MEASURED] = None  # each rank's own
    # Of windows after the warm-up, if the control needs them: [steps, P] of all their steps, [W, buckets, P].
    step_seconds: Annotated[_SECONDS | None, _IF_MEASURED] = None
    bucket_seconds: Annotated[_BUCKETS | None, _IF_MEASURED] = None

    @model_validator(mode="after")
    def _has_equal_lengths(self) -> Self:
        """What findings look up by window, rank and step is there for all of them."""
        num_windows, num_ranks = len(self.num_steps), self.seconds.shape[-1]
        after = num_windows - self.num_warm_up
        if after < 0:
            raise ValueError(f"num_warm_up is {self.num_warm_up}, of {num_windows} windows")
        shapes: dict[str, tuple[int, ...]] = {
            **dict.fromkeys(("start_seconds", "seconds", "rank_steps"), (num_windows, num_ranks)),
            "step_seconds": (int(self.num_steps[self.num_warm_up :].sum()), num_ranks),
            "bucket_seconds": (after, num_ranks),
        }
        for name, column in self._columns().items():
            shape = shapes.get(name, (num_windows,))
            if column.shape[: len(shape)] != shape:
                raise ValueError(
                    f"{name} are {' x '.join(map(str, column.shape))}, not {' x '.join(map(str, shape))}"
                )
        return self

    def _columns(self) -> dict[str, Numbers]:
        """Those that were measured, by name."""
        return {name: column for name, column in self if isinstance(column, np.ndarray)}

    def __len__(self) -> int:
        return len(self.num_steps)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Windows) and self.model_dump() == other.model_dump()

    @property
    def steady(self) -> NDArray[np.bool_]:
        """Whether each came after the warm-up, [W]."""
        return np.arange(len(self)) >= self.num_warm_up

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

    def after_warm_up(self) -> Windows:
        """Those windows, without a copy of their numbers."""
        columns = self._columns().items()
        cut = {
            name: column[self.num_warm_up :]
            for name, column in columns
            if not name.startswith(("step_", "bucket_"))
        }
        return self.model_copy(update={"num_warm_up": 0, **cut})
