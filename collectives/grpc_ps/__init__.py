"""Backend `grpc_ps`: parameter servers over gRPC, which hold the weights and apply the gradients.

    job = split(MPI.COMM_WORLD, num_servers=1)
    if job.is_server:
        sys.exit(grpc_ps.serve(job=job))
    optimizer = grpc_ps.served_optimizer(job, optimizer)   # zero_grad, backward, step as before; close at the end

In TensorFlow they are TensorFlow's own (`_tensorflow_*.py`), for torch they are ours on grpcio (`_torch_*.py`).
Servers are the last ranks of the launch (`job.py`).
"""

from __future__ import annotations

import importlib
import importlib.util
from typing import TYPE_CHECKING, Any

from dlscale.base.errors import UsageError
from dlscale.collectives.addresses import refuse_machines
from dlscale.collectives.backend import Backend, Setup
from dlscale.collectives.grpc_ps.options import Options, refuse_compiled
from dlscale.collectives.job import ServerSplit
from dlscale.collectives.option_kinds import read_options

if TYPE_CHECKING:
    from dlscale.collectives.grpc_ps._torch_worker import ServedOptimizer


def check_setup(options: dict[str, Any], setup: Setup) -> None:
    """Returns if workers and servers would start. Raises UsageError."""
    chosen = read_options(Options, options, backend="grpc_ps")
    if setup.framework == "tensorflow":  # torch's servers ask for the job's token
        refuse_machines(setup.one_machine, backend="grpc_ps", allowed=chosen.allow_open_ports)
        refuse_compiled(setup.compiled)


def connect(*, control: Any, framework: str, options: dict[str, Any], job: ServerSplit) -> Backend:
    """Find the servers of `job` and the other workers; collective over all ranks of `job`."""
    chosen = read_options(Options, options, backend="grpc_ps")
    backend: Backend = _module(framework, "worker").connect(control=control, options=chosen, job=job)
    return backend


def serve(*, job: ServerSplit, framework: str = "torch", options: dict[str, Any] | None = None) -> None:
    """Serve until the workers have closed; collective with their `connect` or `served_optimizer`."""
    chosen = read_options(Options, options or {}, backend="grpc_ps")
    _module(framework, "server").serve(options=chosen, job=job)


def served_optimizer(
    job: ServerSplit, optimizer: Any, **options: str | int | float | bool
) -> ServedOptimizer:
    """In a torch script, on a worker of `job`: an optimizer whose steps the servers take; collective over all ranks.

    The servers hold the weights, worker 0's to begin with, and do what `optimizer` would do. Raises UsageError for
    an optimizer that treats elements of a tensor differently, and where grpcio is missing.
    """
    check("torch")
    chosen = read_options(Options, options, backend="grpc_ps")
    from dlscale.collectives.grpc_ps._torch_worker import ServedOptimizer

    return ServedOptimizer(job, optimizer, chosen)


def check(framework: str) -> None:
    """Returns if it can be used here. Raises UsageError where grpcio is missing, which torch's servers need."""
    if framework == "torch" and not importlib.util.find_spec("grpc"):
        raise UsageError(
            "backend grpc_ps needs grpcio for torch, which is not installed here; pip install 'dlscale[grpc]'"
        )


def preload(framework: str) -> None:
    """Import what workers need. Raises UsageError as `check`."""
    check(framework)
    _module(framework, "worker")


def _module(framework: str, role: str) -> Any:
    return importlib.import_module(f"dlscale.collectives.grpc_ps._{framework}_{role}")
