"""A trainer that makes sure, every so many steps, that all ranks still hold the same weights."""

from __future__ import annotations

from collections.abc import Sequence

from dlscale.collectives.backend import Collective, Trainer
from dlscale.collectives.matching import check_buffers_match
from dlscale.models.workload import State, Weights


class CheckedTrainer:
    """Another trainer's steps, with the weights of all ranks compared after every `every` of them (`Trainer`)."""

    def __init__(self, trainer: Trainer, collective: Collective, *, every: int, names: Sequence[str]) -> None:
        self._trainer, self._collective = trainer, collective
        self._every, self._names = every, names
        self._num_steps = 0

    def step(self) -> None:
        """Train on one local batch. Raises BuffersDifferError on all ranks when their weights differ."""
        self._trainer.step()
        self._num_steps += 1
        if self._num_steps % self._every == 0:
            self._trainer.synchronize()  # the collective is free only when no exchange is under way
            check_buffers_match(self._collective, self._trainer.weights(), names=self._names)

    def synchronize(self) -> None:
        """Return when all work that earlier steps began is done."""
        self._trainer.synchronize()

    def losses(self) -> list[float]:
        """This rank's mean losses of the last step, one per objective."""
        return self._trainer.losses()

    def loss(self) -> float:
        """This rank's mean loss of the last step, summed over objectives."""
        return self._trainer.loss()

    def weights(self) -> Weights:
        """Copies of the trainable weights."""
        return self._trainer.weights()

    def state(self) -> State:
        """The other trainer's."""
        return self._trainer.state()

    def restore(self, state: State) -> None:
        """Go on from that state."""
        self._trainer.restore(state)

    def settings(self) -> dict[str, str | int | float | bool]:
        """What the other trainer's exchange decided, and how often weights are compared."""
        return {**self._trainer.settings(), "check_every": self._every}

    def close(self) -> None:
        """Release what the other trainer holds."""
        self._trainer.close()
