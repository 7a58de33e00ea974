"""A trainer whose gradients are compressed: what it sent, and all that a replay of its steps needs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from numpy.typing import NDArray

from dlscale.collectives.backend import OWN, Trainer
from dlscale.collectives.compression.collective import CompressedCollective
from dlscale.collectives.compression.compressor import BucketState
from dlscale.collectives.training.replica_trainer import WrappedTrainer
from dlscale.models.workload import State, Weights

WIRE_BYTES = "wire_bytes"  # the setting with the bytes that this rank sends in a step, mean over its steps


class BucketTrainer(Trainer, Protocol):
    """A trainer that exchanges flat buckets of its own."""

    def buckets(self) -> list[NDArray[Any]]:
        """The buckets of a step, in order."""

    def flat(self, arrays: Weights) -> list[NDArray[Any]]:
        """Arrays in the order and shapes of the weights, copied into buckets as gradients are."""


class CompressedTrainer(WrappedTrainer):
    """The steps of `trainer`, whose buckets travel over `collectives` (`Trainer`)."""

    def __init__(
        self,
        trainer: Trainer,
        collectives: Sequence[CompressedCollective],
        *,
        layout: BucketTrainer,
        settings: Mapping[str, str | int | float | bool],
    ) -> None:
        """`layout` is the trainer that has the buckets; `settings` say how they are compressed."""
        super().__init__(trainer)
        self._collectives = tuple(collectives)
        self._layout, self._settings = layout, dict(settings)
        self._num_steps = 0

    def step(self) -> None:
        self._trainer.step()
        self._num_steps += 1

    def own_state(self) -> State:
        """Residuals, and all else that is kept of each bucket from step to step."""
        return {
            f"{OWN}bucket{place}.{name}": array
            for place, state in enumerate(self.bucket_states())
            for name, array in state.items()
        }

    def flat(self, arrays: Weights) -> list[NDArray[Any]]:
        """Arrays in the order and shapes of the weights, as buckets; not collective."""
        return self._layout.flat(arrays)

    def bucket_states(self) -> list[BucketState]:
        """Copies of what this rank keeps of each bucket, in the order of `flat`; not during a step."""
        states = []
        for bucket in self._layout.buckets():
            # A bucket goes round the teams by its number, and only one of them knows of it.
            own = next((s for c in self._collectives if (s := c.state_of(bucket))), {})
            states.append({name: array.copy() for name, array in own.items()})
        return states

    def settings(self) -> dict[str, str | int | float | bool]:
        sent = sum(collective.num_bytes for collective in self._collectives)
        return {
            **self._trainer.settings(),
            **self._settings,
            WIRE_BYTES: round(sent / max(self._num_steps, 1)),
        }
