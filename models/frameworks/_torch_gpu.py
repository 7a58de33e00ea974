"""What torch knows of this machine's GPUs. A rank trains on one, which is torch's current device.

A build of torch is for GPUs of NVIDIA, of AMD (by ROCm; torch calls them "cuda", too), of Intel ("xpu"), or for none.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
import torch.distributed as dist

from dlscale.base.errors import UsageError
from dlscale.models.frameworks import GPU_HELP, TF32_CAPABILITY, check_tf32, gpu_of

KIND = "xpu" if getattr(torch.version, "xpu", None) else "cuda"  # torch's name of its build's GPUs


def _gpus() -> Any:
    return getattr(torch, KIND)


def names() -> list[str]:
    """Names of the GPUs that this process may use, in the driver's order."""
    return [_gpus().get_device_name(index) for index in range(_gpus().device_count())]


def version() -> str:
    """Torch's own, with the build: "2.13.0+cpu" sees no GPU anywhere."""
    return str(torch.__version__)


def libraries() -> dict[str, str]:
    """Versions of what torch brings along for GPUs; empty for a build without them."""
    builds = {"torch_cuda": torch.version.cuda, "torch_rocm": torch.version.hip}
    builds["torch_xpu"] = getattr(torch.version, "xpu", None)
    versions = {name: str(build) for name, build in builds.items() if build}
    backend, library = exchange_library()
    if backend == "nccl":
        name, version = library.split()
        versions[f"torch_{name.lower()}"] = version
    return versions


def exchange_library() -> tuple[str, str]:
    """The backend between GPUs that torch.distributed was built with, and its library's name, with what torch tells."""
    if not dist.is_available():
        return "", ""
    if dist.is_nccl_available():
        version = ".".join(map(str, torch.cuda.nccl.version()))  # type: ignore[no-untyped-call]
        return "nccl", f"{'RCCL' if torch.version.hip else 'NCCL'} {version}"
    has_xccl = getattr(dist, "is_xccl_available", None)  # torch 2.4 knows nothing of it
    return ("xccl", "oneCCL") if has_xccl and has_xccl() else ("", "")


def without_tf32() -> list[str]:
    """Names of the GPUs that have no TF32: those of other makers than NVIDIA, and old ones."""
    nvidias = KIND == "cuda" and not torch.version.hip
    return [
        name
        for index, name in enumerate(names())
        if not nvidias or torch.cuda.get_device_capability(index) < TF32_CAPABILITY
    ]


def take(local_rank: int, *, tf32: bool = False) -> None:
    """From now on this process computes on its GPU (`gpu_of`); before it has computed anything. Raises UsageError.

    In IEEE float32, unless `tf32`: torch's own default lets convolutions round their factors, and products not.
    """
    num_gpus = _gpus().device_count()
    _gpus().set_device(gpu_of(local_rank, num_gpus=num_gpus, framework=f"torch {version()}"))
    check_tf32(f"torch {version()}", without_tf32() if tf32 else ())
    torch.backends.cuda.matmul.allow_tf32 = tf32
    torch.backends.cudnn.allow_tf32 = tf32


def identity() -> str:
    """The UUID of the GPU that was taken; its place on the PCI bus where torch does not tell that."""
    properties = _properties()
    if uuid := getattr(properties, "uuid", None):
        return str(uuid)
    places = [getattr(properties, f"pci_{part}_id", None) for part in ("domain", "bus", "device")]
    if None in places:
        raise UsageError(
            f"torch {version()} tells neither a GPU's UUID nor its PCI bus; take a newer torch; {GPU_HELP}"
        )
    domain, bus, device = places
    return f"PCI {domain:04x}:{bus:02x}:{device:02x}"


def _properties() -> Any:
    return _gpus().get_device_properties(_gpus().current_device())


def peak_memory() -> dict[str, int]:
    """The most that was taken since `forget_peak_memory`, in bytes; cuDNN's and NCCL's own memory is not counted."""
    return {
        "allocated_bytes": _gpus().max_memory_allocated(),
        "reserved_bytes": _gpus().max_memory_reserved(),
        "total_bytes": _properties().total_memory,
    }


def forget_peak_memory() -> None:
    """From now on the most is what is taken now, or will be."""
    _gpus().reset_peak_memory_stats()


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
    return torch.device(KIND, _gpus().current_device())
