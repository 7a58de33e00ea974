"""What each backend can do: one row each. Everything that asks, asks here."""

from __future__ import annotations

from dlscale.collectives.backend import Capabilities
from dlscale.models.errors import UsageError

NAMES = ("none", "mpi", "gloo", "ring", "horovod", "grpc_ps", "tf_collective", "nccl")

TABLE = {
    row.name: row
    for row in (
        Capabilities(
            name="none",
            summary="no exchange of gradients: the control",
            frameworks=("torch", "tensorflow"),
            devices=("cpu", "gpu"),
            exchanges=False,
        ),
        Capabilities(
            name="mpi",
            summary="MPI_Allreduce of the installed MPI: the plain baseline",
            frameworks=("torch", "tensorflow"),
            collective=("torch", "tensorflow"),
            delayed=True,
        ),
        Capabilities(
            name="gloo",
            summary="torch.distributed with Gloo under DistributedDataParallel",
            frameworks=("torch",),
            collective=("torch",),
            open_ports=True,
        ),
        Capabilities(
            name="ring",
            summary="our native ring allreduce in C++ over MPI",
            frameworks=("torch", "tensorflow"),
            collective=("torch", "tensorflow"),
            delayed=True,
        ),
        Capabilities(
            name="horovod",
            summary="Horovod over MPI, oneCCL or NCCL",
            frameworks=("torch", "tensorflow"),
            devices=("cpu", "gpu"),
            collective=("torch",),
            install="make horovod",
        ),
        Capabilities(
            name="grpc_ps",
            summary="parameter servers over gRPC: TensorFlow's own, and ours for torch",
            frameworks=("torch", "tensorflow"),
            asynchronous=True,
            servers=True,
            open_ports=True,
        ),
        Capabilities(
            name="tf_collective",
            summary="TensorFlow's own ring over gRPC under MultiWorkerMirroredStrategy",
            frameworks=("tensorflow",),
            once=True,
            open_ports=True,
        ),
        Capabilities(
            name="nccl",
            summary="NCCL between GPUs, under DistributedDataParallel and MultiWorkerMirroredStrategy",
            frameworks=("torch", "tensorflow"),
            devices=("gpu",),
            once=True,
            open_ports=True,
            install="an environment of GPU builds, then make gpu-check",
        ),
    )
}


def capabilities(name: str) -> Capabilities:
    """The row of a backend. Raises UsageError for an unknown name."""
    if name not in NAMES:
        raise UsageError(f"no backend {name!r}; choose one of: {', '.join(NAMES)}")
    return TABLE[name]


def with_capability(capability: str) -> tuple[str, ...]:
    """Names of the backends for which that column of the table is true, or not empty."""
    return tuple(name for name in NAMES if getattr(TABLE[name], capability))
