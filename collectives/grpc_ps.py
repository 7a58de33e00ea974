"""Backend `grpc_ps`: parameter servers over gRPC, TensorFlow's own runtime and for torch those of `servers`.

    job = split(MPI.COMM_WORLD, num_servers=1)
    if job.is_server:
        sys.exit(grpc_ps.serve(job=job))
    optimizer = grpc_ps.served_optimizer(job, optimizer)   # zero_grad, backward, step as before; close at the end

Servers are the last ranks of the launch (`job.py`).
"""

from __future__ import annotations

import importlib
import importlib.util
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from dlscale.base.errors import UsageError
from dlscale.collectives.addresses import refuse_machines
from dlscale.collectives.backend import Backend, Setup
from dlscale.collectives.job import ServerSplit
from dlscale.collectives.option_kinds import CheckedOptions, at_least, one_of, read_options
from dlscale.collectives.servers.backend import Servers, ranks_of
from dlscale.collectives.servers.server import Server

if TYPE_CHECKING:
    from dlscale.collectives.servers._torch import ServedOptimizer


@dataclass(frozen=True, slots=True, kw_only=True)
class Options(CheckedOptions):
    """`asynchronous`: what a worker learns is taken up as it comes, and no worker waits for another.

    `port`: of server 0, the others take the next ones; 0 means any that is free. `placement` (TensorFlow): variables go
    to the server with the fewest bytes so far, or round robin. `allow_open_ports` (TensorFlow): use its servers, which
    listen unauthenticated on all interfaces, between machines too.
    """

    owner = "backend grpc_ps"

    asynchronous: bool = False
    placement: str = one_of(("size", "round_robin"), "size")
    port: int = at_least(0, 0, most=65535)
    allow_open_ports: bool = False


def check_setup(options: dict[str, Any], setup: Setup) -> None:
    """Returns if workers and servers would start. Raises UsageError."""
    chosen = read_options(Options, options, backend="grpc_ps")
    if setup.framework == "tensorflow":  # torch's servers ask for the launch's token
        refuse_machines(setup.one_machine, backend="grpc_ps", allowed=chosen.allow_open_ports)
        if setup.compiled:
            raise UsageError(
                "backend grpc_ps keeps TensorFlow's variables on other hosts, where XLA cannot read them; "
                "leave compiled out"
            )


def connect(*, control: Any, framework: str, options: dict[str, Any], job: ServerSplit) -> Backend:
    """Find the servers of `job` and the other workers; collective over all ranks of `job`."""
    chosen = read_options(Options, options, backend="grpc_ps")
    if framework == "tensorflow":
        backend: Backend = _runtime(framework).connect(control=control, options=chosen, job=job)
        return backend
    ranks = ranks_of(job)
    transport = _runtime(framework).connect(job, ranks)
    return Servers("grpc_ps", job, ranks, transport, asynchronous=chosen.asynchronous)


def serve(*, job: ServerSplit, framework: str = "torch", options: dict[str, Any] | None = None) -> None:
    """Serve until the workers have closed; collective with their `connect` or `served_optimizer`."""
    chosen = read_options(Options, options or {}, backend="grpc_ps")
    if framework == "tensorflow":
        _runtime(framework).serve(options=chosen, job=job)
        return
    ranks = ranks_of(job)
    transport = _runtime(framework).listen(job, ranks, port=chosen.port)
    Server(transport, ranks, rank=job.num_workers + job.index).serve()


def served_optimizer(
    job: ServerSplit, optimizer: Any, **options: str | int | float | bool
) -> ServedOptimizer:
    """In a torch script, on a worker of `job`: an optimizer whose steps are those of all workers; collective.

    All begin with worker 0's weights. Raises UsageError for weights that are not float32, and where grpcio is missing.
    """
    check("torch")
    from dlscale.collectives.servers._torch import ServedOptimizer

    backend = connect(control=None, framework="torch", options=options, job=job)
    try:
        return ServedOptimizer(cast(Servers, backend), optimizer)
    except UsageError:
        backend.close()  # or the servers would wait
        raise


def check(framework: str) -> None:
    """Returns if it can be used here. Raises UsageError where grpcio is missing, which torch's servers need."""
    if framework == "torch" and not importlib.util.find_spec("grpc"):
        raise UsageError(
            "backend grpc_ps needs grpcio for torch, which is not installed here; pip install 'dlscale[grpc]'"
        )


def preload(framework: str) -> None:
    """Import what workers need. Raises UsageError as `check`."""
    check(framework)
    _runtime(framework)


def _runtime(framework: str) -> Any:
    """TensorFlow's servers, or gRPC for ours."""
    name = "_tensorflow" if framework == "tensorflow" else "over_grpc"
    return importlib.import_module(f"dlscale.collectives.servers.{name}")
