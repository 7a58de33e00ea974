"""The table of backends: what each can do, and all else that depends on a backend's name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from dlscale.base.errors import UsageError, unknown

# How gradients travel, which predictions model: not at all; in buckets over a collective of MPI's or of the ring's
# engine, of DistributedDataParallel, or as Horovod fuses them; all at once; to servers at once, or over gRPC.
Exchange = Literal["none", "buckets", "ring", "ddp", "horovod", "whole", "servers", "grpc"]

BOTH = ("torch", "tensorflow")
OVER_COLLECTIVES = ("sync", "easgd")


@dataclass(frozen=True, slots=True, kw_only=True)
class Capabilities:
    """A backend's row. Lists of frameworks say in which of them it can."""

    name: str
    summary: str
    module: str = (
        ""  # below `collectives`: "folder.file", or "file:object" of several in it; empty: as the name
    )
    frameworks: tuple[str, ...]
    devices: tuple[str, ...] = ("cpu",)
    collective: tuple[str, ...] = ()  # frameworks with operations on host buffers too
    algorithms: tuple[str, ...] = ("sync",)  # of `algorithms.NAMES`
    shards: tuple[str, ...] = ()  # of `sharding.NAMES`, beside none, in torch
    keras: bool = True  # trains a user's own Keras model
    splits: tuple[str, ...] = BOTH  # frameworks in which ranks can share a sample by rows
    torch_distributed: bool = False  # in torch, over a process group of torch.distributed
    exchange: Exchange = "buckets"
    delayed: bool = False  # can delay gradients by one step; `Backend.delay` says whether it does
    asynchronous: bool = False  # can let ranks go on alone; `Backend.asynchronous` says whether it does
    servers: bool = False
    servers_update: tuple[str, ...] = ()  # frameworks in which servers update the weights, not workers
    once: bool = False  # a process can connect it only once, and before the framework computes
    open_ports: bool = False  # its sockets are unauthenticated
    needs_mpi: bool = False  # its ranks must be those of an MPI
    packages: tuple[str, ...] = ()  # whose versions are recorded
    install: str = ""  # the command that gets it where it is missing; empty: it comes with the environment
    untried: str = ""  # what nobody has seen of it, in words
    reference: bool = False  # the one that others are compared with where nothing says which
    predicted_as: Mapping[str, str] = field(
        default_factory=dict
    )  # {framework: whose links its exchange is taken for}
    look: tuple[str, str] = ("#444444", "*")  # colour and marker in figures

    @property
    def exchanges(self) -> bool:
        """False: the control without any exchange of gradients."""
        return self.exchange != "none"

    @property
    def between_gpus(self) -> bool:
        """Whether it exchanges what lies on GPUs, and nothing else."""
        return "cpu" not in self.devices


ROWS = (
    Capabilities(
        name="none",
        summary="no exchange of gradients: the control",
        frameworks=BOTH,
        devices=("cpu", "gpu"),
        exchange="none",
        look=("#000000", "o"),
    ),
    Capabilities(
        name="mpi",
        summary="MPI_Allreduce of the installed MPI: the plain baseline",
        frameworks=BOTH,
        devices=("cpu", "gpu"),
        collective=BOTH,
        algorithms=OVER_COLLECTIVES,
        shards=("optimizer",),
        delayed=True,
        needs_mpi=True,
        look=("#D55E00", "^"),
    ),
    Capabilities(
        name="gloo",
        module="torch_distributed:gloo",
        summary="torch.distributed with Gloo under DistributedDataParallel",
        frameworks=("torch",),
        devices=("cpu", "gpu"),
        collective=("torch",),
        algorithms=OVER_COLLECTIVES,
        shards=("optimizer", "parameters"),
        torch_distributed=True,
        exchange="ddp",
        open_ports=True,
        look=("#009E73", "D"),
    ),
    Capabilities(
        name="ring",
        summary="our native ring allreduce in C++ over MPI",
        frameworks=BOTH,
        devices=("cpu", "gpu"),
        collective=BOTH,
        algorithms=OVER_COLLECTIVES,
        shards=("optimizer",),
        exchange="ring",
        delayed=True,
        needs_mpi=True,
        reference=True,
        look=("#0072B2", "s"),
    ),
    Capabilities(
        name="horovod",
        summary="Horovod over MPI, oneCCL or NCCL",
        frameworks=BOTH,
        devices=("cpu", "gpu"),
        collective=("torch",),
        algorithms=OVER_COLLECTIVES,
        exchange="horovod",
        needs_mpi=True,
        packages=("horovod", "oneccl-cpu", "impi-rt"),
        install="make horovod",
        look=("#CC79A7", "P"),
    ),
    Capabilities(
        name="grpc_ps",
        summary="parameter servers over gRPC: TensorFlow's own, and ours for torch",
        frameworks=BOTH,
        devices=("cpu", "gpu"),
        keras=False,
        splits=("torch",),
        exchange="grpc",
        asynchronous=True,
        servers=True,
        servers_update=("tensorflow",),
        open_ports=True,
        needs_mpi=True,
        packages=("grpcio",),
        predicted_as={"torch": "ring", "tensorflow": "ring"},
        look=("#999933", "h"),
    ),
    Capabilities(
        name="mpi_ps",
        summary="parameter servers over MPI, ours for both frameworks",
        frameworks=BOTH,
        algorithms=("sync", "easgd", "downpour"),
        exchange="servers",
        asynchronous=True,
        servers=True,
        needs_mpi=True,
        predicted_as={"torch": "mpi", "tensorflow": "mpi"},
        look=("#882255", "p"),
    ),
    Capabilities(
        name="tf_collective",
        summary="TensorFlow's own ring over gRPC under MultiWorkerMirroredStrategy",
        frameworks=("tensorflow",),
        keras=False,
        exchange="whole",
        once=True,
        open_ports=True,
        look=("#56B4E9", "X"),
    ),
    Capabilities(
        name="nccl",
        module="torch_distributed:nccl",
        summary="NCCL between GPUs, under DistributedDataParallel and MultiWorkerMirroredStrategy",
        frameworks=BOTH,
        devices=("gpu",),
        shards=("parameters",),
        keras=False,
        torch_distributed=True,
        exchange="ddp",
        once=True,
        open_ports=True,
        install="an environment of GPU builds, then make gpu-check",
        predicted_as={"torch": "gloo", "tensorflow": "tf_collective"},
        look=("#E69F00", "v"),
    ),
    Capabilities(
        name="xccl",
        module="torch_distributed:xccl",
        summary="oneCCL between Intel's GPUs, by torch's xccl under DistributedDataParallel",
        frameworks=("torch",),
        devices=("gpu",),
        torch_distributed=True,
        exchange="ddp",
        once=True,
        open_ports=True,
        install="a torch with XPU, as docs/gpu.md has it",
        untried="never tried: no GPU of Intel has run it yet",
        predicted_as={"torch": "gloo"},
        look=("#332288", "<"),
    ),
)

TABLE = {row.name: row for row in ROWS}
NAMES = tuple(TABLE)
REFERENCE = next(row.name for row in ROWS if row.reference)
CONTROL = next(row.name for row in ROWS if not row.exchanges)


def capabilities(name: str) -> Capabilities:
    """The row of a backend. Raises UsageError for an unknown name."""
    if name not in TABLE:
        raise UsageError(unknown("backend", name, NAMES))
    return TABLE[name]


def carried_shards(name: str, framework: str) -> tuple[str, ...]:
    """Of `sharding.NAMES` those that a backend carries in that framework beside none."""
    return capabilities(name).shards if framework == "torch" else ()


def with_capability(capability: str) -> tuple[str, ...]:
    """Names of the backends for which that column of the table is true, or not empty."""
    return tuple(name for name in NAMES if getattr(TABLE[name], capability))
