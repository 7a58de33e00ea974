"""Backend `gloo`: torch.distributed with Gloo, under DistributedDataParallel as its users run it."""

from __future__ import annotations

import contextlib
import os
import tempfile
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dlscale.collectives.backend import Capabilities, Collective, Trainer
from dlscale.collectives.buffers import aligned_zeros, check_buffer, check_operation, check_root
from dlscale.collectives.capabilities import capabilities
from dlscale.collectives.options import read_options
from dlscale.models.errors import UsageError
from dlscale.models.workload import ReplicaFactory, Shard

TIMEOUT = timedelta(minutes=5)


@dataclass(frozen=True, slots=True)
class Options:
    """`bucket_cap_mb`: DistributedDataParallel's bucket size [MiB]; torch's default is 25."""

    bucket_cap_mb: int = 25


def connect(*, control: Any, options: dict[str, Any]) -> GlooBackend:
    """Form torch's default process group over the ranks of `control`; collective.

    Gloo opens sockets without asking who connects. Inside one machine they are bound to loopback and the
    ranks find each other through a file in a private folder; across machines this version refuses.
    """
    chosen = read_options(Options, options, backend="gloo")
    from mpi4py import MPI

    node = control.Split_type(MPI.COMM_TYPE_SHARED)
    one_machine = node.Get_size() == control.Get_size()
    node.Free()
    if not one_machine:
        raise UsageError(
            "backend gloo was asked for across machines, where its sockets would be open to anyone "
            "on the network; use mpi or ring there"
        )
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    import torch.distributed as dist
    from torch.distributed import FileStore  # type: ignore[attr-defined]

    folder = control.bcast(tempfile.mkdtemp(prefix="dlscale-gloo-") if control.Get_rank() == 0 else None)
    dist.init_process_group(
        "gloo",
        store=FileStore(str(Path(folder) / "store"), control.Get_size()),
        rank=control.Get_rank(),
        world_size=control.Get_size(),
        timeout=TIMEOUT,
    )
    return GlooBackend(chosen, control=control, folder=Path(folder))


class GlooBackend:
    """DistributedDataParallel over Gloo (`Backend`)."""

    def __init__(self, options: Options, *, control: Any, folder: Path) -> None:
        self._options = options
        self._control = control
        self._folder = folder  # of the ranks' meeting file, which every further group needs too

    @property
    def capabilities(self) -> Capabilities:
        """This backend's row of the table."""
        return capabilities("gloo")

    @property
    def delay(self) -> int:
        """None: a step applies its own gradients."""
        return 0

    @property
    def wire(self) -> str:
        """Gradients are not rounded on their way."""
        return "float32"

    def distribute(self, factory: ReplicaFactory, *, shard: Shard, seed: int, gate: bool = False) -> Trainer:
        """A replica whose losses are wrapped by DistributedDataParallel, which also broadcasts the weights."""
        from dlscale.collectives.fronts._torch import TorchTrainer
        from dlscale.collectives.fronts._torch_ddp import DdpExchange

        replica = factory(shard=shard, seed=seed, gate=gate)
        return TorchTrainer(
            replica,
            [DdpExchange(o, bucket_cap_mb=self._options.bucket_cap_mb) for o in replica.objectives],
        )

    def collective(self) -> Collective:
        """Gloo's operations on a process group of their own."""
        return GlooCollective()

    def close(self) -> None:
        """Leave the process group."""
        import torch.distributed as dist

        self._control.Barrier()  # a group that is still forming elsewhere reads the file
        dist.destroy_process_group()
        self._control.Barrier()
        if self._control.Get_rank() == 0:
            # The last store to go removes the file. Where one is still held the folder must stay: a store whose
            # file cannot be opened any more waits for it until the timeout.
            with contextlib.suppress(OSError):
                self._folder.rmdir()


class GlooCollective:
    """Host-buffer operations of a process group over all ranks (`Collective`)."""

    def __init__(self) -> None:
        import torch.distributed as dist

        self._group: Any = dist.new_group(backend="gloo", timeout=TIMEOUT)
        self.rank: int = dist.get_rank()
        self.size: int = dist.get_world_size()

    def allreduce(self, buffer: NDArray[Any], op: str = "sum") -> None:
        """Sum, average, min or max over ranks, in place; Gloo averages by itself."""
        import torch.distributed as dist

        check_buffer(buffer)
        check_operation(op, buffer)
        kinds = {"sum": "SUM", "average": "AVG", "min": "MIN", "max": "MAX"}
        self._call("all_reduce", buffer, op=getattr(dist.ReduceOp, kinds[op]))

    def empty(self, count: int, dtype: str = "float32") -> NDArray[Any]:
        """Ordinary memory: Gloo sends from anywhere."""
        return aligned_zeros(count, dtype)

    def broadcast(self, buffer: NDArray[Any], root: int = 0) -> None:
        """Copy of root's buffer, in place."""
        check_root(root, size=self.size)
        self._call("broadcast", buffer, src=root)

    def barrier(self) -> None:
        """Wait for all ranks."""
        self._call("all_reduce", np.zeros(1, dtype=np.float32))

    def settings(self) -> dict[str, str | int | float | bool]:
        """Nothing: the algorithm is Gloo's own choice."""
        return {}

    def close(self) -> None:
        """Destroy the process group."""
        import torch.distributed as dist

        if self._group is not None:
            dist.destroy_process_group(self._group)
            self._group = None

    def _call(self, operation: str, buffer: NDArray[Any], **arguments: Any) -> None:
        import torch
        import torch.distributed as dist

        if self._group is None:
            raise RuntimeError(f"{operation} on a closed gloo collective")
        check_buffer(buffer)
        getattr(dist, operation)(torch.from_numpy(buffer), group=self._group, **arguments)
