"""The part of a trainer that its replica does, whatever exchanges the gradients."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dlscale.models.workload import State, Weights


class ReplicaTrainer:
    """Losses, weights and state of one replica; a subclass trains it (`Trainer`) and sets `_losses` in every step."""

    def __init__(self, replica: Any) -> None:
        self._replica = replica
        self._losses: Sequence[Any] = ()

    def losses(self) -> list[float]:
        """This rank's losses of the last step, one per objective; none before the first."""
        return [float(loss) for loss in self._losses]

    def loss(self) -> float:
        """This rank's loss of the last step, summed over objectives."""
        return sum(self.losses()) if self._losses else float("nan")

    def weights(self) -> Weights:
        """Copies of the trainable weights."""
        weights: Weights = self._replica.weights()
        return weights

    def state(self) -> State:
        """The replica's state, which is complete where gradients are applied in their own step."""
        state: State = self._replica.state()
        return state

    def restore(self, state: State) -> None:
        """Resume from `state`."""
        self._replica.restore(state)
