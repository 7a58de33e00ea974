"""Backend `horovod`: Horovod over MPI, oneCCL or NCCL, by its DistributedOptimizer and DistributedGradientTape."""

from __future__ import annotations

import importlib
import json
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dlscale.base.errors import UsageError
from dlscale.collectives.backend import Backend, Collective, Setup, Trainer
from dlscale.collectives.buffers import aligned_zeros, check_buffer, check_operation, check_root
from dlscale.collectives.option_kinds import CheckedOptions, one_of, read_options
from dlscale.models.workload import ReplicaFactory, Shard

OPERATIONS = ("mpi", "ccl", "nccl")
BUILD_NOTE = "horovod.json"  # in the environment's folder: what `make horovod` built against
REMEDY = "make horovod, in a checkout of dlscale, builds it for what is installed here"


@dataclass(frozen=True, slots=True, kw_only=True)
class Options(CheckedOptions):
    """Horovod's start-up options; where one is negative, Horovod's own default holds.

    `operations`: what carries the gradients, `mpi`, `ccl` (oneCCL) or `nccl`; Horovod was built for it or refuses.
    `fusion_threshold_mib`: size of the buffer that small gradients are fused in (default 128). `cycle_time_ms`: how
    often Horovod looks for new gradients (default 1).
    """

    owner = "backend horovod"

    operations: str = one_of(OPERATIONS, "mpi")
    fusion_threshold_mib: float = -1.0
    cycle_time_ms: float = -1.0

    def check_device(self, device: str) -> None:
        """Returns if these operations carry gradients of that device. Raises UsageError."""
        if device == "gpu" and self.operations != "nccl":
            raise UsageError(
                f"backend horovod was asked for operations {self.operations} on device gpu, where its build "
                "decides and dlscale knows NCCL only; set horovod.operations=nccl"
            )

    def variables(self) -> dict[str, str]:
        """Horovod's environment variables."""
        variables = {}
        if self.operations != "nccl":
            variables["HOROVOD_CPU_OPERATIONS"] = self.operations.upper()
        if self.fusion_threshold_mib >= 0:
            variables["HOROVOD_FUSION_THRESHOLD"] = str(int(self.fusion_threshold_mib * 2**20))
        if self.cycle_time_ms >= 0:
            variables["HOROVOD_CYCLE_TIME"] = f"{self.cycle_time_ms:g}"
        return variables


def check(framework: str) -> None:
    """Import Horovod. Raises UsageError if it is missing or was built against other versions."""
    load(framework)


preload = check


def check_setup(options: dict[str, Any], setup: Setup) -> None:
    """Returns if Horovod's operations work on the device. Raises UsageError."""
    read_options(Options, options, backend="horovod").check_device(setup.device)


def check_installed(framework: str, options: dict[str, Any]) -> None:
    """Returns if Horovod was built for the operations that the options ask for. Raises UsageError."""
    _built_for(read_options(Options, options, backend="horovod"), framework)


def connect(*, control: Any, framework: str, options: dict[str, Any]) -> HorovodBackend:
    """Start Horovod over the ranks of `control`; collective."""
    chosen = read_options(Options, options, backend="horovod")
    hvd = _built_for(chosen, framework)
    os.environ.update(chosen.variables())
    hvd.init(comm=control)
    return HorovodBackend(chosen, hvd, framework)


def _built_for(chosen: Options, framework: str) -> Any:
    """Horovod's module, which has these operations. Raises UsageError."""
    hvd = load(framework)
    built = {"mpi": hvd.mpi_built(), "ccl": hvd.ccl_built(), "nccl": hvd.nccl_built()}
    if not built[chosen.operations]:
        having = ", ".join(name for name, there in built.items() if there) or "none of them"
        raise UsageError(
            f"Horovod was asked for operations {chosen.operations}, but was built for {having}; {REMEDY}, "
            "make .venv-ccl for oneCCL"
        )
    return hvd


def load(framework: str) -> Any:
    """Horovod's module for a framework. Raises UsageError if it cannot be used here."""
    if problem := other_versions(Path(sys.prefix) / BUILD_NOTE):
        raise UsageError(f"Horovod was built against {problem}; {REMEDY}")
    try:
        module = importlib.import_module(f"horovod.{framework}")
        module.mpi_built()  # the first call into the library
    except (ImportError, OSError, AttributeError) as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise UsageError(f"Horovod for {framework} cannot be loaded here ({reason}); {REMEDY}") from None
    return module


def other_versions(note: Path) -> str | None:
    """Which versions Horovod was built against by its note, where others are installed now; None if none differ."""
    try:
        built: Mapping[str, str] = json.loads(note.read_text(encoding="utf-8"))["built_against"]
    except (OSError, ValueError, KeyError, TypeError):
        return None  # not ours: a centre's own Horovod says itself what is wrong
    for package, version in built.items():
        try:
            now = metadata.version(package)
        except metadata.PackageNotFoundError:
            now = "none"
        if now != version:
            return f"{package} {version}, and here is {now}"
    return None


class HorovodBackend(Backend):
    """DistributedOptimizer or DistributedGradientTape (`Backend`)."""

    name = "horovod"

    def __init__(self, options: Options, hvd: Any, framework: str) -> None:
        self._options, self._hvd, self._framework = options, hvd, framework
        self._num_collectives = 0

    def distribute(self, factory: ReplicaFactory, *, shard: Shard, seed: int, gate: bool = False) -> Trainer:
        """A replica wired as Horovod's documentation says, with the weights of rank 0."""
        replica = factory(shard=shard, seed=seed, gate=gate)
        self._options.check_device(replica.device)
        integration = importlib.import_module(f"dlscale.collectives.horovod._{self._framework}")
        trainer: Trainer = integration.over(replica, settings=self._settings())
        return trainer

    def collective(self) -> Collective:
        """Horovod's operations; there is one background thread and one order of operations for all of them."""
        if self._framework != "torch":
            raise UsageError(
                "Horovod's operations on host buffers are those of its torch side; connect it with framework torch"
            )
        self._num_collectives += 1
        return HorovodCollective(self._hvd, name=f"collective.{self._num_collectives}")

    def close(self) -> None:
        self._hvd.shutdown()

    def _settings(self) -> dict[str, str | int | float | bool]:
        """Horovod's options, with its defaults where none were given."""
        known = {
            "fusion_threshold_bytes": ("HOROVOD_FUSION_THRESHOLD", "134217728"),
            "cycle_time_ms": ("HOROVOD_CYCLE_TIME", "1"),
            "cache_capacity": ("HOROVOD_CACHE_CAPACITY", "1024"),
            "hierarchical_allreduce": ("HOROVOD_HIERARCHICAL_ALLREDUCE", "0"),
        }
        values = {name: os.environ.get(variable, default) for name, (variable, default) in known.items()}
        return {"operations": self._options.operations, "overlap": True, **values}


class HorovodCollective:
    """Host-buffer operations over all ranks (`Collective`).

    Horovod's thread puts ranks' operations together by their names: `name` is this communicator's alone.
    """

    def __init__(self, hvd: Any, *, name: str) -> None:
        self._hvd: Any = hvd
        self._name = name
        self.rank: int = hvd.rank()
        self.size: int = hvd.size()

    def allreduce(self, buffer: NDArray[Any], op: str = "sum") -> None:
        """Sum, average, min or max over ranks, in place; Horovod averages by itself."""
        check_buffer(buffer)
        check_operation(op, buffer)
        hvd = self._open("allreduce")
        kinds = {"sum": hvd.Sum, "average": hvd.Average, "min": hvd.Min, "max": hvd.Max}
        self._call(hvd.allreduce_, buffer, op=kinds[op])

    def empty(self, count: int, dtype: str = "float32") -> NDArray[Any]:
        return aligned_zeros(count, dtype)

    def broadcast(self, buffer: NDArray[Any], root: int = 0) -> None:
        check_root(root, size=self.size)
        self._call(self._open("broadcast").broadcast_, buffer, root_rank=root)

    def barrier(self) -> None:
        self._open("barrier").barrier()

    def settings(self) -> dict[str, str | int | float | bool]:
        """Nothing: Horovod's settings are those of the backend."""
        return {}

    def close(self) -> None:
        """Nothing to free: Horovod belongs to the backend."""
        self._hvd = None

    def _open(self, operation: str) -> Any:
        if self._hvd is None:
            raise RuntimeError(f"{operation} on a closed horovod collective")
        return self._hvd

    def _call(self, operation: Any, buffer: NDArray[Any], **arguments: Any) -> None:
        import torch

        check_buffer(buffer)
        # Horovod answers an empty tensor with an error; all ranks have it, so all may leave it out.
        if buffer.size:
            name = f"{self._name}.{operation.__name__}"
            operation(torch.from_numpy(np.atleast_1d(buffer)), name=name, **arguments)
