"""Carrier `ring`: the native ring, over a ring of the replica's own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace
from itertools import accumulate
from typing import Any

from mpi4py import MPI
from numpy.typing import NDArray

from dlscale.collectives.neighbours.carried import Parts
from dlscale.collectives.ring import Settings, join


class RingCarrier:
    """The ranks of one replica (`Carrier`). A rank that is gone raises RuntimeError, which names it."""

    takes_tensors = False

    def __init__(self, control: MPI.Intracomm, split: int, settings: Settings) -> None:
        rank = control.Get_rank()
        self._communicator = control.Split(rank // split, rank)
        self._ring = join(self._communicator, settings)
        self.index: int = self._ring.rank
        self._closed = False

    def exchange(self, sends: Parts, receives: Parts) -> None:
        """One operation of all ranks: messages to and from any of them."""
        self._ring.exchange("halo", sends, receives)

    def sum(self, values: NDArray[Any]) -> None:
        self._ring.allreduce(values)

    def gather(self, own: NDArray[Any], whole: NDArray[Any], counts: Sequence[int]) -> None:
        """One exchange: everybody's part for everybody, oneself included."""
        ends = list(accumulate(counts))
        parts = [whole[end - count : end] for end, count in zip(ends, counts, strict=True)]
        self._ring.exchange(
            "gather rows", [(rank, own) for rank in range(len(counts))], list(enumerate(parts))
        )

    def settings(self) -> dict[str, str | int | float | bool]:
        return self._ring.settings()

    def close(self) -> None:
        """Leave the ring, and free the communicator that it was joined over."""
        if not self._closed:
            self._ring.close()
            if not MPI.Is_finalized():
                self._communicator.Free()
        self._closed = True


def connect(*, control: MPI.Intracomm, split: int, options: dict[str, Any]) -> RingCarrier:
    """The replica of this rank, over a ring with the settings among `options`; collective.

    Rows travel as they are, however gradients do.
    """
    names = {field.name for field in fields(Settings)}
    settings = Settings(**{name: value for name, value in options.items() if name in names})
    return RingCarrier(control, split, replace(settings, wire="float32"))
