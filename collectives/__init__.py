"""How ranks combine gradients: the backends.

    backend = connect("ring", control=MPI.COMM_WORLD, framework="torch")
    trainer = backend.distribute(factory, shard=Shard(index=rank, count=size), seed=1)

What was asked for is what runs, or it is an error: no backend ever stands in for another.
"""

from __future__ import annotations

from dlscale.collectives.backend import (
    Backend,
    Capabilities,
    Collective,
    CountingTrainer,
    Setup,
    Trainer,
)
from dlscale.collectives.job import ServerSplit
from dlscale.collectives.registry import (
    NAMES,
    capabilities,
    check_algorithm,
    check_options,
    check_setup,
    connect,
    preload,
    serve,
    with_capability,
)

__all__ = [
    "NAMES",
    "Backend",
    "Capabilities",
    "Collective",
    "CountingTrainer",
    "ServerSplit",
    "Setup",
    "Trainer",
    "capabilities",
    "check_algorithm",
    "check_options",
    "check_setup",
    "connect",
    "preload",
    "serve",
    "with_capability",
]
