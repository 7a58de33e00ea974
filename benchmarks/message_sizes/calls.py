"""The libraries, each called as its own users call it: a table of calls by collective operation.

A message is an array of the library's memory; a table turns it into the call, outside the timed interval.
"""

from __future__ import annotations

import argparse
import contextlib
import mmap
from collections.abc import Callable, Mapping
from functools import cache, partial
from typing import Any, NamedTuple

import numpy as np

from dlscale.benchmarks.records.collective_operations import ITEM_BYTES, part

HUGE_PAGE_BYTES = 2 * 2**20

Call = Callable[[], Any]
Prepare = Callable[[Any], Call]


class Operation(NamedTuple):
    """What is timed."""

    collective: str
    prepare: Prepare
    result: Callable[[Any, Any], Any] | None = None  # from message and what the call gave; else the message
    memory: Any = None  # an array that it wants its messages in
    checked: bool = True  # its result is the collective's


class HostMemory:
    """Messages as NumPy arrays of float32. Libraries may give back tensors on the host."""

    def empty(self, count: int) -> Any:
        """An array that begins at a huge page, and lies on such pages where the system has any.

        The first 2 MiB of NumPy's own arrays are on such or on small ones by chance, in each process anew, and the
        kernel copies half as fast from small ones.
        """
        num_bytes = count * ITEM_BYTES
        room = mmap.mmap(-1, num_bytes + 2 * HUGE_PAGE_BYTES, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        with contextlib.suppress(OSError):  # a kernel without huge pages
            room.madvise(mmap.MADV_HUGEPAGE)
        raw = np.frombuffer(room, np.uint8)
        begin = -raw.ctypes.data % HUGE_PAGE_BYTES
        return raw[begin : begin + num_bytes].view(np.float32)

    def put(self, message: Any, values: Any) -> None:
        """Copy a NumPy array, or write a number everywhere."""
        message[:] = values

    def get(self, message: Any) -> Any:
        """A NumPy array of what is there."""
        return np.asarray(message)

    def stream(self, message: Any) -> Call:
        """A call that adds to all of it: what bounds every allreduce of a node."""
        return partial(np.add, message, np.float32(1), out=message)


class DeviceMemory(HostMemory):
    """Messages as tensors on a device, for instance a GPU; `wait` returns when the device has done its work."""

    def __init__(self, device: Any, wait: Call) -> None:
        self._device, self._wait = device, wait

    def empty(self, count: int) -> Any:
        """A tensor."""
        import torch

        return torch.empty(count, dtype=torch.float32, device=self._device)

    def put(self, message: Any, values: Any) -> None:
        import torch

        message[:] = values if isinstance(values, float) else torch.from_numpy(values)
        self._wait()

    def get(self, message: Any) -> Any:
        """A copy on the host."""
        return message.cpu().numpy()

    def stream(self, message: Any) -> Call:
        return _ended(partial(message.add_, 1), self._wait)


HOST = HostMemory()


class Library(NamedTuple):
    """A library that was started on this rank; its operations by their words, "mpi" (an allreduce), "mpi:broadcast"."""

    description: str
    thread_level: str
    operations: Mapping[str, Operation]
    close: Call
    memory: HostMemory = HOST


class RankNumbers(NamedTuple):
    """A rank among the ranks, and among those of its node."""

    rank: int
    size: int
    local_rank: int

    def own(self, message: Any) -> Any:
        """The rank's part of a message."""
        return message[part(len(message), self.rank, self.size)]


def _part_memory(options: argparse.Namespace, size: int, memory: HostMemory) -> Callable[..., Any]:
    """Message -> memory for a rank's part of it that is not in the message, the same at every size."""
    room = cache(lambda: memory.empty(max(options.sizes) // ITEM_BYTES // size))
    return lambda message, *_: room()[: len(message) // size]


def _operations(name: str, calls: Mapping[str, Prepare], **results: Any) -> dict[str, Operation]:
    return {
        name if collective == "allreduce" else f"{name}:{collective}": Operation(
            collective, prepare, results.get(collective)
        )
        for collective, prepare in calls.items()
    }


def _mpi(options: argparse.Namespace, place: RankNumbers) -> Library:
    import mpi4py

    mpi4py.rc.thread_level = options.thread_level
    from mpi4py import MPI

    world, to = MPI.COMM_WORLD, _part_memory(options, place.size, HOST)

    def spec(message: Any) -> Any:
        return [message, MPI.FLOAT]

    calls: dict[str, Prepare] = {
        "allreduce": lambda m: partial(world.Allreduce, MPI.IN_PLACE, spec(m)),
        "reduce_scatter": lambda m: partial(world.Reduce_scatter_block, spec(m), spec(to(m))),
        "allgather": lambda m: partial(world.Allgather, MPI.IN_PLACE, spec(m)),
        "broadcast": lambda m: partial(world.Bcast, spec(m), 0),
    }
    names = ("single", "funneled", "serialized", "multiple")
    levels = {getattr(MPI, f"THREAD_{name.upper()}"): name for name in names}
    return Library(
        _first_line(MPI.Get_library_version()),
        levels[MPI.Query_thread()],
        _operations("mpi", calls, reduce_scatter=to),
        MPI.Finalize,
    )


def _ring(options: argparse.Namespace, place: RankNumbers) -> Library:
    from mpi4py import MPI

    from dlscale.collectives import ring

    engine = ring.join(MPI.COMM_WORLD)
    to = _part_memory(options, place.size, HOST)
    calls: dict[str, Prepare] = {
        "allreduce": partial(partial, engine.allreduce),
        "reduce_scatter": lambda m: partial(engine.reduce_scatter, m, to(m)),
        "allgather": lambda m: partial(engine.allgather, place.own(m), m),
        "broadcast": lambda m: partial(engine.broadcast, m, 0),
    }
    operations = _operations("ring", calls, reduce_scatter=to)
    if "ring-shared" in options.operations:
        memory = engine.empty(max(options.sizes) // ITEM_BYTES)
        operations["ring-shared"] = Operation("allreduce", calls["allreduce"], memory=memory)
    title = f"ring over {_first_line(MPI.Get_library_version())}"
    return Library(title, "multiple", operations, engine.close)


def _first_line(text: str) -> str:
    return text.splitlines()[0].rstrip("\0")


def _gloo(options: argparse.Namespace, place: RankNumbers) -> Library:
    import torch

    torch.set_num_threads(1)
    title = f"Gloo of torch {torch.__version__}"
    return _by_torch(options, place, "gloo", title=title, view=torch.from_numpy)


def _between_gpus(options: argparse.Namespace, place: RankNumbers) -> Library:
    import torch

    from dlscale.models.frameworks import gpu_module

    gpus: Any = gpu_module("torch")
    gpus.take(place.local_rank)
    device, (backend, library) = gpus.current(), gpus.exchange_library()
    title = f"{library} of torch {torch.__version__} on {gpus.names()[device.index]}"
    wait = partial(getattr(torch, device.type).synchronize, device)
    return on_devices(options, place, backend, device, wait, title=title)


def on_devices(
    options: argparse.Namespace, place: RankNumbers, backend: str, device: Any, wait: Call, *, title: str
) -> Library:
    """A library of torch.distributed that moves tensors on devices, one per rank; `wait` waits for this rank's."""
    # NCCL connects at once, not in the first call.
    bound = None if device.type == "cpu" else device
    memory = DeviceMemory(device, wait)
    return _by_torch(options, place, backend, title=title, memory=memory, wait=wait, device_id=bound)


def _by_torch(
    options: argparse.Namespace,
    place: RankNumbers,
    backend: str,
    *,
    title: str,
    memory: HostMemory = HOST,
    view: Callable[[Any], Any] = lambda message: message,
    wait: Call | None = None,
    **group: Any,
) -> Library:
    """torch.distributed's operations; `view` makes a message a tensor, and a call ends with `wait`."""
    import torch.distributed as dist

    store = dist.FileStore(options.store, place.size)  # type: ignore[attr-defined]
    dist.init_process_group(backend, store=store, rank=place.rank, world_size=place.size, **group)
    # Since torch 2.13 the names that everybody uses only warn, at every call, and call the new ones.
    scatter = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor
    gather = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
    to = _part_memory(options, place.size, memory)
    calls: dict[str, Prepare] = {
        "allreduce": lambda m: partial(dist.all_reduce, view(m)),
        "reduce_scatter": lambda m: partial(scatter, view(to(m)), view(m)),
        "allgather": lambda m: partial(gather, view(m), place.own(view(m))),
        "broadcast": lambda m: partial(dist.broadcast, view(m), 0),
    }

    def waiting(prepare: Prepare) -> Prepare:
        return lambda message: _ended(prepare(message), wait)

    waited = {collective: waiting(prepare) for collective, prepare in calls.items()}
    operations = _operations(options.backend, waited, reduce_scatter=to)
    return Library(title, "multiple", operations, dist.destroy_process_group, memory)


def _ended(call: Call, wait: Call | None) -> Call:
    """The call, which returns when the device has done it."""
    if wait is None:
        return call

    def both() -> None:
        call()
        wait()

    return both


def _horovod(options: argparse.Namespace, place: RankNumbers) -> Library:  # noqa: ARG001
    import horovod
    import horovod.torch as hvd
    import torch

    torch.set_num_threads(1)
    hvd.init()

    # One name per size, as a training step repeats its buckets: Horovod remembers them by name.
    def named(message: Any) -> str:
        return f"message.{len(message)}"

    tensor = torch.from_numpy
    calls: dict[str, Prepare] = {
        "allreduce": lambda m: partial(hvd.allreduce_, tensor(m), op=hvd.Sum, name=named(m)),
        "reduce_scatter": lambda m: partial(hvd.reducescatter, tensor(m), op=hvd.Sum, name=named(m)),
        "allgather": lambda m: partial(hvd.allgather, tensor(place.own(m)), name=named(m)),
        "broadcast": lambda m: partial(hvd.broadcast_, tensor(m), 0, name=named(m)),
    }

    def returned(_: Any, given: Any) -> Any:
        return given  # memory of its own

    operations = _operations("horovod", calls, reduce_scatter=returned, allgather=returned)
    return Library(f"Horovod {horovod.__version__}", "multiple", operations, hvd.shutdown)


START = {"mpi": _mpi, "ring": _ring, "gloo": _gloo, "horovod": _horovod}
START |= dict.fromkeys(("nccl", "xccl"), _between_gpus)
