"""Training in rounds: ranks train alone, and now and then exchange weights by a rule, over any `Collective`.

A rule says when and what; it works on flat float32 buffers of all weights. `RoundsBackend` is a backend whose ranks
train that way, and `RoundsTrainer` one replica of it.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from dlscale.collectives.backend import OWN, Backend, Collective, InStep, Trainer
from dlscale.collectives.capabilities import Capabilities
from dlscale.collectives.training.replica_trainer import WrappedTrainer
from dlscale.models.weights import check_names
from dlscale.models.workload import Replica, ReplicaFactory, Shard, State, Weights

Buffer = NDArray[np.float32]
Average = Callable[[Buffer], None]
"""Replaces a buffer on every rank by its mean over ranks, in place; collective."""

COUNTS = f"{OWN}counts"  # in a rank's own state: steps, exchanges


class FlatWeights:
    """A replica's weights as flat float32 buffers. `size`: the number of ranks."""

    def __init__(self, replica: Replica, collective: Collective) -> None:
        self._replica, self._collective = replica, collective
        self._copies = _integration(replica).FlatCopies(replica)
        self.size = collective.size

    def buffer(self) -> Buffer:
        """Zeros, where the collective reduces fastest; collective."""
        return self._collective.empty(self._copies.count)

    def read(self, buffer: Buffer) -> None:
        """Copy the replica's weights into `buffer`."""
        self._copies.read(buffer)

    def write(self, buffer: Buffer) -> None:
        self._copies.write(buffer)

    def shaped(self, buffer: Buffer) -> Weights:
        """Copies of the buffer's parts as the replica has weights: they are its own for a moment."""
        own = np.empty_like(buffer)
        self.read(own)
        self.write(buffer)
        weights = self._replica.weights()
        self.write(own)
        return weights


class Rule(Protocol):
    """An algorithm in one training. Steps are numbered from 0, and all methods but properties are collective."""

    num_exchanges: int  # so far

    def before(self, step: int) -> None:
        """The step is to begin."""

    def after(self, step: int) -> None:
        """This rank's own update is done."""

    def learnt(self) -> Buffer:
        """The weights that the ranks have learnt together, the same bits on all of them; not to be changed."""

    def kept(self) -> dict[str, NDArray[Any]]:
        """What it keeps from step to step beside the replica's weights, by name: arrays to be read or overwritten."""

    def resume(self) -> None:
        """Between two steps the replica's weights and what `kept` gives were overwritten."""


class RoundsOptions(Protocol):
    """The options of an algorithm that runs in rounds over collectives."""

    @property
    def interval(self) -> int:
        """Steps of a round: an exchange comes once in so many."""

    @property
    def num_synchronous(self) -> int:
        """Steps that come first and average gradients, as synchronous SGD does."""

    def for_gate(self) -> RoundsOptions:
        """The same algorithm in rounds that are short enough to be looked at step by step."""

    def rule(self, weights: FlatWeights, average: Average) -> Rule:
        """The rule of one training; collective."""


class RoundsBackend(InStep):
    """Another backend's ranks, training by an algorithm in rounds over its collectives (`Backend`)."""

    def __init__(self, backend: Backend, options: RoundsOptions) -> None:
        self._backend, self._options = backend, options
        self._collective = backend.collective()

    @property
    def capabilities(self) -> Capabilities:
        return self._backend.capabilities

    @property
    def rounds(self) -> RoundsOptions:
        return self._options

    def distribute(
        self, factory: ReplicaFactory, *, shard: Shard, seed: int, gate: bool = False
    ) -> RoundsTrainer:
        """A replica that trains by itself between exchanges, with the initial weights of rank 0.

        The gate looks at a round step by step, so its trainer has short ones.
        """
        return RoundsTrainer(
            self._backend,
            factory,
            self._options.for_gate() if gate else self._options,
            self._collective,
            shard=shard,
            seed=seed,
            gate=gate,
        )

    def collective(self) -> Collective:
        return self._backend.collective()

    def close(self) -> None:
        self._collective.close()
        self._backend.close()


class RoundsTrainer(WrappedTrainer):
    """One rank's replica in rounds (`Trainer`). The synchronous steps that may come first are the backend's own."""

    def __init__(
        self,
        backend: Backend,
        factory: ReplicaFactory,
        options: RoundsOptions,
        collective: Collective,
        *,
        shard: Shard,
        seed: int,
        gate: bool,
    ) -> None:
        made: list[Replica] = []

        def remembering(*, shard: Shard, seed: int, gate: bool = False, drawn: bool = True) -> Replica:
            made.append(factory(shard=shard, seed=seed, gate=gate, drawn=drawn))
            return made[-1]

        self._collective, self._num_synchronous = collective, options.num_synchronous
        self._num_steps = 0
        super().__init__(
            backend.distribute(remembering, shard=shard, seed=seed, gate=gate)
            if self._num_synchronous
            else _alone(remembering(shard=shard, seed=seed, gate=gate))
        )
        (self._replica,) = made
        self._flat = FlatWeights(self._replica, collective)
        first = self._flat.buffer()
        self._flat.read(first)
        collective.broadcast(first, 0)
        self._flat.write(first)
        self._rule = options.rule(self._flat, self._average)

    def step(self) -> None:
        if self._num_synchronous and self._num_steps == self._num_synchronous:
            self._train_alone()
        self._rule.before(self._num_steps)
        self._trainer.step()
        self._rule.after(self._num_steps)
        self._num_steps += 1

    def weights(self) -> Weights:
        """What all ranks have learnt together: the mean of their weights, or the centre; collective."""
        return self._flat.shaped(self._rule.learnt())

    def own_weights(self) -> Weights:
        """This rank's own weights; not collective."""
        return self._replica.weights()

    def velocity(self) -> Weights:
        """The momentum that the rule keeps on this rank; empty where it keeps none."""
        velocity = getattr(self._rule, "velocity", None)
        return [] if velocity is None else self._flat.shaped(velocity)

    def state(self) -> State:
        """This rank's own: those of other ranks differ, and what the rule keeps is not in it."""
        return self._trainer.state()

    @property
    def num_steps(self) -> int:
        """Steps of the training so far, those before it was resumed included."""
        return self._num_steps

    def own_state(self) -> State:
        """This rank's replica, what the rule keeps, and the numbers of steps and exchanges."""
        counts = np.array([self._num_steps, self._rule.num_exchanges])
        kept = {f"{OWN}{name}": array.copy() for name, array in self._rule.kept().items()}
        return self.state() | kept | {COUNTS: counts}

    def restore(self, state: State) -> None:
        """Resume from this rank's own state, by itself if the synchronous steps were over. Raises UsageError."""
        own = {name: value for name, value in state.items() if name.startswith(OWN)}
        kept = {f"{OWN}{name}": array for name, array in self._rule.kept().items()}
        check_names(own, {name: array.shape for name, array in kept.items()} | {COUNTS: (2,)})
        self._num_steps, self._rule.num_exchanges = map(int, own[COUNTS])
        if self._num_synchronous and self._num_steps > self._num_synchronous:
            self._train_alone()
        self._trainer.restore({name: value for name, value in state.items() if name not in own})
        for name, array in kept.items():
            array[:] = own[name]
        self._rule.resume()

    def settings(self) -> dict[str, str | int | float | bool]:
        """How often weights were exchanged, how much travels each time, and the collective's own decisions."""
        return {
            **self._trainer.settings(),
            "overlap": False,
            "num_rounds": self._rule.num_exchanges,
            "round_bytes": int(sum(weight.nbytes for weight in self._replica.weights())),
            **self._collective.settings(),
        }

    def _train_alone(self) -> None:
        self._trainer.close()
        self._trainer = _alone(self._replica)

    def _average(self, buffer: Buffer) -> None:
        self._collective.allreduce(buffer, "average")


def _alone(replica: Replica) -> Trainer:
    """The framework's own training of one replica, without any exchange."""
    trainer: Trainer = _integration(replica).alone(replica)
    return trainer


def _integration(replica: Replica) -> Any:
    return importlib.import_module(f"dlscale.collectives.training._{replica.framework}")
