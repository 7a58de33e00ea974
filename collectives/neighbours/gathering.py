"""Neighbours without a carrier: who tell all ranks of the replica everything, and who are not there at all.

The first, plain and slow, are for references, which no carrier may touch: over the control plane, or between threads
of one process. The others are for ranks that exchange nothing.
"""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import numpy as np

Allgather = Callable[[Any], list[Any]]
"""Every rank's value on every rank, in order; collective over a replica."""

T = TypeVar("T")


class GatheringNeighbours:
    """The ranks of this replica over one operation (`models.parallel.Neighbours`)."""

    takes_tensors = False

    def __init__(self, allgather: Allgather, *, index: int, split: int) -> None:
        self.allgather, self.index, self.split = allgather, index, split

    def exchange(self, up: Any, down: Any, from_up: Any, from_down: Any) -> None:
        """What the rank above sends down, and the rank below up."""
        everyone = self.allgather((up, down))
        if from_up is not None:
            from_up[...] = everyone[self.index - 1][1].reshape(from_up.shape)
        if from_down is not None:
            from_down[...] = everyone[self.index + 1][0].reshape(from_down.shape)

    def sum(self, values: Any) -> None:
        """Added in order of rank."""
        first, *others = self.allgather(values)
        total = np.array(first)
        for other in others:
            total += other
        values[...] = total

    def gather(self, own: Any, whole: Any, counts: Sequence[int]) -> None:  # noqa: ARG002
        np.concatenate(self.allgather(own), out=whole)


class AbsentNeighbours:
    """Nobody is asked: a rank computes on its rows as if the others were there (`models.parallel.Neighbours`).

    Their rows are zeros, and a sum is `split` times one's own. So a rank of backend `none` computes what one that
    exchanges does, as long and of like size, and what it learns is of no use.
    """

    def __init__(self, *, index: int, split: int, takes_tensors: bool = False) -> None:
        self.index, self.split, self.takes_tensors = index, split, takes_tensors

    def exchange(self, up: Any, down: Any, from_up: Any, from_down: Any) -> None:  # noqa: ARG002
        """Zeros from above and below."""
        for rows in (from_up, from_down):
            if rows is not None:
                rows[...] = 0

    def sum(self, values: Any) -> None:
        """As if all had the same."""
        values *= self.split

    def gather(self, own: Any, whole: Any, counts: Sequence[int]) -> None:
        """Own rows between zeros."""
        begin = sum(counts[: self.index])
        whole[...] = 0
        whole[begin : begin + counts[self.index]] = own


def over_control(control: Any, *, split: int) -> GatheringNeighbours:
    """The ranks of this replica over the control plane; collective. Without MPI all replicas hear each other."""
    rank = control.Get_rank()
    first = rank - rank % split
    if hasattr(control, "Split"):
        allgather: Allgather = control.Split(first, rank).allgather
    else:
        allgather = lambda value: control.allgather(value)[first : first + split]  # noqa: E731
    return GatheringNeighbours(allgather, index=rank - first, split=split)


def in_threads(split: int, work: Callable[[GatheringNeighbours], T]) -> list[T]:
    """What `work` gives on each of the ranks of one replica, which are threads of this process.

    What one of them raises is raised here.
    """
    barrier, values = threading.Barrier(split), [None] * split

    def run(index: int) -> T:
        def allgather(value: Any) -> list[Any]:
            values[index] = copy.deepcopy(value)  # this rank's own may change while others look
            barrier.wait()
            everyone = list(values)
            barrier.wait()  # nobody gives the next one before all have seen this one
            return everyone

        try:
            return work(GatheringNeighbours(allgather, index=index, split=split))
        except BaseException:
            barrier.abort()  # the others would wait for ever
            raise

    with ThreadPoolExecutor(split) as pool:
        futures = [pool.submit(run, index) for index in range(split)]
        failed = [future.exception() for future in futures]
    for error in sorted(
        filter(None, failed), key=lambda error: isinstance(error, threading.BrokenBarrierError)
    ):
        raise error
    return [future.result() for future in futures]
