"""What TensorFlow knows of this machine's NVIDIA GPUs. A rank trains on one, the only one that it is shown."""

from __future__ import annotations

import ctypes
import uuid
from collections.abc import Iterator
from typing import Any

import tensorflow as tf

from dlscale.models.frameworks import TF32_CAPABILITY, check_tf32, gpu_of

OWN = "GPU:0"  # the only one that is shown


def names() -> list[str]:
    """Names of the GPUs that this process may use, in the driver's order."""
    return [_name(details) for details in _details()]


def _details() -> Iterator[dict[str, Any]]:
    return map(tf.config.experimental.get_device_details, tf.config.list_physical_devices("GPU"))


def _name(details: dict[str, Any]) -> str:
    return str(details.get("device_name", "unknown"))


def version() -> str:
    """TensorFlow's own, with the build: one without CUDA sees no GPU anywhere."""
    build = "" if tf.test.is_built_with_cuda() else " without CUDA"
    return f"{tf.__version__}{build}"


def libraries() -> dict[str, str]:
    """Versions of what TensorFlow was built against for GPUs; empty for a build without them."""
    build = tf.sysconfig.get_build_info()
    known = {"cuda_version": "tensorflow_cuda", "cudnn_version": "tensorflow_cudnn"}
    return {ours: str(build[theirs]) for theirs, ours in known.items() if theirs in build}


def exchange_library() -> tuple[str, str]:
    """Backend `nccl`: every build for CUDA has NCCL."""
    return ("nccl", "NCCL") if tf.test.is_built_with_cuda() else ("", "")


def without_tf32() -> list[str]:
    """Names of the GPUs that have no TF32; only those of NVIDIA have a compute capability."""
    return [
        _name(details)
        for details in _details()
        if details.get("compute_capability", (0, 0)) < TF32_CAPABILITY
    ]


def take(local_rank: int, *, tf32: bool = False) -> None:
    """From now on this process sees its GPU (`gpu_of`) alone; before it has computed anything. Raises UsageError.

    Its memory is taken as it is needed, not all at once, and float32 is IEEE's unless `tf32`, TensorFlow's default.
    """
    gpus = tf.config.list_physical_devices("GPU")
    own = gpus[gpu_of(local_rank, num_gpus=len(gpus), framework=f"tensorflow {version()}")]
    check_tf32(f"tensorflow {version()}", without_tf32() if tf32 else ())
    tf.config.set_visible_devices(own, "GPU")
    tf.config.experimental.set_memory_growth(own, True)
    tf.config.experimental.enable_tensor_float_32_execution(tf32)


def peak_memory() -> dict[str, int]:
    """The most that was allocated since `forget_peak_memory`; TensorFlow does not tell what it reserved."""
    return {"allocated_bytes": int(tf.config.experimental.get_memory_info(OWN)["peak"])}


def forget_peak_memory() -> None:
    """From now on the most is what is taken now, or will be."""
    tf.config.experimental.reset_memory_stats(OWN)


def identity() -> str:
    """The UUID of the GPU that was taken, from NVIDIA's driver: TensorFlow does not tell, but counts as CUDA does."""
    gpus = tf.config.list_physical_devices("GPU")
    number = gpus.index(tf.config.get_visible_devices("GPU")[0])
    driver, device, found = ctypes.CDLL("libcuda.so.1"), ctypes.c_int(), (ctypes.c_ubyte * 16)()
    calls = (
        driver.cuInit(0),
        driver.cuDeviceGet(ctypes.byref(device), number),
        driver.cuDeviceGetUuid(ctypes.byref(found), device),
    )
    if any(calls):
        raise OSError(f"NVIDIA's driver does not tell the UUID of GPU {number}: errors {calls}")
    return str(uuid.UUID(bytes=bytes(found)))
