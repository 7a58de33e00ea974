"""What a plain script shares with our trainer, and what can be timed of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from dlscale.benchmarks.rank.measure import MpiBarrierControl
from dlscale.collectives import Backend
from dlscale.collectives.job import ServerSplit
from dlscale.models import load_workload
from dlscale.models.workload import Execution, Input, ReplicaFactory, Shard, Weights

SEED = 1  # the same on all ranks: nobody has to broadcast the first weights


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """One rank of a launch. `backend` is connected: scripts use the group or servers that it has formed."""

    workload: str
    framework: str
    preset: str
    backend: Backend
    world: Any  # mpi4py's communicator of the ranks that train
    control: MpiBarrierControl
    job: ServerSplit | None

    @property
    def shard(self) -> Shard:
        """The part of every global batch that this rank trains on."""
        return Shard(index=self.world.Get_rank(), count=self.world.Get_size())

    def factory(self, **execution: Any) -> ReplicaFactory:
        """What builds the workload's replicas, on resident samples."""
        workload = load_workload(self.workload)
        return workload.factory(
            framework=self.framework,
            preset=self.preset,
            local_batch=workload.preset(self.preset).local_batch,
            source=Input(),
            execution=Execution(**execution),
        )

    def replica(self, **execution: Any) -> Any:
        """Network, weights, optimizer and batches as our trainer has them; nothing of it knows of ranks."""
        return self.factory(**execution)(shard=self.shard, seed=SEED)


def nothing() -> None:
    """There is nothing to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Loop:
    """A script's body. On a CPU a step is done when it returns."""

    replica: Any
    step: Callable[[], None]
    synchronize: Callable[[], None] = nothing
    close: Callable[[], None] = nothing

    def weights(self) -> Weights:
        """Copies of what the script has trained so far."""
        weights: Weights = self.replica.weights()
        return weights
