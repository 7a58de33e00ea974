"""The windows of a record as columns of numbers: a study may have millions of them."""

from __future__ import annotations

from typing import Annotated, Any, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, PlainSerializer, PlainValidator, model_validator

from dlscale.base.definitions import Frozen

Numbers = NDArray[np.float64]
MOST = 2**53  # integers up to here are exact in arrays
Start = Annotated[float, Field(gt=-MOST, lt=MOST)]  # seconds on some clock
Seconds = Annotated[float, Field(ge=0, lt=MOST)]
Whole = Annotated[int, Field(gt=-MOST, lt=MOST)]
Count = Annotated[int, Field(ge=1, lt=MOST)]
CountFromZero = Annotated[int, Field(ge=0, lt=MOST)]


def _array(lists: Any) -> Numbers:
    """The lists as an array, of which their last index is the first; null is NaN."""
    try:
        return np.moveaxis(np.array(lists, dtype=np.float64), -1, 0)
    except (TypeError, ValueError, OverflowError):
        raise ValueError("lists of numbers are expected, as many for every rank") from None


Column = Annotated[
    Numbers, PlainValidator(_array), PlainSerializer(lambda column: np.moveaxis(column, 0, -1).tolist())
]
_IF_MEASURED = Field(default=None, exclude_if=lambda column: column is None)  # written only with numbers
_SOME = ("num_applied", "num_samples", "foreign_cpu")  # not known of every window
_LEAST = {"num_steps": 1.0, "start_seconds": -MOST, "foreign_cpu": -MOST}  # of others 0


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
    num_steps: Column  # [W]
    start_seconds: Column
    seconds: Column
    num_applied: Column | None = _IF_MEASURED  # [W] local batches of all ranks that the weights took up
    num_samples: Column | None = _IF_MEASURED  # [W] over all ranks; of records with backup workers
    # [W] Share of the time of the ranks' cores that other programs took, on the node where it was most. It is counted
    # in ticks, so that one of a short window is coarse, and may be below 0.
    foreign_cpu: Column | None = _IF_MEASURED
    rank_steps: Column | None = _IF_MEASURED  # each rank's own
    # Of windows after the warm-up, if the control needs them: [steps, P] of all their steps, [W, P, buckets].
    step_seconds: Column | None = _IF_MEASURED
    bucket_seconds: Column | None = _IF_MEASURED

    @model_validator(mode="after")
    def _is_whole(self) -> Self:
        """What findings look up by window, rank and step is there for all of them, and numbers are possible."""
        num_windows, num_ranks = len(self.num_steps), self.seconds.shape[-1]
        after = num_windows - self.num_warm_up
        if after < 0:
            raise ValueError(f"num_warm_up is {self.num_warm_up}, of {num_windows} windows")
        shapes: dict[str, tuple[float, ...]] = {
            **dict.fromkeys(("start_seconds", "seconds", "rank_steps"), (num_windows, num_ranks)),
            "step_seconds": (self.num_steps[self.num_warm_up :].sum(), num_ranks),
        }
        if self.bucket_seconds is not None:
            shapes["bucket_seconds"] = (after, num_ranks, self.bucket_seconds.shape[-1])
        for name, column in self:
            if not isinstance(column, np.ndarray):
                continue
            shape, least = shapes.get(name, (num_windows,)), _LEAST.get(name, 0.0)
            if column.shape != shape:
                found, wanted = (
                    " x ".join(f"{length:g}" for length in each) for each in (column.shape, shape)
                )
                raise ValueError(f"{name} are {found}, not {wanted}")
            known = column[~np.isnan(column)] if name in _SOME else column
            if not ((known >= least) & (known < MOST)).all():
                raise ValueError(f"{name} has a number that is missing, below {least:g} or too large")
        return self

    def __len__(self) -> int:
        return len(self.num_steps)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Windows) and self.model_dump_json() == other.model_dump_json()

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
        cut = {
            name: column[self.num_warm_up :]
            for name, column in self
            if isinstance(column, np.ndarray) and name not in ("step_seconds", "bucket_seconds")
        }
        return self.model_copy(update={"num_warm_up": 0, **cut})
