"""Backends `gloo`, `nccl` and `xccl`: torch.distributed, under DistributedDataParallel as its users run it.

gloo: Gloo over TCP, on hosts. nccl: NVIDIA's library between GPUs, and AMD's RCCL, which torch for ROCm knows by the
same name; also in TensorFlow, under MultiWorkerMirroredStrategy. xccl: Intel's oneCCL between GPUs, written from the
sources of torch and oneCCL: no GPU has run it yet.
"""

from __future__ import annotations

import gc
import importlib
from dataclasses import dataclass
from typing import Any

from dlscale.collectives import tf_collective
from dlscale.collectives.addresses import refuse_machines
from dlscale.collectives.backend import Backend, Collective, Setup, Trainer
from dlscale.collectives.capabilities import capabilities
from dlscale.collectives.option_kinds import read_options
from dlscale.models.frameworks import check_between_gpus, gpu_module
from dlscale.models.workload import ReplicaFactory, Shard


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """`bucket_cap_mb`: DistributedDataParallel's bucket size [MiB]; 25, torch's default, begins with one of 1 MiB.

    `allow_open_ports`: use the library's unauthenticated sockets between machines too.
    """

    bucket_cap_mb: int = 25
    allow_open_ports: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class NcclOptions(tf_collective.Options):
    """`bucket_cap_mb` as above; `bytes_per_pack_mib` and `port` are of TensorFlow's half, as for `tf_collective`."""

    bucket_cap_mb: int = 25


@dataclass(frozen=True, slots=True)
class Library:
    """A library under torch.distributed as a backend's module (`registry`).

    `interface_variables` tell it which network interfaces to use.
    """

    name: str
    interface_variables: tuple[str, ...]
    Options: type[Options | NcclOptions] = Options

    def check(self, framework: str) -> None:
        """Returns if the framework sees a GPU here and has the library, where it is one for GPUs. Raises UsageError."""
        if capabilities(self.name).between_gpus:
            check_between_gpus(self.name, framework)

    def preload(self, framework: str) -> None:
        """The framework brings the library along. Raises UsageError as `check`."""
        self.check(framework)

    def check_setup(self, options: dict[str, Any], setup: Setup) -> None:
        """Returns if the ranks may open the library's sockets. Raises UsageError."""
        chosen = read_options(self.Options, options, backend=self.name)
        refuse_machines(setup.one_machine, backend=self.name, allowed=chosen.allow_open_ports)

    def connect(self, *, control: Any, framework: str, options: dict[str, Any]) -> Backend:
        """Join the ranks of `control`, each of which has taken its own GPU where it has one; collective.

        Raises UsageError as `check`.
        """
        chosen: Any = read_options(self.Options, options, backend=self.name)
        self.check(framework)
        if framework == "torch":
            return TorchDistributedBackend(self, control, chosen)
        return tf_collective.join(self.name, control, chosen, implementation="nccl", title="NCCL")


gloo = Library("gloo", ("GLOO_SOCKET_IFNAME",))
nccl = Library("nccl", ("NCCL_SOCKET_IFNAME",), NcclOptions)
# Where ranks find each other, and what carries their messages if that is TCP.
xccl = Library("xccl", ("CCL_KVS_IFACE", "FI_TCP_IFACE"))


class TorchDistributedBackend(Backend):
    """DistributedDataParallel over torch's default process group (`Backend`)."""

    def __init__(self, library: Library, control: Any, options: Any) -> None:
        """Form the group; collective."""
        self.name, self._control, self._bucket_cap_mb = library.name, control, options.bucket_cap_mb
        on_gpus = self.capabilities.between_gpus
        gpus: Any = gpu_module("torch") if on_gpus else None
        self._torch = importlib.import_module("dlscale.collectives.torch_distributed._torch")
        # The ranks' meeting file is here, which every further group needs too; None where there is none.
        self._folder = self._torch.form_group(
            self.name,
            control=control,
            allow_open_ports=options.allow_open_ports,
            interface_variables=library.interface_variables,
            device=gpus.current() if on_gpus else None,  # a library between GPUs connects at once
        )

    def distribute(self, factory: ReplicaFactory, *, shard: Shard, seed: int, gate: bool = False) -> Trainer:
        """A replica whose losses are wrapped by DistributedDataParallel, which also broadcasts the weights."""
        replica = factory(shard=shard, seed=seed, gate=gate)
        trainer: Trainer = self._torch.over(replica, bucket_cap_mb=self._bucket_cap_mb)
        return trainer

    def process_group(self) -> Any:
        from torch.distributed.distributed_c10d import _get_default_group

        return _get_default_group()

    def collective(self) -> Collective:
        """The library's operations on host buffers. Raises UsageError if it has none."""
        if not self.capabilities.collective:
            return super().collective()
        collective: Collective = self._torch.HostCollective(self.name)
        return collective

    def close(self) -> None:
        """Leave the process group; trainers are closed before.

        A DistributedDataParallel that still is would be the group's last owner: torch would then wait for the group's
        thread under Python's lock, which that thread may need to let go of a tensor. Both would wait for ever. It
        refers to itself, so only the collector frees it.
        """
        gc.collect()
        self._control.Barrier()  # a group that is still forming elsewhere reads the file
        self._torch.leave_group(self._folder, self._control)
