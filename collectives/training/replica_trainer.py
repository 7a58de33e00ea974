"""What trainers have in common: what their replica does, whatever exchanges the gradients, and what wraps another."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from dlscale.base.errors import UsageError
from dlscale.collectives.backend import StateBytes, Trainer
from dlscale.models.workload import WEIGHT, State, Weights


class ReplicaTrainer:
    """Losses, weights and state of one replica; a subclass trains it (`Trainer`) and sets `_losses` in every step."""

    def __init__(self, replica: Any) -> None:
        self._replica = replica
        self._losses: Sequence[Any] = ()

    def losses(self) -> list[float]:
        return [float(loss) for loss in self._losses]

    def loss(self) -> float:
        return sum(self.losses()) if self._losses else float("nan")

    def weights(self) -> Weights:
        weights: Weights = self._replica.weights()
        return weights

    def state(self) -> State:
        """The replica's state, which is complete where gradients are applied in their own step."""
        state: State = self._replica.state()
        return state

    def held(self, *, slots: bool = True) -> State:
        held: State = self._replica.held(slots=slots)
        return held

    def state_bytes(self) -> StateBytes:
        """What the replica holds; a subclass knows of the gradients, where its framework shows them."""
        return bytes_of(self.held())

    def own_state(self) -> State:
        """Nothing: what trains by synchronous steps is the same on all ranks."""
        return {}

    def restore(self, state: State) -> None:
        self._replica.restore(state)


def bytes_of(held: State) -> StateBytes:
    """The bytes of what a rank holds, without gradients."""
    weights = sum(value.nbytes for name, value in held.items() if name.startswith(f"{WEIGHT}."))
    slots = sum(value.nbytes for name, value in held.items() if name.startswith("optimizer"))
    return StateBytes(parameters=weights, optimizer=slots)


@dataclass(frozen=True, slots=True, kw_only=True)
class StepStamps:
    """When the parts of one step were done; seconds from its start.

    A gradient is ready when an exchange could have begun: in torch when it was accumulated, in TensorFlow when an
    operation that waits for it was run.
    """

    fetched: float  # the local batch is there
    forward: Sequence[float]  # ends of forward passes
    backward: Sequence[float]  # ends of the backward passes that follow each
    ready: Sequence[float]  # each gradient is complete, in the order of `Replica.names`
    end: float  # of the update and the step


class StampedTrainer(Trainer, Protocol):
    """A trainer of one rank alone that can stamp steps; `step` takes one without stamps."""

    @property
    def settling_steps(self) -> int:
        """Stamped steps before stamps say when, not when the framework had time for them."""

    def stamped_step(self) -> StepStamps:
        """Train on one local batch, with stamps."""


class KeptByServers:
    """The part of a trainer whose training cannot be saved, as servers keep some of it."""

    backend: str
    _replica: Any

    def served_state(self) -> State:
        """The replica's own state, where that is all that servers or workers update."""
        state: State = self._replica.state()
        return state

    def state(self) -> State:
        """Raises UsageError."""
        raise UsageError(
            f"{self.backend} has no checkpoints: its servers keep part of a training; leave out rules.checkpoint_every"
        )

    def restore(self, state: State) -> None:  # noqa: ARG002
        """Raises UsageError."""
        self.state()


class WrappedTrainer:
    """Another trainer with something around its steps (`Trainer`); what a subclass does not say is the other's."""

    def __init__(self, trainer: Trainer) -> None:
        self._trainer = trainer

    def __getattr__(self, name: str) -> Any:
        return getattr(self._trainer, name)
