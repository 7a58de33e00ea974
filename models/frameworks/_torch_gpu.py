"""What torch knows of this machine's NVIDIA GPUs. A rank trains on one, which is torch's current device."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
import torch.distributed as dist

from dlscale.models.frameworks import gpu_of


def names() -> list[str]:
    """Names of the GPUs that this process may use, in CUDA's order."""
    return [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())]


def version() -> str:
    """Torch's own, with the build: "2.13.0+cpu" sees no GPU anywhere."""
    return str(torch.__version__)


def libraries() -> dict[str, str]:
    """Versions of what torch brings along for GPUs; empty for a build without them."""
    versions = {"torch_cuda": str(torch.version.cuda)} if torch.version.cuda else {}
    if has_nccl():
        versions["torch_nccl"] = ".".join(map(str, torch.cuda.nccl.version()))  # type: ignore[no-untyped-call]
    return versions


def has_nccl() -> bool:
    """Whether torch.distributed was built with NCCL."""
    return bool(dist.is_available() and dist.is_nccl_available())


def take(local_rank: int, *, tf32: bool = False) -> None:
    """From now on this process computes on its GPU (`gpu_of`); before it has computed anything.

    In IEEE float32, unless `tf32`: torch's own default lets convolutions round their factors, and products not.
    """
    num_gpus = torch.cuda.device_count()
    torch.cuda.set_device(gpu_of(local_rank, num_gpus=num_gpus, framework=f"torch {version()}"))
    torch.backends.cuda.matmul.allow_tf32 = tf32
    torch.backends.cudnn.allow_tf32 = tf32


def identity() -> str:
    """The UUID of the GPU that was taken."""
    return str(torch.cuda.get_device_properties(torch.cuda.current_device()).uuid)


def peak_memory() -> dict[str, int]:
    """The most that was taken since `forget_peak_memory`, in bytes; cuDNN's and NCCL's own memory is not counted."""
    return {
        "allocated_bytes": torch.cuda.max_memory_allocated(),
        "reserved_bytes": torch.cuda.max_memory_reserved(),
        "total_bytes": torch.cuda.get_device_properties(torch.cuda.current_device()).total_memory,
    }


def forget_peak_memory() -> None:
    """From now on the most is what is taken now, or will be."""
    torch.cuda.reset_peak_memory_stats()


@contextlib.contextmanager
def repeatable() -> Iterator[None]:
    """Within it convolutions add up in the same order each time, by algorithms that may be slower."""
    before = torch.backends.cudnn.deterministic
    torch.backends.cudnn.deterministic = True
    try:
        yield
    finally:
        torch.backends.cudnn.deterministic = before


def current() -> torch.device:
    """The GPU that was taken."""
    return torch.device("cuda", torch.cuda.current_device())


def event() -> Any:
    """A mark that can be set among the GPU's work, and says when it was reached."""
    return torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
