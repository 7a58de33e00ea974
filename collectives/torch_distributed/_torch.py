"""Torch's process groups: how ranks form one, its operations on host buffers, and DistributedDataParallel over it."""

from __future__ import annotations

import atexit
import inspect
import os
import shutil
import tempfile
from collections import deque
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from dlscale.base.errors import UsageError
from dlscale.collectives.addresses import free_port, own_address, refuse_open_ports
from dlscale.collectives.backend import BUCKET_SIZES, Setting
from dlscale.collectives.buffers import aligned_zeros, check_buffer, check_operation, check_root
from dlscale.collectives.training._torch import NoExchange, TorchTrainer

TIMEOUT = timedelta(minutes=5)
# Torch before 2.13 has one option for both: without it buffers are still those of rank 0 at first.
_OPTION = "forward_sync_buffers"
if _OPTION not in inspect.signature(DistributedDataParallel).parameters:
    _OPTION = "broadcast_buffers"
LOCAL_BUFFERS: dict[str, Any] = {_OPTION: False}
TORCHS_OWN_MB = 25  # of DistributedDataParallel, where nobody gives a size
OPERATIONS = {"sum": "SUM", "average": "SUM", "min": "MIN", "max": "MAX"}  # Gloo of torch 2.4 has no average


def form_group(
    name: str,
    *,
    control: Any,
    allow_open_ports: bool,
    interface_variables: tuple[str, ...],
    device: torch.device | None,
) -> Path | None:
    """Form torch's default process group over the ranks of `control`; collective. Raises UsageError.

    No library asks who connects. Inside one machine their sockets are bound to loopback, by the variables with
    which they are told their interface, and the ranks find each other through a file in a private folder, which is
    returned. Across machines, where that is allowed, rank 0 listens for the others. `device` is the GPU of this rank.
    """
    one_machine = refuse_open_ports(control, backend=name, allowed=allow_open_ports)
    folder = None
    if one_machine:
        made = tempfile.mkdtemp(prefix=f"dlscale-{name}-") if control.Get_rank() == 0 else ""
        if made:  # goes with its process where an error leaves no time to remove it before
            atexit.register(shutil.rmtree, made, ignore_errors=True)
        folder = Path(control.bcast(made))
        store = dist.FileStore(str(folder / "store"), control.Get_size())  # type: ignore[attr-defined]
        for variable in interface_variables:
            if not (allow_open_ports and variable in os.environ):
                os.environ[variable] = "lo"
    else:
        store = _tcp_store(control)
    dist.init_process_group(
        name,
        store=store,
        rank=control.Get_rank(),
        world_size=control.Get_size(),
        timeout=TIMEOUT,
        device_id=device,
    )
    return folder


def leave_group(folder: Path | None, control: Any) -> None:
    """End the default group, and remove its folder; collective.

    A store removes its file only if it is the last to be counted, which two that go at once both may miss, and which a
    group that torch still holds (`fully_shard`'s mesh) never is. One whose file is gone does nothing when it goes.
    """
    dist.destroy_process_group()
    control.Barrier()
    if folder and control.Get_rank() == 0:
        shutil.rmtree(folder, ignore_errors=True)


def _tcp_store(control: Any) -> Any:
    """A store that rank 0 holds, at an address that the other machines reach. Raises UsageError if it has none."""
    first = control.Get_rank() == 0
    address, port, problem = "", 0, ""
    if first:
        try:
            address, port = own_address(one_machine=False), free_port()
        except UsageError as error:
            problem = str(error)
    address, port, problem = control.bcast((address, port, problem))
    if problem:
        raise UsageError(problem)
    return dist.TCPStore(  # type: ignore[attr-defined]
        address, port, control.Get_size(), is_master=first, timeout=TIMEOUT, wait_for_workers=False
    )


class HostCollective:
    """Host-buffer operations of a further process group over all ranks (`PartsCollective`)."""

    def __init__(self, name: str) -> None:
        self._group: Any = dist.new_group(backend=name, timeout=TIMEOUT)
        # The group's threads let go of a tensor after its operation is done. If theirs is the last reference they need
        # Python's lock for that, under which torch 2.4 waits for them when the group ends: both would wait for ever.
        self._held: deque[Any] = deque(maxlen=16)
        self.rank: int = dist.get_rank()
        self.size: int = dist.get_world_size()

    def allreduce(self, buffer: NDArray[Any], op: str = "sum") -> None:
        """Sum, average, min or max over ranks, in place."""
        check_buffer(buffer)
        check_operation(op, buffer)
        self._call("all_reduce", buffer, op=getattr(dist.ReduceOp, OPERATIONS[op]))
        if op == "average":
            buffer /= self.size

    def empty(self, count: int, dtype: str = "float32") -> NDArray[Any]:
        """Ordinary memory: Gloo sends from anywhere."""
        return aligned_zeros(count, dtype)

    def broadcast(self, buffer: NDArray[Any], root: int = 0) -> None:
        check_root(root, size=self.size)
        self._call("broadcast", buffer, src=root)

    def reduce_scatter(self, buffer: NDArray[Any], output: NDArray[Any], op: str = "sum") -> None:
        check_buffer(buffer, written=False)
        check_operation(op, output)
        operation = _single("reduce_scatter", "reduce_scatter_tensor")
        self._call(operation, output, buffer, op=getattr(dist.ReduceOp, OPERATIONS[op]))
        if op == "average":
            output /= self.size

    def allgather(self, piece: NDArray[Any], output: NDArray[Any]) -> None:
        check_buffer(piece, written=False)
        self._call(_single("all_gather", "all_gather_into_tensor"), output, piece)

    def barrier(self) -> None:
        self._call("all_reduce", np.zeros(1, dtype=np.float32))

    def settings(self) -> dict[str, str | int | float | bool]:
        """Nothing: the algorithm is Gloo's own choice."""
        return {}

    def close(self) -> None:
        if self._group is not None:
            dist.destroy_process_group(self._group)
            self._group = None

    def _call(self, operation: str, *buffers: NDArray[Any], **arguments: Any) -> None:
        """An operation of torch.distributed in place, or from the second buffer to the first."""
        if self._group is None:
            raise RuntimeError(f"{operation} on a closed gloo collective")
        check_buffer(buffers[0])
        tensors = [torch.from_numpy(buffer) for buffer in buffers]
        self._held.extend(tensors)
        getattr(dist, operation)(*tensors, group=self._group, **arguments)


def _single(operation: str, older: str) -> str:
    """Torch's name of an operation from one tensor to one, which was another before 2.13."""
    name = f"{operation}_single"
    return name if hasattr(dist, name) else older


def over(replica: Any, *, bucket_cap_mb: int) -> TorchTrainer:
    """The replica under DistributedDataParallel, which broadcasts the weights of rank 0; collective."""
    return TorchTrainer(replica, [DdpExchange(o, bucket_cap_mb=bucket_cap_mb) for o in replica.objectives])


class DdpExchange(NoExchange):
    """Averages gradients in DistributedDataParallel's buckets, the last of them before backward() returns.

    Gradients are views into the buckets, which saves a copy. Buffers stay local while training, as over every backend.
    """

    def __init__(self, objective: Any, *, bucket_cap_mb: int) -> None:
        super().__init__(objective)
        own = {id(parameter) for parameter in objective.parameters}
        others = [name for name, p in objective.loss.named_parameters() if id(p) not in own]
        ignore = DistributedDataParallel._set_params_and_buffers_to_ignore_for_model
        ignore(objective.loss, others)  # type: ignore[no-untyped-call]
        self.loss = DistributedDataParallel(
            objective.loss,
            gradient_as_bucket_view=True,
            # Given, a size holds for all buckets, torch's own 25 MiB too. Left out, as users leave it, the first bucket
            # has 1 MiB, so that the exchange begins early in backpropagation.
            bucket_cap_mb=None if bucket_cap_mb == TORCHS_OWN_MB else bucket_cap_mb,
            **LOCAL_BUFFERS,
        )
        self._bucket_cap_mb = bucket_cap_mb

    def settings(self) -> dict[str, Setting]:
        """DistributedDataParallel's settings that differ from its defaults, and its buckets.

        The buckets are counted: after the first step it cuts them anew, by the order of the gradients.
        """
        counted: dict[str, Any] = self.loss._get_ddp_logging_data()  # type: ignore[operator]
        sizes = counted.get("rebuilt_bucket_sizes") or counted.get("bucket_sizes")
        return {
            **({BUCKET_SIZES: sizes.replace(" ", "")} if sizes else {}),
            "bucket_cap_mb": self._bucket_cap_mb,
            "gradient_as_bucket_view": True,
            **LOCAL_BUFFERS,
            "overlap": True,
        }

    def close(self) -> None:
        """Release DistributedDataParallel, which must not outlive its process group (`TorchDistributedBackend`)."""
        self.loss = nn.Identity()
