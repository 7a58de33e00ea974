"""What Gloo, NCCL and XCCL have in common: torch's process groups, under DistributedDataParallel as users run them."""

from __future__ import annotations

import atexit
import gc
import os
import shutil
import tempfile
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

from dlscale.base.errors import UsageError
from dlscale.collectives.addresses import free_port, own_address, refuse_open_ports
from dlscale.collectives.backend import Collective, InStep, Trainer
from dlscale.models.workload import ReplicaFactory, Shard

TIMEOUT = timedelta(minutes=5)


def form_group(
    name: str,
    *,
    control: Any,
    allow_open_ports: bool,
    interface_variables: tuple[str, ...],
    device: Any = None,
) -> Path | None:
    """Form torch's default process group over the ranks of `control`; collective.

    No library asks who connects. Inside one machine their sockets are bound to loopback, by the variables with
    which they are told their interface, and the ranks find each other through a file in a private folder, which is
    returned. Across machines, where that is allowed, rank 0 listens for the others. `device` is the GPU of this rank.
    """
    import torch.distributed as dist

    one_machine = refuse_open_ports(control, backend=name, allowed=allow_open_ports)
    folder = _private_folder(name, control) if one_machine else None
    for variable in interface_variables if one_machine else ():
        if not (allow_open_ports and variable in os.environ):
            os.environ[variable] = "lo"
    dist.init_process_group(
        name,
        store=_file_store(folder, control) if folder else _tcp_store(control),
        rank=control.Get_rank(),
        world_size=control.Get_size(),
        timeout=TIMEOUT,
        device_id=device,
    )
    return folder


def remove_meeting_place(folder: Path | None, control: Any) -> None:
    """Nobody meets there any more; collective.

    A store removes the file only if it is the last to be counted, which two that go at once both may miss, and which a
    group that torch still holds (`fully_shard`'s mesh) never is. One whose file is gone does nothing when it goes.
    """
    control.Barrier()
    if folder and control.Get_rank() == 0:
        _remove(folder)


def _private_folder(name: str, control: Any) -> Path:
    """One that goes with its process where an error leaves no time to remove it before."""
    made = None
    if control.Get_rank() == 0:
        made = tempfile.mkdtemp(prefix=f"dlscale-{name}-")
        atexit.register(_remove, Path(made))
    return Path(control.bcast(made))


def _remove(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)


def _file_store(folder: Path, control: Any) -> Any:
    from torch.distributed import FileStore  # type: ignore[attr-defined]

    return FileStore(str(folder / "store"), control.Get_size())


def _tcp_store(control: Any) -> Any:
    """A store that rank 0 holds, at an address that the other machines reach. Raises UsageError if it has none."""
    from torch.distributed import TCPStore  # type: ignore[attr-defined]

    first = control.Get_rank() == 0
    place, problem = ("", 0), ""
    if first:
        try:
            address = own_address(one_machine=False)
            place = (address, free_port())
        except UsageError as error:
            problem = str(error)
    (address, port), problem = control.bcast((place, problem))
    if problem:
        raise UsageError(problem)
    return TCPStore(
        address, port, control.Get_size(), is_master=first, timeout=TIMEOUT, wait_for_workers=False
    )


class TorchDistributedBackend(InStep):
    """DistributedDataParallel over torch's default process group (`Backend`).

    `folder` is that of the ranks' meeting file, which every further group needs too; None where there is none.
    """

    def __init__(
        self,
        name: str,
        *,
        control: Any,
        folder: Path | None,
        bucket_cap_mb: int,
        make_collective: Callable[[], Collective] | None = None,
    ) -> None:
        self.name, self._control, self._folder = name, control, folder
        self._bucket_cap_mb, self._make_collective = bucket_cap_mb, make_collective

    def distribute(self, factory: ReplicaFactory, *, shard: Shard, seed: int, gate: bool = False) -> Trainer:
        """A replica whose losses are wrapped by DistributedDataParallel, which also broadcasts the weights."""
        from dlscale.collectives.torch_distributed._torch import DdpExchange
        from dlscale.collectives.training._torch import TorchTrainer

        replica = factory(shard=shard, seed=seed, gate=gate)
        return TorchTrainer(
            replica, [DdpExchange(o, bucket_cap_mb=self._bucket_cap_mb) for o in replica.objectives]
        )

    def process_group(self) -> Any:
        from torch.distributed.distributed_c10d import _get_default_group

        return _get_default_group()

    def collective(self) -> Collective:
        """The library's operations on host buffers. Raises UsageError if it has none."""
        if self._make_collective is None:
            raise UsageError(f"backend {self.name} has no operations on host buffers")
        return self._make_collective()

    def close(self) -> None:
        """Leave the process group; trainers are closed before.

        A DistributedDataParallel that still is would be the group's last owner: torch would then wait for the group's
        thread under Python's lock, which that thread may need to let go of a tensor. Both would wait for ever. It
        refers to itself, so only the collector frees it.
        """
        import torch.distributed as dist

        gc.collect()
        self._control.Barrier()  # a group that is still forming elsewhere reads the file
        dist.destroy_process_group()
        remove_meeting_place(self._folder, self._control)
