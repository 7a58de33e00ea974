"""Which GPU is whose: local rank r of a node trains on GPU r of those that its framework sees there."""

from __future__ import annotations

import importlib
from typing import Protocol, cast

from dlscale.models.errors import UsageError
from dlscale.models.workload import framework_module

HELP = "see docs/gpu.md"


class GpuModule(Protocol):
    """What `_torch_gpu` and `_tensorflow_gpu` offer."""

    def names(self) -> list[str]:
        """Of the GPUs that this process may use, in CUDA's order."""
        ...

    def version(self) -> str:
        """The framework's, with the build."""
        ...

    def libraries(self) -> dict[str, str]:
        """Versions of what the framework brings along for GPUs."""
        ...

    def has_nccl(self) -> bool:
        """Whether the framework was built with NCCL."""
        ...

    def take(self, local_rank: int) -> None:
        """From now on this process computes on its own GPU. Raises UsageError if there is none for it."""
        ...


def gpu_module(framework: str) -> GpuModule:
    """What a framework knows of GPUs. Imports the framework. Raises UsageError if it is unknown or not installed."""
    framework_module(framework)  # says what is wrong
    return cast(GpuModule, importlib.import_module(f"dlscale.models._{framework}_gpu"))


def check_local_rank(local_rank: int, *, num_gpus: int, framework: str) -> None:
    """Returns if that rank of a node has a GPU of its own. Raises UsageError."""
    if num_gpus == 0:
        raise UsageError(f"device gpu was asked for, but {framework} sees no GPU here; {HELP}")
    if local_rank >= num_gpus:
        raise UsageError(
            f"rank {local_rank} of this node was to train on a GPU of its own, but {framework} sees {num_gpus}; "
            f"start at most {num_gpus} ranks per node, each of which is shown all GPUs"
        )
