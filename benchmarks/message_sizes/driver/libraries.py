"""The libraries, each called as its own users call it: a table of calls by collective operation.

A message is an array of the library's memory; a table turns it into the call, outside the timed interval.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from dlscale.benchmarks.message_sizes.driver.memory import HOST, Call, Memory, TorchMemory, ended
from dlscale.benchmarks.records.collective_operations import ITEM_BYTES, part

Prepare = Callable[[Any], Call]


class Operation(NamedTuple):
    """What is timed."""

    name: str
    collective: str
    prepare: Prepare
    checked: bool = True  # its result is the collective's
    memory: Any = None  # an array that it wants its messages in
    result: Callable[[Any, Any], Any] | None = None  # from message and what the call gave; else the message


class Library(NamedTuple):
    """A library that was started on this rank."""

    description: str
    thread_level: str
    operations: Sequence[Operation]
    close: Call
    memory: Memory = HOST
    choices: Callable[[], list[dict[str, Any]]] = list  # how it found messages to move fastest


class RankNumbers(NamedTuple):
    """A rank among the ranks, and among those of its node."""

    rank: int
    size: int
    local_rank: int

    def own(self, message: Any) -> Any:
        return message[part(len(message), self.rank, self.size)]


class Results:
    """Memory for results that do not take the message's place, the same at every size."""

    def __init__(self, options: argparse.Namespace, place: RankNumbers, empty: Callable[[int], Any]) -> None:
        self._elements, self._size, self._empty = max(options.sizes) // ITEM_BYTES, place.size, empty
        self._memory: Any = None

    def like(self, message: Any, _: Any = None) -> Any:
        """Memory for as much as the message."""
        if self._memory is None:
            self._memory = self._empty(self._elements)
        return self._memory[: len(message)]

    def part(self, message: Any, _: Any = None) -> Any:
        """Memory for a part of the message."""
        return self.like(message)[: len(message) // self._size]

    def elsewhere(self) -> dict[str, Callable[[Any, Any], Any]]:
        """Where operations leave their results that do not leave them in the message."""
        return {"reduce_scatter": self.part}


def _operations(
    name: str, calls: Mapping[str, Prepare], results: Mapping[str, Callable[[Any, Any], Any]]
) -> list[Operation]:
    return [
        Operation(name, collective, call, result=results.get(collective))
        for collective, call in calls.items()
    ]


def _mpi(options: argparse.Namespace, place: RankNumbers) -> Library:
    import mpi4py

    mpi4py.rc.thread_level = options.thread_level
    from mpi4py import MPI

    world = MPI.COMM_WORLD
    to = Results(options, place, HOST.empty)

    def spec(message: Any) -> Any:
        return [message, MPI.FLOAT]

    calls: dict[str, Prepare] = {
        "allreduce": lambda message: partial(world.Allreduce, MPI.IN_PLACE, spec(message)),
        "reduce_scatter": lambda message: partial(
            world.Reduce_scatter_block, spec(message), spec(to.part(message))
        ),
        "allgather": lambda message: partial(world.Allgather, MPI.IN_PLACE, spec(message)),
        "broadcast": lambda message: partial(world.Bcast, spec(message), 0),
    }
    out_of_place = Operation(
        "mpi-copy",  # as IMB-MPI1 does it
        "allreduce",
        lambda message: partial(world.Allreduce, spec(message), spec(to.like(message))),
        checked=False,
    )
    levels = {
        MPI.THREAD_SINGLE: "single",
        MPI.THREAD_FUNNELED: "funneled",
        MPI.THREAD_SERIALIZED: "serialized",
    }
    return Library(
        _first_line(MPI.Get_library_version()),
        levels.get(MPI.Query_thread(), "multiple"),
        [*_operations("mpi", calls, to.elsewhere()), out_of_place],
        MPI.Finalize,
    )


def _ring(options: argparse.Namespace, place: RankNumbers) -> Library:
    from mpi4py import MPI

    from dlscale.collectives import ring

    engine = ring.join(MPI.COMM_WORLD)
    to = Results(options, place, HOST.empty)
    calls: dict[str, Prepare] = {
        "allreduce": partial(partial, engine.allreduce),
        "reduce_scatter": lambda message: partial(engine.reduce_scatter, message, to.part(message)),
        "allgather": lambda message: partial(engine.allgather, place.own(message), message),
        "broadcast": lambda message: partial(engine.broadcast, message, 0),
    }
    operations = _operations("ring", calls, to.elsewhere())
    if "ring-shared" in options.operations:
        memory = engine.empty(max(options.sizes) // ITEM_BYTES)
        operations.append(Operation("ring-shared", "allreduce", calls["allreduce"], memory=memory))

    def choices() -> list[dict[str, Any]]:
        return [
            {
                "operation": options.operations[0].partition(":")[0],
                "collective": choice.operation,
                "up_to_bytes": choice.up_to_bytes,
                "variant": choice.variant,
                "gigabytes_per_second": choice.gigabytes_per_second,
            }
            for choice in engine.choices()
        ]

    title = f"ring over {_first_line(MPI.Get_library_version())}"
    return Library(title, "multiple", operations, engine.close, choices=choices)


def _first_line(text: str) -> str:
    return text.splitlines()[0].rstrip("\0")


def _gloo(options: argparse.Namespace, place: RankNumbers) -> Library:
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    store = dist.FileStore(options.store, place.size)  # type: ignore[attr-defined]
    dist.init_process_group("gloo", store=store, rank=place.rank, world_size=place.size)
    to = Results(options, place, torch.empty)
    operations = torch_operations("gloo", place, to, view=torch.from_numpy, wait=None)
    return Library(f"Gloo of torch {torch.__version__}", "multiple", operations, dist.destroy_process_group)


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
    import torch.distributed as dist

    store = dist.FileStore(options.store, place.size)  # type: ignore[attr-defined]
    # NCCL connects at once, not in the first call.
    bound = None if device.type == "cpu" else device
    dist.init_process_group(backend, store=store, rank=place.rank, world_size=place.size, device_id=bound)
    memory = TorchMemory(device, wait)
    to = Results(options, place, memory.empty)
    operations = torch_operations(options.backend, place, to, view=lambda message: message, wait=wait)
    return Library(title, "multiple", operations, dist.destroy_process_group, memory)


def torch_operations(
    name: str, place: RankNumbers, to: Results, *, view: Callable[[Any], Any], wait: Call | None
) -> list[Operation]:
    """torch.distributed's operations; `view` makes a message a tensor, and a call ends with `wait`."""
    import torch.distributed as dist

    # Since torch 2.13 the names that everybody uses only warn, at every call, and call the new ones.
    scatter = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor
    gather = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor

    calls: dict[str, Prepare] = {
        "allreduce": lambda message: partial(dist.all_reduce, view(message)),
        "reduce_scatter": lambda message: partial(scatter, to.part(message), view(message)),
        "allgather": lambda message: partial(gather, view(message), place.own(view(message))),
        "broadcast": lambda message: partial(dist.broadcast, view(message), 0),
    }

    def waiting(call: Prepare) -> Prepare:
        return lambda message: ended(call(message), wait)

    all_ended = {collective: waiting(call) for collective, call in calls.items()}
    return _operations(name, all_ended, to.elsewhere())


def _horovod(options: argparse.Namespace, place: RankNumbers) -> Library:  # noqa: ARG001
    import horovod
    import horovod.torch as hvd
    import torch

    torch.set_num_threads(1)
    hvd.init()

    # One name per size, as a training step repeats its buckets: Horovod remembers them by name.
    def named(message: Any) -> str:
        return f"message.{len(message)}"

    def tensor(message: Any) -> Any:
        return torch.from_numpy(message)

    calls: dict[str, Prepare] = {
        "allreduce": lambda m: partial(hvd.allreduce_, tensor(m), op=hvd.Sum, name=named(m)),
        "reduce_scatter": lambda m: partial(hvd.reducescatter, tensor(m), op=hvd.Sum, name=named(m)),
        "allgather": lambda m: partial(hvd.allgather, tensor(place.own(m)), name=named(m)),
        "broadcast": lambda m: partial(hvd.broadcast_, tensor(m), 0, name=named(m)),
    }

    def returned(_: Any, given: Any) -> Any:
        return given  # memory of its own

    operations = _operations("horovod", calls, dict.fromkeys(("reduce_scatter", "allgather"), returned))
    return Library(f"Horovod {horovod.__version__}", "multiple", operations, hvd.shutdown)


START = {"mpi": _mpi, "ring": _ring, "gloo": _gloo, "horovod": _horovod}
START |= dict.fromkeys(("nccl", "xccl"), _between_gpus)
