"""Backend `nccl`: NVIDIA's library between GPUs, by DistributedDataParallel and by MultiWorkerMirroredStrategy.

With a torch for ROCm it is AMD's RCCL, which torch knows by the same name.
"""

from __future__ import annotations

import importlib
import os
from dataclasses import dataclass
from typing import Any

from dlscale.collectives import tf_collective
from dlscale.collectives.addresses import LOOPBACK, refuse_machines
from dlscale.collectives.backend import Backend, Setup
from dlscale.collectives.registry import read_options
from dlscale.collectives.torch_distributed import TorchDistributedBackend, form_group
from dlscale.models.frameworks import check_between_gpus, gpu_module

INTERFACE_VARIABLE = "NCCL_SOCKET_IFNAME"


@dataclass(frozen=True, slots=True, kw_only=True)
class Options(tf_collective.Options):
    """`bucket_cap_mb`: DistributedDataParallel's bucket size [MiB]; 25, torch's default, begins with one of 1 MiB.

    `bytes_per_pack_mib` and `port` are of TensorFlow's half, as for `tf_collective`. `allow_open_ports`: use NCCL's
    and the frameworks' own unauthenticated sockets between machines too.
    """

    bucket_cap_mb: int = 25


def check(framework: str) -> None:
    """Returns if the framework sees a GPU here and has NCCL, or RCCL. Raises UsageError."""
    check_between_gpus("nccl", framework)


def preload(framework: str) -> None:
    """The framework brings NCCL along. Raises UsageError as `check`."""
    check(framework)


def check_setup(options: dict[str, Any], setup: Setup) -> None:
    """Returns if the ranks may open NCCL's sockets. Raises UsageError."""
    chosen = read_options(Options, options, backend="nccl")
    refuse_machines(setup.one_machine, backend="nccl", allowed=chosen.allow_open_ports)


def connect(*, control: Any, framework: str, options: dict[str, Any]) -> Backend:
    """Join the ranks of `control`, each of which has taken a GPU of its own; collective.

    Raises UsageError as `check`.
    """
    chosen = read_options(Options, options, backend="nccl")
    check(framework)
    join = _join_torch if framework == "torch" else _join_tensorflow
    return join(control, chosen)


def _join_torch(control: Any, chosen: Options) -> Backend:
    gpus: Any = gpu_module("torch")
    folder = form_group(
        "nccl",
        control=control,
        allow_open_ports=chosen.allow_open_ports,
        interface_variables=(INTERFACE_VARIABLE,),
        device=gpus.current(),  # NCCL connects at once, not in the first step
    )
    return TorchDistributedBackend("nccl", control=control, folder=folder, bucket_cap_mb=chosen.bucket_cap_mb)


def _join_tensorflow(control: Any, chosen: Options) -> Backend:
    addresses = tf_collective.agree_on_addresses(control, chosen, backend="nccl")
    if all(address.startswith(LOOPBACK) for address in addresses):
        os.environ[INTERFACE_VARIABLE] = "lo"
    strategies = importlib.import_module("dlscale.collectives.tf_collective._tensorflow")
    strategy = strategies.multi_worker(addresses, index=control.Get_rank(), implementation="nccl")
    return tf_collective.TensorFlowCollective("nccl", chosen, strategy, control, implementation="NCCL")
