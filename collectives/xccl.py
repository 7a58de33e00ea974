"""Backend `xccl`: Intel's oneCCL between GPUs, by torch.distributed's XCCL under DistributedDataParallel.

Written from the sources of torch and oneCCL. No GPU has run it yet.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from dlscale.collectives.addresses import refuse_machines
from dlscale.collectives.backend import Backend, Setup
from dlscale.collectives.registry import read_options
from dlscale.collectives.torch_distributed import TorchDistributedBackend, form_group
from dlscale.models.frameworks import check_between_gpus, gpu_module

# Where ranks find each other, and what carries their messages if that is TCP.
INTERFACE_VARIABLES = ("CCL_KVS_IFACE", "FI_TCP_IFACE")


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """`bucket_cap_mb`: DistributedDataParallel's bucket size [MiB]; 25, torch's default, begins with one of 1 MiB.

    `allow_open_ports`: use oneCCL's unauthenticated sockets between machines too.
    """

    bucket_cap_mb: int = 25
    allow_open_ports: bool = False


def check(framework: str) -> None:
    """Returns if torch sees a GPU here and has XCCL. Raises UsageError."""
    check_between_gpus("xccl", framework)


def preload(framework: str) -> None:
    """Torch brings oneCCL along. Raises UsageError as `check`."""
    check(framework)


def check_setup(options: dict[str, Any], setup: Setup) -> None:
    """Returns if the ranks may open oneCCL's sockets. Raises UsageError."""
    chosen = read_options(Options, options, backend="xccl")
    refuse_machines(setup.one_machine, backend="xccl", allowed=chosen.allow_open_ports)


def connect(*, control: Any, framework: str, options: dict[str, Any]) -> Backend:
    """Join the ranks of `control`, each of which has taken a GPU of its own; collective.

    Raises UsageError as `check`.
    """
    chosen = read_options(Options, options, backend="xccl")
    check(framework)
    gpus: Any = gpu_module(framework)
    folder = form_group(
        "xccl",
        control=control,
        allow_open_ports=chosen.allow_open_ports,
        interface_variables=INTERFACE_VARIABLES,
        device=gpus.current(),
    )
    return TorchDistributedBackend("xccl", control=control, folder=folder, bucket_cap_mb=chosen.bucket_cap_mb)
