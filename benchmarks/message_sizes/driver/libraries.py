"""The libraries, each called as its own users call it."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from .conventions import ALLGATHER, ALLREDUCE, BROADCAST, ITEM_BYTES, REDUCE_SCATTER, part
from .memory import HOST, Call, Memory, TorchMemory, arena_elements, ended


class Operation(NamedTuple):
    """What is timed: `prepare` turns a message into the call, outside the timed interval."""

    name: str
    prepare: Callable[[Any], Call]
    collective: str = ALLREDUCE
    checked: bool = True  # its result is the collective's
    memory: Any = None  # an array that it wants its messages in
    result: Callable[[Any, Any], Any] | None = None  # from message and what the call gave; else the message


class Library(NamedTuple):
    """A library that was started on this rank."""

    description: str
    thread_level: str
    operations: list[Operation]
    close: Call
    memory: Memory = HOST
    choices: Callable[[], list[dict[str, Any]]] = list  # how it found messages to move fastest


class RankNumbers(NamedTuple):
    """A rank among the ranks, and among those of its node."""

    rank: int
    size: int
    local_rank: int

    def own(self, message: Any) -> Any:
        """This rank's part of a message."""
        return message[part(len(message), self.rank, self.size)]


class Parts:
    """The memory that a reduce-scatter writes its parts to, the same at every size."""

    def __init__(self, options: argparse.Namespace, place: RankNumbers, empty: Callable[[int], Any]) -> None:
        asked = any(word.endswith(f":{REDUCE_SCATTER}") for word in options.operations)
        self._memory = empty(max(options.sizes) // ITEM_BYTES // place.size if asked else 0)
        self._size = place.size

    def of(self, message: Any, _: Any = None) -> Any:
        """The memory for the part of a message."""
        return self._memory[: len(message) // self._size]


def _mpi(options: argparse.Namespace, place: RankNumbers) -> Library:
    import mpi4py

    mpi4py.rc.thread_level = options.thread_level
    from mpi4py import MPI

    world = MPI.COMM_WORLD
    parts = Parts(options, place, HOST.empty)
    result = np.ones(max(options.sizes) // ITEM_BYTES if "mpi-copy" in options.operations else 0, np.float32)

    def spec(message: Any) -> Any:
        return [message, MPI.FLOAT]

    operations = [
        Operation("mpi", lambda message: partial(world.Allreduce, MPI.IN_PLACE, spec(message))),
        Operation(
            "mpi-copy",
            lambda message: partial(world.Allreduce, spec(message), spec(result[: len(message)])),
            checked=False,
        ),
        Operation(
            "mpi",
            lambda message: partial(world.Reduce_scatter_block, spec(message), spec(parts.of(message))),
            REDUCE_SCATTER,
            result=parts.of,
        ),
        Operation("mpi", lambda message: partial(world.Allgather, MPI.IN_PLACE, spec(message)), ALLGATHER),
        Operation("mpi", lambda message: partial(world.Bcast, spec(message), 0), BROADCAST),
    ]
    levels = {
        MPI.THREAD_SINGLE: "single",
        MPI.THREAD_FUNNELED: "funneled",
        MPI.THREAD_SERIALIZED: "serialized",
    }
    provided = levels.get(MPI.Query_thread(), "multiple")
    return Library(_first_line(MPI.Get_library_version()), provided, operations, MPI.Finalize)


RINGS = ("ring", "ring-shared", "ring-unsynchronised")


def _ring(options: argparse.Namespace, place: RankNumbers) -> Library:
    from mpi4py import MPI

    from dlscale.collectives import ring

    parts = Parts(options, place, HOST.empty)
    names = dict.fromkeys(word.partition(":")[0] for word in options.operations)
    rings = {name: ring.join(MPI.COMM_WORLD) for name in names if name in RINGS}
    operations = []
    for name, engine in rings.items():
        memory = engine.empty(arena_elements(options)) if name == "ring-shared" else None
        waits = name != "ring-unsynchronised"
        if not waits:
            engine._engine.set_free_running(True)  # the same loads and stores; the sums are wrong
        operations.append(Operation(name, partial(partial, engine.allreduce), checked=waits, memory=memory))
    if plain := rings.get("ring"):
        operations += [
            Operation(
                "ring",
                lambda message: partial(plain.reduce_scatter, message, parts.of(message)),
                REDUCE_SCATTER,
                result=parts.of,
            ),
            Operation(
                "ring", lambda message: partial(plain.allgather, place.own(message), message), ALLGATHER
            ),
            Operation("ring", lambda message: partial(plain.broadcast, message, 0), BROADCAST),
        ]

    def close() -> None:
        for engine in rings.values():
            engine.close()

    def choices() -> list[dict[str, Any]]:
        return [
            {
                "operation": name,
                "collective": choice.operation,
                "up_to_bytes": choice.up_to_bytes,
                "variant": choice.variant,
                "gigabytes_per_second": choice.gigabytes_per_second,
            }
            for name, engine in rings.items()
            for choice in engine.choices()
        ]

    title = f"ring over {_first_line(MPI.Get_library_version())}"
    return Library(title, "multiple", operations, close, choices=choices)


def _first_line(text: str) -> str:
    return text.splitlines()[0].rstrip("\0")


def _gloo(options: argparse.Namespace, place: RankNumbers) -> Library:
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    store = dist.FileStore(options.store, place.size)  # type: ignore[attr-defined]
    dist.init_process_group("gloo", store=store, rank=place.rank, world_size=place.size)
    parts = Parts(options, place, torch.empty)
    operations = torch_operations("gloo", place, parts, view=torch.from_numpy, wait=None)
    return Library(f"Gloo of torch {torch.__version__}", "multiple", operations, dist.destroy_process_group)


def _nccl(options: argparse.Namespace, place: RankNumbers) -> Library:
    import torch

    found = torch.cuda.device_count()
    if place.local_rank >= found:
        raise RuntimeError(f"rank {place.rank} has no GPU of its own: torch {torch.__version__} sees {found}")
    device = torch.device("cuda", place.local_rank)
    torch.cuda.set_device(device)
    version = ".".join(map(str, torch.cuda.nccl.version()))  # type: ignore[no-untyped-call]
    title = f"NCCL {version} of torch {torch.__version__} on {torch.cuda.get_device_name(device)}"
    return on_devices(options, place, "nccl", device, partial(torch.cuda.synchronize, device), title=title)


def on_devices(
    options: argparse.Namespace, place: RankNumbers, backend: str, device: Any, wait: Call, *, title: str
) -> Library:
    """A library of torch.distributed that moves tensors on devices, one per rank; `wait` waits for this rank's."""
    import torch.distributed as dist

    store = dist.FileStore(options.store, place.size)  # type: ignore[attr-defined]
    # NCCL connects at once, not in the first call.
    bound = device if device.type == "cuda" else None
    dist.init_process_group(backend, store=store, rank=place.rank, world_size=place.size, device_id=bound)
    memory = TorchMemory(device, wait)
    parts = Parts(options, place, memory.empty)
    operations = torch_operations("nccl", place, parts, view=lambda message: message, wait=wait)
    return Library(title, "multiple", operations, dist.destroy_process_group, memory)


def torch_operations(
    name: str, place: RankNumbers, parts: Parts, *, view: Callable[[Any], Any], wait: Call | None
) -> list[Operation]:
    """torch.distributed's operations; `view` makes a message a tensor, and a call ends with `wait`."""
    import torch.distributed as dist

    # Since torch 2.13 the names that everybody uses only warn, at every call, and call the new ones.
    scatter = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor
    gather = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor

    def reduce_scatter(message: Any) -> Call:
        return ended(partial(scatter, parts.of(message), view(message)), wait)

    def allgather(message: Any) -> Call:
        return ended(partial(gather, view(message), place.own(view(message))), wait)

    return [
        Operation(name, lambda message: ended(partial(dist.all_reduce, view(message)), wait)),
        Operation(name, reduce_scatter, REDUCE_SCATTER, result=parts.of),
        Operation(name, allgather, ALLGATHER),
        Operation(name, lambda message: ended(partial(dist.broadcast, view(message), 0), wait), BROADCAST),
    ]


def _horovod(options: argparse.Namespace, place: RankNumbers) -> Library:  # noqa: ARG001
    import horovod
    import horovod.torch as hvd
    import torch

    torch.set_num_threads(1)
    hvd.init()

    # One name per size, as a training step repeats its buckets: Horovod remembers them by name.
    def named(message: Any) -> str:
        return f"message.{len(message)}"

    def allreduce(message: Any) -> Call:
        return partial(hvd.allreduce_, torch.from_numpy(message), op=hvd.Sum, name=named(message))

    def reduce_scatter(message: Any) -> Call:
        return partial(hvd.reducescatter, torch.from_numpy(message), op=hvd.Sum, name=named(message))

    def allgather(message: Any) -> Call:
        return partial(hvd.allgather, torch.from_numpy(place.own(message)), name=named(message))

    def broadcast(message: Any) -> Call:
        return partial(hvd.broadcast_, torch.from_numpy(message), 0, name=named(message))

    def returned(_: Any, given: Any) -> Any:
        return given  # memory of its own

    operations = [
        Operation("horovod", allreduce),
        Operation("horovod", reduce_scatter, REDUCE_SCATTER, result=returned),
        Operation("horovod", allgather, ALLGATHER, result=returned),
        Operation("horovod", broadcast, BROADCAST),
    ]
    return Library(f"Horovod {horovod.__version__}", "multiple", operations, hvd.shutdown)


START = {"mpi": _mpi, "ring": _ring, "gloo": _gloo, "horovod": _horovod, "nccl": _nccl}
