"""The ranks of a replica (`models.parallel.Neighbours`) over MPI or torch.distributed: halos and sums.

A *replica* is the `split` ranks that train on the same samples: rank r is in replica r // split, and has its rows
number r % split, 0 at the top. Each replica has a separate communicator, so that halos and gradients never wait for
each other. torch.distributed carries rows for its own backends, MPI for all others.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from dlscale.collectives.capabilities import capabilities

MAX_CALLS = 1 << 12  # that are remembered: more than a step has
MPI, TORCH = "MPI", "torch.distributed"

Parts = list[tuple[int, Any]]
"""Ranks of a replica, and the arrays that go to them or come from them."""


def carrier_of(backend: str, *, framework: str) -> str:
    """What carries rows for a backend: torch.distributed where gradients go over it too, else MPI."""
    return TORCH if framework == "torch" and capabilities(backend).torch_distributed else MPI


def connect_neighbours(carrier: str, *, control: Any, split: int) -> CarriedNeighbours:
    """Join each `split` ranks of `control` to a replica; collective.

    `control` is a `Communicator`; for torch.distributed, whose default group has the same ranks, it may be any.
    """
    if control.Get_size() % split:
        raise ValueError(f"{control.Get_size()} ranks are no whole number of replicas of {split}")
    return (TorchNeighbours if carrier == TORCH else MpiNeighbours)(control, split)


@dataclass(frozen=True, slots=True)
class Call:
    """One operation (exchange or sum) and the bytes that this rank gave for it: up and down, or to all."""

    operation: str
    num_bytes: tuple[int, ...]

    def __str__(self) -> str:
        """As a record has it: `exchange 4096 0`."""
        return " ".join([self.operation, *map(str, self.num_bytes)])


class CarriedNeighbours:
    """The ranks of this replica (`models.parallel.Neighbours`), with this rank's seconds and bytes so far.

    The seconds include waiting for neighbours: the rank that spends least waits for none.
    """

    takes_tensors = False

    def __init__(self, control: Any, split: int) -> None:
        self.index, self.split = control.Get_rank() % split, split
        self.seconds, self.bytes_sent, self.num_calls = 0.0, 0, 0
        self._calls: deque[Call] = deque(maxlen=MAX_CALLS)

    def exchange(self, up: Any, down: Any, from_up: Any, from_down: Any) -> None:
        begin = time.perf_counter()
        sends: Parts = []
        receives: Parts = []
        sent = [0, 0]
        for place, (step, array, buffer) in enumerate(((-1, up, from_up), (1, down, from_down))):
            rank = self.index + step
            if 0 <= rank < self.split:
                sends += [(rank, array)] if array.nbytes else []
                receives += [(rank, buffer)] if buffer.nbytes else []
                sent[place] = array.nbytes
        self._move(sends, receives)
        self._count(begin, Call("exchange", tuple(sent)))

    def sum(self, values: Any) -> None:
        begin = time.perf_counter()
        self._add(values)
        self._count(begin, Call("sum", (values.nbytes,)))

    def last_calls(self) -> list[Call]:
        """The last ones, in order."""
        return list(self._calls)

    def close(self) -> None:
        """Leave the replica. A second close does nothing."""
        raise NotImplementedError

    def _move(self, sends: Parts, receives: Parts) -> None:
        """Send arrays to ranks and receive arrays from ranks, equal in bytes."""
        raise NotImplementedError

    def _add(self, values: Any) -> None:
        """The sum over the ranks, in place; all get the same bits."""
        raise NotImplementedError

    def _count(self, begin: float, call: Call) -> None:
        self.seconds += time.perf_counter() - begin
        self.bytes_sent += sum(call.num_bytes)
        self.num_calls += 1
        self._calls.append(call)


class MpiNeighbours(CarriedNeighbours):
    """A replica over MPI. Errors of MPI raise MPI.Exception, a RuntimeError."""

    def __init__(self, control: Any, split: int) -> None:
        from mpi4py import MPI

        super().__init__(control, split)
        rank = control.Get_rank()
        self._mpi = MPI
        self._communicator = control.Split(rank // split, rank)
        self._communicator.Set_errhandler(MPI.ERRORS_RETURN)
        self._closed = False

    def close(self) -> None:
        """Free the communicator, unless MPI was finalised, which has freed everything."""
        if not self._closed and not self._mpi.Is_finalized():
            self._communicator.Free()
        self._closed = True

    def _move(self, sends: Parts, receives: Parts) -> None:
        requests = [self._communicator.Irecv(array, rank) for rank, array in receives]
        requests += [self._communicator.Isend(array, rank) for rank, array in sends]
        self._mpi.Request.Waitall(requests)

    def _add(self, values: Any) -> None:
        self._communicator.Allreduce(self._mpi.IN_PLACE, values)


class TorchNeighbours(CarriedNeighbours):
    """A replica over torch.distributed, by the library of the default group.

    Gloo takes arrays in host memory, NCCL and XCCL tensors on GPUs. A peer that is gone raises RuntimeError.
    """

    def __init__(self, control: Any, split: int) -> None:
        import torch
        import torch.distributed as dist

        super().__init__(control, split)
        self._torch, self._dist = torch, dist
        rank, size = control.Get_rank(), control.Get_size()
        self._first = rank - self.index
        self.takes_tensors = dist.get_backend() != "gloo"
        # Every rank of the default group has to take part in forming every group.
        groups = [dist.new_group(list(range(first, first + split))) for first in range(0, size, split)]
        self._group: Any = groups[rank // split]
        # As in `torch_distributed.HostCollective`: the group's threads must not be the last to hold a tensor.
        self._held: deque[Any] = deque(maxlen=16)

    def close(self) -> None:
        if self._group is not None:
            self._held.clear()
            self._dist.destroy_process_group(self._group)
        self._group = None

    def _move(self, sends: Parts, receives: Parts) -> None:
        """One batch; a GPU's current stream waits for it."""
        dist = self._dist
        operations = [
            dist.P2POp(operation, self._tensor(array), self._first + rank, group=self._group)
            for operation, parts in ((dist.irecv, receives), (dist.isend, sends))
            for rank, array in parts
        ]
        for work in dist.batch_isend_irecv(operations) if operations else ():
            work.wait()

    def _add(self, values: Any) -> None:
        self._dist.all_reduce(self._tensor(values), group=self._group)

    def _tensor(self, values: Any) -> Any:
        if self._group is None:
            raise RuntimeError("this replica is closed")
        self._held.append(self._torch.as_tensor(values).view(-1))
        return self._held[-1]


class GatheringNeighbours:
    """The ranks of this replica over one operation, plain and slow (`models.parallel.Neighbours`).

    For references, which no carrier may touch. `allgather` gives every rank's value to every rank, in order.
    """

    def __init__(
        self, allgather: Callable[[Any], list[Any]], *, index: int, split: int, takes_tensors: bool = False
    ) -> None:
        self.allgather, self.index, self.split = allgather, index, split
        self.takes_tensors = takes_tensors

    def exchange(self, up: Any, down: Any, from_up: Any, from_down: Any) -> None:
        """What the rank above sends down, and the rank below up."""
        everyone = self.allgather((up, down))
        if self.index > 0:
            from_up[...] = everyone[self.index - 1][1].reshape(from_up.shape)
        if self.index < self.split - 1:
            from_down[...] = everyone[self.index + 1][0].reshape(from_down.shape)

    def sum(self, values: Any) -> None:
        """Added in order of rank."""
        values[...] = sum(self.allgather(values))


def over_control(control: Any, *, split: int) -> GatheringNeighbours:
    """The ranks of this replica over the control plane; collective. Without MPI all replicas hear each other."""
    rank = control.Get_rank()
    first = rank - rank % split
    if hasattr(control, "Split"):
        allgather: Callable[[Any], list[Any]] = control.Split(first, rank).allgather
    else:
        allgather = lambda value: control.allgather(value)[first : first + split]  # noqa: E731
    return GatheringNeighbours(allgather, index=rank - first, split=split)


def absent_neighbours(*, index: int, split: int, takes_tensors: bool) -> GatheringNeighbours:
    """The others are taken for copies of this rank, and nothing is exchanged.

    So a rank of backend `none` computes what one that exchanges does, for as long and of like size; what it learns is
    of no use.
    """
    return GatheringNeighbours(
        lambda value: [value] * split, index=index, split=split, takes_tensors=takes_tensors
    )
