"""The frameworks that networks are written in: their modules by name, and which GPU is whose.

Nothing here imports a framework before it is asked for. Local rank r of a node trains on GPU r of those that its
framework sees there.
"""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Sequence
from typing import Any

from dlscale.base.errors import UsageError, unknown

FRAMEWORKS = ("torch", "tensorflow")  # what `all` stands for
DEVICES = ("cpu", "gpu")


def framework_module(framework: str) -> Any:
    """What all networks of a framework share, with `prepare`, to be called before it computes anything.

    `prepare(num_threads, device=..., local_rank=..., precision=..., compiles=...)` gives it its threads, and GPU number
    `local_rank` of this node or none, with TF32 only where that is the precision. Imports the framework. Raises
    UsageError if it is unknown or not installed.
    """
    if framework not in FRAMEWORKS:
        raise UsageError(unknown("framework", framework, FRAMEWORKS))
    try:
        return importlib.import_module(f"dlscale.models.frameworks._{framework}")
    except ModuleNotFoundError as error:
        raise UsageError(
            f"{framework} is not installed here ({error}); pip install 'dlscale[{framework}]'"
        ) from error


def check_precision(precision: str, *, device: str) -> None:
    """Returns if the device computes in that precision. Raises UsageError."""
    if (precision, device) == ("tf32", "cpu"):
        raise UsageError(
            "precision tf32 was asked for on device cpu, and cores do not have it; choose fp32 or bf16, or --device gpu"
        )


GPU_HELP = "see docs/gpu.md"
TORCH_GPUS = ("cuda", "xpu")  # torch's names: GPUs of NVIDIA and, by ROCm, of AMD; of Intel


def gpu_module(framework: str) -> Any:
    """What a framework knows of GPUs: `_torch_gpu` or `_tensorflow_gpu`, whose functions both have.

    Imports the framework. Raises UsageError if it is unknown or not installed.
    """
    framework_module(framework)  # says what is wrong
    return importlib.import_module(f"dlscale.models.frameworks._{framework}_gpu")


def check_between_gpus(backend: str, framework: str) -> None:
    """Returns if the framework sees a GPU here and was built with what that backend is made of. Raises UsageError."""
    gpus = gpu_module(framework)
    what = f"{framework} {gpus.version()}"
    if not gpus.names():
        raise UsageError(f"backend {backend} needs a GPU; {what} sees none; {GPU_HELP}")
    built_with, library = gpus.exchange_library()
    if built_with != backend:
        found = f"exchanges between its GPUs by {library}" if library else "has no library between GPUs"
        instead = f"choose --backends {built_with}" if built_with else GPU_HELP
        raise UsageError(f"backend {backend} was asked for, but {what} {found}; {instead}")


def repeatable(framework: str, *, device: str) -> contextlib.AbstractContextManager[None]:
    """Within it gradients are the same each time, also on GPUs of torch: for checks, not for what is timed."""
    on_gpu: Any = (framework, device) == ("torch", "gpu")
    return gpu_module("torch").repeatable() if on_gpu else contextlib.nullcontext()


TF32_CAPABILITY = (8, 0)  # of NVIDIA's GPUs that have it; frameworks switch nothing of the kind on others


def check_tf32(framework: str, without: Sequence[str]) -> None:
    """Returns if of the GPUs that the framework sees none is `without` TF32. Raises UsageError."""
    if without:
        raise UsageError(
            f"precision tf32 was asked for, but {framework} sees {without[0]}, which has no TF32: NVIDIA's GPUs have "
            "it from compute capability 8.0 on; choose fp32 or bf16"
        )


def gpu_of(local_rank: int, *, num_gpus: int, framework: str) -> int:
    """The number of a rank's GPU among those that its framework sees: all of the node's, or its own alone.

    Raises UsageError where it is neither. Whether two ranks have one GPU is seen by what `identity` says on each.
    """
    if num_gpus == 0:
        raise UsageError(f"device gpu was asked for, but {framework} sees no GPU here; {GPU_HELP}")
    if num_gpus > 1 and local_rank >= num_gpus:
        raise UsageError(
            f"rank {local_rank} of this node was to train on a GPU of its own, but {framework} sees {num_gpus}; "
            f"start at most {num_gpus} ranks per node, or have the launcher show each rank its own GPU, or all of the "
            "node's"
        )
    return local_rank if num_gpus > 1 else 0


def taken_gpu(framework: str, workers: Any, *, machine: str) -> str:
    """What names the GPU that this rank has taken; collective. Raises UsageError on all ranks if two have one GPU.

    `machine` names the rank's: a place on the PCI bus says nothing between machines, nor do UUIDs of virtual GPUs.
    """
    gpus: list[tuple[str, str]] = workers.allgather((machine, gpu_module(framework).identity()))
    for place in gpus:
        sharing = [str(rank) for rank, other in enumerate(gpus) if other == place]
        if len(sharing) > 1:
            raise UsageError(
                f"ranks {' and '.join(sharing)} were to train on GPUs of their own, but all have GPU {place[1]}; start "
                f"one rank per GPU, and have the launcher show each rank its own GPU, or all of the node's; {GPU_HELP}"
            )
    own: str = gpus[workers.Get_rank()][1]
    return own
