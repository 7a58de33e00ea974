"""The libraries, each called as its own users call it: a table of calls by collective operation.

A message is an array in the library's memory; a table turns it into the call, outside the timed interval. A call
returns its result, or None where the result is in the message, of a reduce-scatter in `Library.part`.
"""

from __future__ import annotations

import contextlib
import mmap
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from dlscale.benchmarks.records.collective_operations import ITEM_BYTES, part

HUGE_PAGE_BYTES = 2 * 2**20

Call = Callable[[], Any]


class Rank(NamedTuple):
    """A rank among all ranks and on its node, and what its launch asks of the library."""

    rank: int
    size: int
    local_rank: int
    thread_level: str
    folder: Path

    def own(self, message: Any) -> Any:
        """The rank's part of a message."""
        return message[part(len(message), self.rank, self.size)]


class Library:
    """A library that was started on this rank, whose messages are NumPy arrays of float32."""

    description: str
    calls: Mapping[str, Callable[[Any], Call]]  # by collective operation
    close: Call
    num_trials = 0  # first calls that are not timed, beside those of every library

    def __init__(self, rank: Rank) -> None:
        self.rank = rank
        self._part: Any = ()

    def empty(self, count: int) -> Any:
        """An array that begins at a huge page, and lies on such pages where the system has any.

        The first 2 MiB of NumPy's own arrays are on huge or on small pages by chance, in each process anew, and the
        kernel copies half as fast from small ones.
        """
        num_bytes = count * ITEM_BYTES
        room = mmap.mmap(-1, num_bytes + 2 * HUGE_PAGE_BYTES, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        with contextlib.suppress(OSError):  # a kernel without huge pages
            room.madvise(mmap.MADV_HUGEPAGE)
        raw = np.frombuffer(room, np.uint8)
        begin = -raw.ctypes.data % HUGE_PAGE_BYTES
        return raw[begin : begin + num_bytes].view(np.float32)

    def part(self, message: Any) -> Any:
        """Other memory for the rank's part of a message, the same at every call with messages of one size."""
        count = len(message) // self.rank.size
        if len(self._part) < count:
            self._part = self.empty(count)
        return self._part[:count]

    def put(self, message: Any, values: Any) -> None:
        """Copy a NumPy array, or write a number everywhere."""
        message[:] = values

    def get(self, message: Any) -> Any:
        """The values of a message, or of a tensor on the host, as a NumPy array."""
        return np.asarray(message)

    def whole(self, call: Call) -> Call:
        """The call, which returns once its work is done."""
        return call


def mpi_of(rank: Rank) -> Any:
    """mpi4py's MPI, initialised at the thread level that is asked for."""
    import mpi4py

    mpi4py.rc.thread_level = rank.thread_level
    from mpi4py import MPI

    return MPI


class _Mpi(Library):
    def __init__(self, rank: Rank) -> None:
        super().__init__(rank)
        mpi = mpi_of(rank)
        world = mpi.COMM_WORLD
        self.description = mpi.Get_library_version().splitlines()[0].rstrip("\0")
        self.close = mpi.Finalize

        def spec(message: Any) -> Any:
            return [message, mpi.FLOAT]

        self.calls = {
            "allreduce": lambda m: partial(world.Allreduce, mpi.IN_PLACE, spec(m)),
            "reduce_scatter": lambda m: partial(world.Reduce_scatter_block, spec(m), spec(self.part(m))),
            "allgather": lambda m: partial(world.Allgather, mpi.IN_PLACE, spec(m)),
            "broadcast": lambda m: partial(world.Bcast, spec(m), 0),
        }


class _Ring(_Mpi):
    num_trials = 30  # it tries its variants of moving large messages

    def __init__(self, rank: Rank) -> None:
        from dlscale.collectives import ring

        super().__init__(rank)
        self.description = f"ring over {self.description}"
        engine = ring.join(mpi_of(rank).COMM_WORLD)
        self.close = engine.close
        self.calls = {
            "allreduce": lambda m: partial(engine.allreduce, m),
            "reduce_scatter": lambda m: partial(engine.reduce_scatter, m, self.part(m)),
            "allgather": lambda m: partial(engine.allgather, rank.own(m), m),
            "broadcast": lambda m: partial(engine.broadcast, m, 0),
        }


class _Torch(Library):
    """torch.distributed; `view` makes a message a tensor."""

    def __init__(self, rank: Rank, backend: str, view: Callable[[Any], Any], **group: Any) -> None:
        import torch.distributed as dist

        super().__init__(rank)
        store = dist.FileStore(str(rank.folder / "store"), rank.size)  # type: ignore[attr-defined]
        dist.init_process_group(backend, store=store, rank=rank.rank, world_size=rank.size, **group)
        self.close = dist.destroy_process_group
        # Since torch 2.13 the names that everybody uses only warn, at every call, and call the new ones.
        scatter = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor
        gather = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
        self.calls = {
            "allreduce": lambda m: partial(dist.all_reduce, view(m)),
            "reduce_scatter": lambda m: partial(scatter, view(self.part(m)), view(m)),
            "allgather": lambda m: partial(gather, view(m), rank.own(view(m))),
            "broadcast": lambda m: partial(dist.broadcast, view(m), 0),
        }


class _Gloo(_Torch):
    def __init__(self, rank: Rank) -> None:
        import torch

        torch.set_num_threads(1)
        super().__init__(rank, "gloo", torch.from_numpy)
        self.description = f"Gloo of torch {torch.__version__}"


class _BetweenGpus(_Torch):
    """NCCL, RCCL or XCCL: messages are tensors on a GPU per rank."""

    def __init__(self, rank: Rank) -> None:
        import torch

        from dlscale.models.frameworks import gpu_module

        gpus: Any = gpu_module("torch")
        gpus.take(rank.local_rank)
        self._device, (backend, library) = gpus.current(), gpus.exchange_library()
        self._torch, self._kind = torch, getattr(torch, self._device.type)
        # With a device NCCL connects at once, not in the first call.
        super().__init__(rank, backend, lambda message: message, device_id=self._device)
        self.description = f"{library} of torch {torch.__version__} on {gpus.names()[self._device.index]}"

    def empty(self, count: int) -> Any:
        return self._torch.empty(count, dtype=self._torch.float32, device=self._device)

    def put(self, message: Any, values: Any) -> None:
        message[:] = values if isinstance(values, float) else self._torch.from_numpy(values)
        self._kind.synchronize(self._device)

    def get(self, message: Any) -> Any:
        return message.cpu().numpy()

    def whole(self, call: Call) -> Call:
        def both() -> None:
            call()
            self._kind.synchronize(self._device)

        return both


class _Horovod(Library):
    def __init__(self, rank: Rank) -> None:
        import horovod
        import horovod.torch as hvd
        import torch

        super().__init__(rank)
        torch.set_num_threads(1)
        hvd.init()
        self.description, self.close = f"Horovod {horovod.__version__}", hvd.shutdown
        tensor = torch.from_numpy

        # One name per size, as a training step repeats its buckets: Horovod remembers them by name.
        def named(message: Any) -> str:
            return f"message.{len(message)}"

        self.calls = {
            "allreduce": lambda m: partial(hvd.allreduce_, tensor(m), op=hvd.Sum, name=named(m)),
            "reduce_scatter": lambda m: partial(hvd.reducescatter, tensor(m), op=hvd.Sum, name=named(m)),
            "allgather": lambda m: partial(hvd.allgather, tensor(rank.own(m)), name=named(m)),
            "broadcast": lambda m: partial(hvd.broadcast_, tensor(m), 0, name=named(m)),
        }


LIBRARIES: dict[str, Callable[[Rank], Library]] = {
    "mpi": _Mpi,
    "ring": _Ring,
    "gloo": _Gloo,
    "horovod": _Horovod,
    "nccl": _BetweenGpus,
    "xccl": _BetweenGpus,
}
