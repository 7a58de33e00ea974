"""How ranks combine gradients: the backends.

    backend = connect("ring", control=MPI.COMM_WORLD)
    trainer = backend.distribute(factory, shard=Shard(index=rank, count=size), seed=1)

What was asked for is what runs, or it is an error: no backend ever stands in for another.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

from dlscale.collectives.backend import Backend, Capabilities, Collective, Trainer
from dlscale.collectives.capabilities import NAMES, capabilities, with_capability

__all__ = [
    "NAMES",
    "Backend",
    "Capabilities",
    "Collective",
    "Trainer",
    "capabilities",
    "connect",
    "with_capability",
]


def connect(
    name: str, *, control: Any, options: Mapping[str, str | int | float | bool] | None = None
) -> Backend:
    """Join all ranks of `control`, an mpi4py communicator, over the named backend; collective.

    Raises UsageError for an unknown name or option, and if the backend is not installed here.
    """
    capabilities(name)  # an unknown name ends here, with the list of the known ones
    module = importlib.import_module(f"dlscale.collectives.{name}")
    backend: Backend = module.connect(control=control, options=dict(options or {}))
    return backend
