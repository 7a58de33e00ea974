"""Algorithms over any `Collective`: ranks train alone, and exchange weights once per round, by the algorithm's rule.

`RoundsBackend` is a backend whose ranks train that way, and `RoundsTrainer` one replica of it.
"""

from __future__ import annotations

import importlib
import math
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from dlscale.collectives.backend import Backend, Collective, WrappedTrainer
from dlscale.models.workload import Replica, ReplicaFactory, Shard, Weights

Buffer = NDArray[np.float32]


class FlatWeights:
    """A replica's weights as flat float32 buffers, in canonical order."""

    def __init__(self, replica: Replica, collective: Collective) -> None:
        self._replica, self._collective = replica, collective
        self._shapes = [weight.shape for weight in replica.weights()]
        self._ends = np.cumsum([math.prod(shape) for shape in self._shapes])

    def buffer(self) -> Buffer:
        """Zeros, where the collective reduces fastest; collective."""
        return self._collective.empty(int(self._ends[-1]))

    def read(self, buffer: Buffer) -> None:
        """Copy the replica's weights into `buffer`."""
        np.concatenate([weight.reshape(-1) for weight in self._replica.weights()], out=buffer)

    def write(self, buffer: Buffer) -> None:
        self._replica.load(self.shaped(buffer))

    def shaped(self, buffer: Buffer) -> Weights:
        """The buffer's parts as the replica has weights; they share its memory."""
        parts = np.split(buffer, self._ends[:-1])
        return [part.reshape(shape) for part, shape in zip(parts, self._shapes, strict=True)]


class Rule(Protocol):
    """What an algorithm does around a rank's steps, which are numbered from 0; methods are collective."""

    centre: Buffer  # what was learnt, the same bits on all ranks
    num_exchanges: int

    def before(self, step: int) -> None:
        """Called before the step."""

    def after(self, step: int) -> None:
        """Called after the step, once the rank's weights have its update."""


class RoundsBackend(Backend):
    """Another backend's ranks, training in rounds over its collectives."""

    def __init__(self, backend: Backend, options: Any) -> None:
        self.name, self._backend, self._options = backend.capabilities.name, backend, options
        self._collective = backend.collective()

    @property
    def rounds(self) -> Any:
        return self._options

    def distribute(
        self, factory: ReplicaFactory, *, shard: Shard, seed: int, gate: bool = False
    ) -> RoundsTrainer:
        """A replica that trains by itself between exchanges, with the initial weights of rank 0.

        The gate looks at a round step by step, so its trainer has short ones.
        """
        options = self._options.for_gate() if gate else self._options
        return RoundsTrainer(factory(shard=shard, seed=seed, gate=gate), options, self._collective)

    def collective(self) -> Collective:
        return self._backend.collective()

    def close(self) -> None:
        self._collective.close()
        self._backend.close()


class RoundsTrainer(WrappedTrainer):
    """One rank's replica in rounds (`Trainer`)."""

    def __init__(self, replica: Replica, options: Any, collective: Collective) -> None:
        """With the weights of rank 0; collective."""
        module = f"dlscale.collectives.training._{replica.framework}"
        super().__init__(importlib.import_module(module).alone(replica))
        self._replica, self._collective, self._num_steps = replica, collective, 0
        self._flat = FlatWeights(replica, collective)
        first = self._flat.buffer()
        self._flat.read(first)
        collective.broadcast(first, 0)
        self._flat.write(first)
        self._rule: Rule = options.rule(self._flat, collective)

    def step(self) -> None:
        self._rule.before(self._num_steps)
        self._trainer.step()
        self._rule.after(self._num_steps)
        self._num_steps += 1

    def weights(self) -> Weights:
        """The centre; the same bits on all ranks."""
        return self._flat.shaped(self._rule.centre.copy())

    def own_weights(self) -> Weights:
        """This rank's own weights; not collective."""
        return self._replica.weights()

    def settings(self) -> dict[str, str | int | float | bool]:
        """How often weights were exchanged, how much travels each time, and the collective's own decisions."""
        return {
            **self._trainer.settings(),
            "overlap": False,
            "num_rounds": self._rule.num_exchanges,
            "round_bytes": int(sum(weight.nbytes for weight in self._replica.weights())),
            **self._collective.settings(),
        }
