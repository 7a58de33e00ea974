"""What each backend can do: everything that asks, asks the table here."""

from __future__ import annotations

from dataclasses import dataclass

from dlscale.base.errors import UsageError, unknown


@dataclass(frozen=True, slots=True, kw_only=True)
class Capabilities:
    """What a backend can do. `collective`: the frameworks in which it also has operations on host buffers.

    `algorithms`: those of `algorithms.registry` that it carries. `delayed`: it can delay gradients by one step when
    asked to; `Backend.delay` says whether it does. `asynchronous` likewise, `Backend.asynchronous`. `shards`: of
    `sharding.NAMES` those that it carries beside none, in torch. `torch_distributed`: in torch, over a process
    group of torch.distributed. `once`: a process can connect it only once, and before the framework computes.
    `open_ports`: its sockets are unauthenticated.
    `install`: the command that gets it where it is missing; empty means that it comes with the environment.
    """

    name: str
    summary: str
    frameworks: tuple[str, ...]
    devices: tuple[str, ...] = ("cpu",)
    collective: tuple[str, ...] = ()
    algorithms: tuple[str, ...] = ("sync",)
    shards: tuple[str, ...] = ()
    torch_distributed: bool = False
    exchanges: bool = True  # False: the control without any exchange of gradients
    delayed: bool = False
    asynchronous: bool = False
    servers: bool = False
    once: bool = False
    open_ports: bool = False
    needs_mpi: bool = False  # its ranks must be those of an MPI
    install: str = ""
    untried: str = ""  # what nobody has seen of it, in words

    @property
    def between_gpus(self) -> bool:
        """Whether it exchanges what lies on GPUs, and nothing else."""
        return "cpu" not in self.devices


NAMES = ("none", "mpi", "gloo", "ring", "horovod", "grpc_ps", "mpi_ps", "tf_collective", "nccl", "xccl")

OVER_COLLECTIVES = ("sync", "easgd")

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
            devices=("cpu", "gpu"),
            collective=("torch", "tensorflow"),
            algorithms=OVER_COLLECTIVES,
            shards=("optimizer",),
            delayed=True,
            needs_mpi=True,
        ),
        Capabilities(
            name="gloo",
            summary="torch.distributed with Gloo under DistributedDataParallel",
            frameworks=("torch",),
            devices=("cpu", "gpu"),
            collective=("torch",),
            algorithms=OVER_COLLECTIVES,
            shards=("optimizer", "parameters"),
            torch_distributed=True,
            open_ports=True,
        ),
        Capabilities(
            name="ring",
            summary="our native ring allreduce in C++ over MPI",
            frameworks=("torch", "tensorflow"),
            devices=("cpu", "gpu"),
            collective=("torch", "tensorflow"),
            algorithms=OVER_COLLECTIVES,
            shards=("optimizer",),
            delayed=True,
            needs_mpi=True,
        ),
        Capabilities(
            name="horovod",
            summary="Horovod over MPI, oneCCL or NCCL",
            frameworks=("torch", "tensorflow"),
            devices=("cpu", "gpu"),
            collective=("torch",),
            algorithms=OVER_COLLECTIVES,
            needs_mpi=True,
            install="make horovod",
        ),
        Capabilities(
            name="grpc_ps",
            summary="parameter servers over gRPC: TensorFlow's own, and ours for torch",
            frameworks=("torch", "tensorflow"),
            devices=("cpu", "gpu"),
            asynchronous=True,
            servers=True,
            open_ports=True,
            needs_mpi=True,
        ),
        Capabilities(
            name="mpi_ps",
            summary="parameter servers over MPI, ours for both frameworks",
            frameworks=("torch", "tensorflow"),
            algorithms=("sync", "easgd", "downpour"),
            asynchronous=True,
            servers=True,
            needs_mpi=True,
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
            shards=("parameters",),
            torch_distributed=True,
            once=True,
            open_ports=True,
            install="an environment of GPU builds, then make gpu-check",
        ),
        Capabilities(
            name="xccl",
            summary="oneCCL between Intel's GPUs, by torch's xccl under DistributedDataParallel",
            untried="never tried: no GPU of Intel has run it yet",
            frameworks=("torch",),
            devices=("gpu",),
            torch_distributed=True,
            once=True,
            open_ports=True,
            install="a torch with XPU, as docs/gpu.md has it",
        ),
    )
}


def capabilities(name: str) -> Capabilities:
    """The row of a backend. Raises UsageError for an unknown name."""
    if name not in NAMES:
        raise UsageError(unknown("backend", name, NAMES))
    return TABLE[name]


def carried_shards(name: str, framework: str) -> tuple[str, ...]:
    """Of `sharding.NAMES` those that a backend carries in that framework beside none."""
    return capabilities(name).shards if framework == "torch" else ()


def with_capability(capability: str) -> tuple[str, ...]:
    """Names of the backends for which that column of the table is true, or not empty."""
    return tuple(name for name in NAMES if getattr(TABLE[name], capability))
