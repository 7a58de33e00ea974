"""Backend `none`: every rank trains alone. The control that shows what the exchange costs."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import Any

from dlscale.collectives.backend import Backend, StampedTrainer
from dlscale.collectives.option_kinds import read_options
from dlscale.models.workload import ReplicaFactory, Shard


@dataclass(frozen=True, slots=True)
class Options:
    """There are none."""


def connect(*, control: Any, framework: str, options: dict[str, Any]) -> NoneBackend:  # noqa: ARG001
    """Nothing to join."""
    read_options(Options, options, backend="none")
    return NoneBackend()


class NoneBackend(Backend):
    """Wires nothing (`Backend`)."""

    name = "none"

    def distribute(
        self, factory: ReplicaFactory, *, shard: Shard, seed: int, gate: bool = False
    ) -> StampedTrainer:
        """The replica as it is, with its own initial weights."""
        replica = factory(shard=shard, seed=seed, gate=gate)
        integration = importlib.import_module(f"dlscale.collectives.training._{replica.framework}")
        trainer: StampedTrainer = integration.alone(replica)
        return trainer

    def close(self) -> None:
        """Nothing to leave."""
