"""The JAX trainer: a step is one compiled program, or two with the exchange of gradients between them."""

from __future__ import annotations

from typing import Any

from dlscale.collectives.training.replica_trainer import ReplicaTrainer


class JaxTrainer(ReplicaTrainer):
    """A replica that trains as it is, by one program per step (`Trainer`)."""

    def step(self) -> None:
        """Begin to train on one local batch, when the steps before it are done."""
        self._losses = [self._replica.train(*self._replica.next_batch())]

    def synchronize(self) -> None:
        self._replica.synchronize()

    def settings(self) -> dict[str, str | int | float | bool]:
        return {}

    def close(self) -> None:
        """Nothing to release."""


def alone(replica: Any) -> JaxTrainer:
    """The replica as it is."""
    return JaxTrainer(replica)
