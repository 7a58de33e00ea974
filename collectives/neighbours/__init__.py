"""The ranks of a replica (`models.parallel.Neighbours`) over MPI or torch.distributed: halos, sums and gathers.

A *replica* is the `split` ranks that train on the same samples: rank r is in replica r // split, and has its rows
number r % split, 0 at the top. Each replica has a communicator of its own, so that halos and gradients never wait for
each other. What carries rows follows from the backend: torch.distributed for its own backends, MPI for all others.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from dlscale.collectives.capabilities import capabilities

MOST_CALLS = 1 << 12  # that are remembered: more than a step has
MPI, TORCH = "MPI", "torch.distributed"

Parts = list[tuple[int, Any]]
"""Ranks of a replica, and the arrays that go to them or come from them."""

Allgather = Callable[[Any], list[Any]]
"""Every rank's value on every rank, in order; collective over a replica."""


def carrier_of(backend: str, *, framework: str) -> str:
    """What carries rows beside a backend: torch.distributed where gradients go over it too, else MPI."""
    return TORCH if framework == "torch" and capabilities(backend).torch_distributed else MPI


def connect_neighbours(carrier: str, *, control: Any, split: int) -> CarriedNeighbours:
    """Join each `split` ranks of `control` to a replica; collective.

    `control` is a `Communicator`; of torch.distributed, whose default group has the same ranks, it may be any.
    """
    if control.Get_size() % split:
        raise ValueError(f"{control.Get_size()} ranks are no whole number of replicas of {split}")
    connect = TorchCarrier if carrier == TORCH else MpiCarrier
    return CarriedNeighbours(connect(control, split), split=split)


class Carrier(Protocol):
    """The ranks of one replica. All operations are collective over them and blocking.

    Arrays are as `models.parallel.Neighbours` has them.
    """

    index: int  # of this rank in its replica; 0 has the top rows
    takes_tensors: bool

    def exchange(self, sends: Parts, receives: Parts) -> None:
        """Send arrays to ranks and receive arrays from ranks, equal in bytes."""

    def sum(self, values: Any) -> None:
        """The sum over the ranks, in place; all get the same bits."""

    def gather(self, own: Any, whole: Any, counts: Sequence[int]) -> None:
        """Fill `whole` with all ranks' `own`, of which each has so many along the first axis."""

    def close(self) -> None:
        """Leave the replica. A second close does nothing."""


class MpiCarrier:
    """A replica over MPI (`Carrier`). Errors of MPI raise MPI.Exception, a RuntimeError."""

    takes_tensors = False

    def __init__(self, control: Any, split: int) -> None:
        from mpi4py import MPI

        rank = control.Get_rank()
        self._mpi = MPI
        self._communicator = control.Split(rank // split, rank)
        self._communicator.Set_errhandler(MPI.ERRORS_RETURN)
        self.index: int = self._communicator.Get_rank()
        self._closed = False

    def exchange(self, sends: Parts, receives: Parts) -> None:
        begun = [self._communicator.Irecv(_as_bytes(array), rank) for rank, array in receives]
        begun += [self._communicator.Isend(_as_bytes(array), rank) for rank, array in sends]
        self._mpi.Request.Waitall(begun)

    def sum(self, values: NDArray[Any]) -> None:
        self._communicator.Allreduce(self._mpi.IN_PLACE, values)

    def gather(self, own: NDArray[Any], whole: NDArray[Any], counts: Sequence[int]) -> None:
        row_bytes = whole.nbytes // len(whole)
        self._communicator.Allgatherv(
            _as_bytes(own), [_as_bytes(whole), [count * row_bytes for count in counts]]
        )

    def close(self) -> None:
        """Free the communicator, unless MPI was finalised, which has freed everything."""
        if not self._closed and not self._mpi.Is_finalized():
            self._communicator.Free()
        self._closed = True


class TorchCarrier:
    """A replica over torch.distributed (`Carrier`), by the library of the default group.

    Gloo takes arrays in host memory, NCCL and XCCL tensors on GPUs, which nobody has run. A peer that is gone raises
    RuntimeError.
    """

    def __init__(self, control: Any, split: int) -> None:
        import torch
        import torch.distributed as dist

        self._torch, self._dist = torch, dist
        rank, size = control.Get_rank(), control.Get_size()
        self._first, self.index = rank - rank % split, rank % split
        self.takes_tensors = dist.get_backend() != "gloo"
        # Every rank of the default group has to take part in forming every group.
        groups = [dist.new_group(list(range(first, first + split))) for first in range(0, size, split)]
        self._group: Any = groups[rank // split]
        # As in `torch_distributed.HostCollective`: the group's threads must not be the last to hold a tensor.
        self._held: deque[Any] = deque(maxlen=16)

    def exchange(self, sends: Parts, receives: Parts) -> None:
        """One batch; a GPU's current stream waits for it."""
        dist = self._dist
        begun = [
            dist.P2POp(operation, self._tensor(array), self._first + rank, group=self._group)
            for operation, parts in ((dist.irecv, receives), (dist.isend, sends))
            for rank, array in parts
        ]
        for work in dist.batch_isend_irecv(begun) if begun else ():
            work.wait()

    def sum(self, values: Any) -> None:
        self._dist.all_reduce(self._tensor(values), group=self._group)

    def gather(self, own: Any, whole: Any, counts: Sequence[int]) -> None:
        """One batch: Gloo gathers only what is equally long."""
        ends = list(accumulate(counts))
        parts = [(rank, whole[end - counts[rank] : end]) for rank, end in enumerate(ends)]
        parts.pop(self.index)[1][...] = own
        self.exchange([(rank, own) for rank, _ in parts], parts)

    def close(self) -> None:
        if self._group is not None:
            self._held.clear()
            self._dist.destroy_process_group(self._group)
        self._group = None

    def _tensor(self, values: Any) -> Any:
        if self._group is None:
            raise RuntimeError("this replica is closed")
        self._held.append(self._torch.as_tensor(values).view(-1))
        return self._held[-1]


@dataclass(frozen=True, slots=True)
class Call:
    """One operation (exchange, sum or gather) and the bytes that this rank gave for it: up and down, or to all."""

    operation: str
    num_bytes: tuple[int, ...]

    def __str__(self) -> str:
        """As a record has it: `exchange 4096 0`."""
        return " ".join([self.operation, *map(str, self.num_bytes)])


class CarriedNeighbours:
    """The ranks of this replica (`models.parallel.Neighbours`), with this rank's seconds and bytes so far.

    The seconds have what a rank waits for its neighbours: the rank that spends least waits for nobody.
    """

    def __init__(self, carrier: Carrier, *, split: int) -> None:
        self.carrier, self.index, self.split = carrier, carrier.index, split
        self.takes_tensors = carrier.takes_tensors
        self.seconds, self.bytes_sent, self.num_calls = 0.0, 0, 0
        self._calls: deque[Call] = deque(maxlen=MOST_CALLS)

    def exchange(self, up: Any, down: Any, from_up: Any, from_down: Any) -> None:
        begin = time.perf_counter()
        above, below = self.index - 1, self.index + 1
        sends = [(rank, array) for rank, array in ((above, up), (below, down)) if array is not None]
        receives = [
            (rank, array) for rank, array in ((above, from_up), (below, from_down)) if array is not None
        ]
        self.carrier.exchange(sends, receives)
        self._count(begin, "exchange", 0 if up is None else up.nbytes, 0 if down is None else down.nbytes)

    def sum(self, values: Any) -> None:
        begin = time.perf_counter()
        self.carrier.sum(values)
        self._count(begin, "sum", values.nbytes)

    def gather(self, own: Any, whole: Any, counts: Sequence[int]) -> None:
        begin = time.perf_counter()
        self.carrier.gather(own, whole, counts)
        self._count(begin, "gather", own.nbytes)

    def last_calls(self) -> list[Call]:
        """The last ones, in order."""
        return list(self._calls)

    def close(self) -> None:
        self.carrier.close()

    def _count(self, begin: float, operation: str, *num_bytes: int) -> None:
        self.seconds += time.perf_counter() - begin
        self.bytes_sent += sum(num_bytes)
        self.num_calls += 1
        self._calls.append(Call(operation, num_bytes))


class GatheringNeighbours:
    """The ranks of this replica over one operation, plain and slow (`models.parallel.Neighbours`).

    For references, which no carrier may touch.
    """

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


def _as_bytes(array: NDArray[Any]) -> NDArray[np.uint8]:
    return array.reshape(-1).view(np.uint8)
