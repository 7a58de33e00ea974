"""What TensorFlow knows of this machine's NVIDIA GPUs. A rank trains on one, the only one that it is shown."""

from __future__ import annotations

import tensorflow as tf

from dlscale.models.frameworks import check_local_rank


def names() -> list[str]:
    """Names of the GPUs that this process may use, in CUDA's order."""
    details = map(tf.config.experimental.get_device_details, tf.config.list_physical_devices("GPU"))
    return [str(detail.get("device_name", "unknown")) for detail in details]


def version() -> str:
    """TensorFlow's own, with the build: one without CUDA sees no GPU anywhere."""
    build = "" if tf.test.is_built_with_cuda() else " without CUDA"
    return f"{tf.__version__}{build}"


def libraries() -> dict[str, str]:
    """Versions of what TensorFlow was built against for GPUs; empty for a build without them."""
    build = tf.sysconfig.get_build_info()
    known = {"cuda_version": "tensorflow_cuda", "cudnn_version": "tensorflow_cudnn"}
    return {ours: str(build[theirs]) for theirs, ours in known.items() if theirs in build}


def has_nccl() -> bool:
    """Whether TensorFlow was built with NCCL: every build for CUDA is."""
    return bool(tf.test.is_built_with_cuda())


def take(local_rank: int) -> None:
    """From now on this process sees the GPU of that number alone, in IEEE float32; before it has computed anything.

    Its memory is taken as it is needed, not all at once, and TF32, TensorFlow's default, is neither of the precisions
    that a study has.
    """
    gpus = tf.config.list_physical_devices("GPU")
    check_local_rank(local_rank, num_gpus=len(gpus), framework=f"tensorflow {version()}")
    tf.config.set_visible_devices(gpus[local_rank], "GPU")
    tf.config.experimental.set_memory_growth(gpus[local_rank], True)
    tf.config.experimental.enable_tensor_float_32_execution(False)
