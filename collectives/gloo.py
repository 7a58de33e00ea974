"""Backend `gloo`: torch.distributed with Gloo, under DistributedDataParallel as its users run it."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dlscale.collectives.addresses import refuse_machines
from dlscale.collectives.backend import Setup
from dlscale.collectives.buffers import aligned_zeros, check_buffer, check_operation, check_root
from dlscale.collectives.registry import read_options
from dlscale.collectives.torch_distributed import TIMEOUT, TorchDistributedBackend, form_group


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """`bucket_cap_mb`: DistributedDataParallel's bucket size [MiB]; 25, torch's default, begins with one of 1 MiB.

    `allow_open_ports`: use Gloo's unauthenticated sockets between machines too.
    """

    bucket_cap_mb: int = 25
    allow_open_ports: bool = False


def check_setup(options: dict[str, Any], setup: Setup) -> None:
    """Returns if the ranks may open Gloo's sockets. Raises UsageError."""
    chosen = read_options(Options, options, backend="gloo")
    refuse_machines(setup.one_machine, backend="gloo", allowed=chosen.allow_open_ports)


def connect(*, control: Any, framework: str, options: dict[str, Any]) -> TorchDistributedBackend:  # noqa: ARG001
    """Form torch's default process group over the ranks of `control`; collective. Raises UsageError as `form_group`."""
    chosen = read_options(Options, options, backend="gloo")
    folder = form_group(
        "gloo",
        control=control,
        allow_open_ports=chosen.allow_open_ports,
        interface_variables=("GLOO_SOCKET_IFNAME",),
    )
    return TorchDistributedBackend(
        "gloo",
        control=control,
        folder=folder,
        bucket_cap_mb=chosen.bucket_cap_mb,
        make_collective=GlooCollective,
    )


class GlooCollective:
    """Host-buffer operations of a process group over all ranks (`Collective`)."""

    def __init__(self) -> None:
        import torch.distributed as dist

        self._group: Any = dist.new_group(backend="gloo", timeout=TIMEOUT)
        # The group's threads let go of a tensor after its operation is done. If theirs is the last reference they need
        # Python's lock for that, under which torch 2.4 waits for them when the group ends: both would wait for ever.
        self._held: deque[Any] = deque(maxlen=16)
        self.rank: int = dist.get_rank()
        self.size: int = dist.get_world_size()

    def allreduce(self, buffer: NDArray[Any], op: str = "sum") -> None:
        """Sum, average, min or max over ranks, in place; Gloo of torch 2.4 has no average."""
        import torch.distributed as dist

        check_buffer(buffer)
        check_operation(op, buffer)
        kinds = {"sum": "SUM", "average": "SUM", "min": "MIN", "max": "MAX"}
        self._call("all_reduce", buffer, op=getattr(dist.ReduceOp, kinds[op]))
        if op == "average":
            buffer /= self.size

    def empty(self, count: int, dtype: str = "float32") -> NDArray[Any]:
        """Ordinary memory: Gloo sends from anywhere."""
        return aligned_zeros(count, dtype)

    def broadcast(self, buffer: NDArray[Any], root: int = 0) -> None:
        check_root(root, size=self.size)
        self._call("broadcast", buffer, src=root)

    def reduce_scatter(self, buffer: NDArray[Any], output: NDArray[Any], op: str = "sum") -> None:
        import torch.distributed as dist

        check_buffer(buffer, written=False)
        check_operation(op, output)
        kinds = {"sum": "SUM", "average": "SUM", "min": "MIN", "max": "MAX"}
        self._call(_single("reduce_scatter"), output, buffer, op=getattr(dist.ReduceOp, kinds[op]))
        if op == "average":
            output /= self.size

    def allgather(self, piece: NDArray[Any], output: NDArray[Any]) -> None:
        check_buffer(piece, written=False)
        self._call(_single("all_gather"), output, piece)

    def barrier(self) -> None:
        self._call("all_reduce", np.zeros(1, dtype=np.float32))

    def settings(self) -> dict[str, str | int | float | bool]:
        """Nothing: the algorithm is Gloo's own choice."""
        return {}

    def close(self) -> None:
        import torch.distributed as dist

        if self._group is not None:
            dist.destroy_process_group(self._group)
            self._group = None

    def _call(self, operation: str, *buffers: NDArray[Any], **arguments: Any) -> None:
        """An operation of torch.distributed in place, or from the second buffer to the first."""
        import torch
        import torch.distributed as dist

        if self._group is None:
            raise RuntimeError(f"{operation} on a closed gloo collective")
        check_buffer(buffers[0])
        tensors = [torch.from_numpy(buffer) for buffer in buffers]
        self._held.extend(tensors)
        getattr(dist, operation)(*tensors, group=self._group, **arguments)


def _single(operation: str) -> str:
    """Torch's name of an operation from one tensor to one: before 2.13 it had another."""
    import torch.distributed as dist

    older = {"reduce_scatter": "reduce_scatter_tensor", "all_gather": "all_gather_into_tensor"}
    name = f"{operation}_single"
    return name if hasattr(dist, name) else older[operation]
