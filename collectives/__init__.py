"""How ranks combine gradients: the backends.

    backend = connect("ring", control=MPI.COMM_WORLD, framework="torch")
    trainer = backend.distribute(factory, shard=Shard(index=rank, count=size), seed=1)

What was asked for is what runs, or it is an error: no backend ever stands in for another.
"""

from __future__ import annotations

from dlscale.collectives.backend import Backend, Collective, CountingTrainer, Setup, Trainer
from dlscale.collectives.capabilities import (
    CONTROL,
    NAMES,
    REFERENCE,
    Capabilities,
    capabilities,
    with_capability,
)
from dlscale.collectives.job import ServerSplit
from dlscale.collectives.registry import check_algorithm, check_options, check_setup, connect, preload, serve

__all__ = [
    "CONTROL",
    "NAMES",
    "REFERENCE",
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
