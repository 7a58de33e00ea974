"""A ring on whose wires float32 travels as bfloat16: half the bytes, and what rounding takes away comes later."""

from __future__ import annotations

from numbers import Integral
from typing import Any

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from dlscale.base.errors import UsageError
from dlscale.collectives.buffers import check_buffer, check_operation
from dlscale.collectives.ring import _engine
from dlscale.collectives.ring.engine import RING_DTYPES, Ring, check_bfloat16
from dlscale.collectives.ring.settings import Settings

# Where a rank rounds: what it hands over to be added, and the sums that it owns.
PLACES = ("offers", "results")
MOST_BUCKETS = 2**63


class Bfloat16Ring(Ring):
    """A `Ring` whose sums and averages of float32 travel as bfloat16; everything else travels as it is.

    They are added in float32, in a fixed order, and exchanged directly between the ranks that hold and own them. Each
    element is rounded twice, however many ranks there are: when it is handed over to be added (on one node each rank's
    value, on several each node's sum), and when it is the result. All ranks end with the same rounded values. One rank
    alone rounds nothing. With u = 2^-8 and x the values handed over, beside float32's own rounding:

        |result - sum x| <= u |sum x| + u (1 + u) sum |x|

    With `error_feedback` of the settings each rounding keeps what it took away, in float32, and adds it to the next
    value at the same place of the same *bucket*: a buffer that means the same gradients every time. The sum of the
    results over many steps is then within one step's error of the true one. A bucket is a part of an array from
    `empty`, or any buffer that comes with a number; of others nothing is kept, because they may hold something else
    the next time.
    """

    def __init__(self, control: MPI.Intracomm, settings: Settings | None = None) -> None:
        super().__init__(control, settings)
        self._error_feedback = self._settings.error_feedback
        self._wire = _engine.Bfloat16Wire(self._engine, self._error_feedback)

    def settings(self) -> dict[str, str | int | float | bool]:
        """The settings of a ring, and how gradients travel."""
        return {**super().settings(), "wire": "bfloat16", "error_feedback": self._error_feedback}

    @property
    def c_interface(self) -> int:
        """Address of a DlscaleCollective (src/c_interface.hpp), valid as long as this object."""
        return self._wire.address

    def allreduce(
        self, buffer: NDArray[Any], op: str = "sum", *, bfloat16: bool = False, bucket: int | None = None
    ) -> None:
        """Replace `buffer` by its sum, average, min or max over ranks, in place; all ranks get the same bits.

        `bucket`: its number, if it is one; another length than the last time makes it a new one.
        """
        check_buffer(buffer, dtypes=RING_DTYPES)
        check_operation(op, buffer)
        check_bfloat16(bfloat16)
        if bucket is not None and not (isinstance(bucket, Integral) and 0 <= bucket < MOST_BUCKETS):
            raise TypeError(f"bucket is {bucket!r}; give a whole number from 0 on, or None")
        self._wire.allreduce(buffer, op, bfloat16, bucket)

    def state(self) -> dict[str, NDArray[Any]]:
        """Copies of all residuals, for this rank's checkpoint (`numpy.savez`); not during an allreduce."""
        copies: dict[str, NDArray[Any]] = {}
        for bucket, count in self._wire.buckets():
            kept = self._wire.residual(bucket, count)
            for place, residual in zip(PLACES, kept, strict=True):
                copies[f"{bucket}.{place}"] = residual.copy()
        return copies

    def load_state(self, state: dict[str, NDArray[Any]]) -> None:
        """Restore the result of `state` on the same rank, and nothing else; for the same ranks on the same nodes.

        Arrays from `empty` must be made in the same order as before. Raises UsageError if `state` is not of this kind.
        """
        buckets: dict[int, dict[str, NDArray[Any]]] = {}
        for name, kept in state.items():
            number, _, place = name.partition(".")
            if not number.isdecimal() or place not in PLACES or kept.dtype != np.float32 or kept.ndim != 1:
                raise UsageError(
                    f"{name!r} in the ring's state is no float32 residual; give the result of state()"
                )
            buckets.setdefault(int(number), {})[place] = kept
        for bucket, places in buckets.items():
            if len({kept.size for kept in places.values()}) != 1 or len(places) != len(PLACES):
                raise UsageError(
                    f"bucket {bucket} in the ring's state is incomplete; give the result of state()"
                )
        self._wire.forget()
        for bucket, places in buckets.items():
            self._wire.residual(bucket, places[PLACES[0]].size)[:] = [places[place] for place in PLACES]
