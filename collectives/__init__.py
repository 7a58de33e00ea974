"""How ranks combine gradients: the backends.

    backend = connect("ring", control=MPI.COMM_WORLD, framework="torch")
    trainer = backend.distribute(factory, shard=Shard(index=rank, count=size), seed=1)

What was asked for is what runs, or it is an error: no backend ever stands in for another.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

from dlscale.collectives.backend import Backend, Capabilities, Collective, CountingTrainer, Trainer
from dlscale.collectives.capabilities import NAMES, capabilities, with_capability
from dlscale.collectives.job import Job
from dlscale.collectives.options import check_kinds
from dlscale.models.errors import UsageError

__all__ = [
    "NAMES",
    "Backend",
    "Capabilities",
    "Collective",
    "CountingTrainer",
    "Job",
    "Trainer",
    "capabilities",
    "check_options",
    "connect",
    "preload",
    "serve",
    "untimed_options",
    "with_capability",
]


def connect(
    name: str,
    *,
    control: Any,
    framework: str = "torch",
    options: Mapping[str, str | int | float | bool] | None = None,
    job: Job | None = None,
) -> Backend:
    """Join all ranks of `control`, an mpi4py communicator, over the named backend; collective.

    `framework` is what will be trained in. A backend with servers needs `job`, whose workers are the ranks of
    `control`; its servers call `serve` meanwhile. Raises UsageError for an unknown name, framework or option, and
    if the backend is not installed here.
    """
    row = capabilities(name)  # an unknown name ends here, with the list of the known ones
    check_framework(row, framework)
    module = _module(name)
    known = dict(options or {})
    if not row.servers:
        backend: Backend = module.connect(control=control, framework=framework, options=known)
        return backend
    if job is None:
        raise UsageError(f"backend {name} needs servers, which are ranks of their own; give --servers")
    served: Backend = module.connect(control=control, framework=framework, options=known, job=job)
    return served


def serve(
    name: str,
    *,
    job: Job,
    framework: str,
    options: Mapping[str, str | int | float | bool] | None = None,
) -> None:
    """On a server rank of `job`: serve the workers, which `connect`, until they have closed; collective."""
    check_framework(capabilities(name), framework)
    _module(name).serve(job=job, framework=framework, options=dict(options or {}))


def preload(name: str, framework: str) -> None:
    """Import what the backend will need, so that the time for it can be told from that of connecting.

    Raises UsageError if it is not installed here.
    """
    check_framework(capabilities(name), framework)
    if load := getattr(_module(name), "preload", None):
        load(framework)


def check_options(name: str, options: Mapping[str, str | int | float | bool]) -> None:
    """Returns if the backend has these options. Raises UsageError; what only the ranks can know they will say."""
    module = _module(name)
    check_kinds(getattr(module, "OPTION_KINDS", None) or (module.Options,), options, backend=name)


def untimed_options(name: str) -> tuple[str, ...]:
    """The backend's options that a measurement may not have: they take time to show what happens."""
    return tuple(getattr(_module(name), "UNTIMED_OPTIONS", ()))


def check_framework(row: Capabilities, framework: str) -> None:
    """Returns if the backend trains in that framework. Raises UsageError."""
    if framework not in row.frameworks:
        raise UsageError(
            f"backend {row.name} does not train in {framework}; it does in: {', '.join(row.frameworks)}"
        )


def _module(name: str) -> Any:
    return importlib.import_module(f"dlscale.collectives.{name}")
