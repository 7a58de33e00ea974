"""What servers hold after some steps of one rank, said a second time: by a replica that no backend touches.

A replay begins at what the servers and the rank held (`CountingTrainer.served_state`). It is exact where nobody else
pushes meanwhile. Without any push it says what optimizers do by themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from dlscale.benchmarks.rank.audit import AuditedTraining
from dlscale.benchmarks.rank.deviation import Snapshot, snapshot
from dlscale.benchmarks.rank.replaying import make_slots
from dlscale.collectives.algorithms import downpour, easgd
from dlscale.collectives.backend import OWN, SERVED, SERVED_COUNTS
from dlscale.models.workload import Replica, State, Weights

Mean = Callable[[Weights], Weights]
"""What is pushed of the gradients of a rank: they themselves, or the mean over its group."""


class ServedReplay(Protocol):
    """One rank and the servers. Steps are numbered as those of the rank, the first is 0."""

    def restore(self, state: State) -> None:
        """Begin at a trainer's `served_state`."""

    def step(self, number: int, mean: Mean) -> Weights:
        """A step of the rank; returns the gradients."""

    def push(self) -> Weights:
        """An update of the servers by the rank's gradients at the weights of now; returns them."""

    def idle(self) -> None:
        """An update by gradients of zero."""

    def seen(self) -> Snapshot:
        """All that steps change."""

    def num_updates(self) -> int | None:
        """Of the servers, where they told."""


def served_replay(training: AuditedTraining, reference: Replica) -> ServedReplay:
    """That of a training's algorithm."""
    algorithm = training.backend.served
    if isinstance(algorithm, downpour.Options):
        rate = float(training.trainer.settings()["learning_rate"])
        return _Downpour(algorithm, reference, rate=rate)
    make_slots(reference)
    if isinstance(algorithm, easgd.Options):
        return _Elastic(algorithm, training, reference)
    return _OwnOptimizers(training, reference)


class _OwnOptimizers:
    """Servers that do what the network's own optimizers would do (`ServedReplay`)."""

    def __init__(self, training: AuditedTraining, reference: Replica) -> None:
        self._training, self._reference = training, reference

    def restore(self, state: State) -> None:
        self._reference.restore(state)

    def step(self, number: int, mean: Mean) -> Weights:
        self._training.follow(self._reference, number)
        gradients = mean(self._reference.gradients())
        self._reference.apply(gradients)
        return gradients

    def push(self) -> Weights:
        gradients = self._reference.gradients()
        self._reference.apply(gradients)
        return gradients

    def idle(self) -> None:
        self._reference.apply(_zeros(self._reference.weights()))

    def seen(self) -> Snapshot:
        return snapshot(self._reference.weights(), self._reference.state())

    def num_updates(self) -> int | None:
        return None


class _Downpour:
    """Servers with a rule of their own (`ServedReplay`); a rank's steps begin with a fetch, and nothing accrued."""

    def __init__(self, options: downpour.Options, reference: Replica, *, rate: float) -> None:
        self._options, self._reference, self._rate = options, reference, rate
        self._shapes = [weight.shape for weight in reference.weights()]

    def restore(self, state: State) -> None:
        own = {name: value for name, value in state.items() if not name.startswith(SERVED)}
        self._reference.restore(self._reference.state() | own)
        arrays = _served(state, num_weights=len(self._shapes))
        self._weights, *kept = (np.concatenate([part.reshape(-1) for part in parts]) for parts in arrays)
        self._num_updates = int(state[SERVED_COUNTS][0])
        self._rule = downpour.RULES[self._options.optimizer](
            self._weights.size, momentum=self._options.momentum
        )
        for own_array in self._rule.kept():
            own_array[:] = kept.pop(0)
        self._rule.resume(self._num_updates)
        self._local, self._accrued = self._weights.copy(), np.zeros_like(self._weights)
        self._fetched = self._num_updates

    def step(self, number: int, mean: Mean) -> Weights:
        if number % self._options.fetch_every == 0:
            self._local, self._fetched = self._weights.copy(), self._num_updates
        self._reference.load(self._shaped(self._local))
        gradients = mean(self._reference.gradients())
        flat = np.concatenate([gradient.reshape(-1) for gradient in gradients])
        self._accrued += flat
        self._local -= np.float32(self._rate) * flat
        if (number + 1) % self._options.push_every == 0:
            staleness = self._num_updates - self._fetched
            divisor = max(staleness, 1) if self._options.divide_by_staleness else 1
            self._update(self._accrued, self._rate / divisor)
            self._accrued = np.zeros_like(self._accrued)
        return gradients

    def push(self) -> Weights:
        self._reference.load(self._shaped(self._weights))
        gradients = self._reference.gradients()
        self._update(np.concatenate([gradient.reshape(-1) for gradient in gradients]), self._rate)
        return gradients

    def idle(self) -> None:
        self._update(np.zeros_like(self._weights), self._rate)

    def seen(self) -> Snapshot:
        kept = {
            f"optimizer0.{place}.kept{number}": part
            for number, array in enumerate(self._rule.kept())
            for place, part in enumerate(self._shaped(array.copy()))
        }
        return snapshot(self._shaped(self._weights.copy()), kept)

    def num_updates(self) -> int | None:
        return self._num_updates

    def _update(self, gradient: NDArray[np.float32], rate: float) -> None:
        self._rule.apply(self._weights, gradient, rate)
        self._num_updates += 1

    def _shaped(self, flat: NDArray[np.float32]) -> Weights:
        ends = np.cumsum([int(np.prod(shape)) for shape in self._shapes])[:-1]
        parts = zip(np.split(flat, ends), self._shapes, strict=True)
        return [part.reshape(shape) for part, shape in parts]


class _Elastic:
    """A rank that trains by the network's own optimizer, and a centre (`ServedReplay`)."""

    def __init__(self, options: easgd.Options, training: AuditedTraining, reference: Replica) -> None:
        self._options, self._training, self._reference = options, training, reference
        self._share = np.float32(options.moving_rate / training.control.Get_size())
        self._num_weights = len(reference.weights())

    def restore(self, state: State) -> None:
        own = {name: value for name, value in state.items() if not name.startswith((SERVED, OWN))}
        self._reference.restore(own)
        (self._centre,) = _served(state, num_weights=self._num_weights)
        self._num_updates = int(state[SERVED_COUNTS][0])
        self._own = self._reference.weights()
        self._velocity = [
            state[f"{OWN}velocity.{place}"]
            for place in range(self._num_weights * bool(self._options.momentum))
        ]

    def step(self, number: int, mean: Mean) -> Weights:
        own, force = self._own, _zeros(self._own)
        if number and number % self._options.interval == 0:
            force = [self._share * (x - c) for x, c in zip(own, self._centre, strict=True)]
            self._centre = [c + f for c, f in zip(self._centre, force, strict=True)]
            self._num_updates += 1
        self._training.follow(self._reference, number)
        if self._velocity:
            momentum = np.float32(self._options.momentum)
            self._reference.load([x + momentum * v for x, v in zip(own, self._velocity, strict=True)])
        gradients = mean(self._reference.gradients())
        self._reference.apply(gradients)
        updated = self._reference.weights()
        if self._velocity:
            self._velocity = [new - old for new, old in zip(updated, own, strict=True)]
        self._own = [new - f for new, f in zip(updated, force, strict=True)]
        self._reference.load(self._own)
        return gradients

    def push(self) -> Weights:
        """What one step of the rank adds to its distance from the centre."""
        before, gradients = self._reference.weights(), self._reference.gradients()
        self._reference.apply(gradients)
        moved = zip(self._centre, before, self._reference.weights(), strict=True)
        self._centre = [c + self._share * (new - old) for c, old, new in moved]
        return gradients

    def idle(self) -> None:
        """A centre that nobody comes to stays."""

    def seen(self) -> Snapshot:
        state = self._reference.state()
        return snapshot(self._own, state, centre=self._centre, velocity=self._velocity)

    def num_updates(self) -> int | None:
        return self._num_updates


def _served(state: State, *, num_weights: int) -> list[Weights]:
    """What the servers hold, each in the shapes of the weights."""
    num_arrays = sum(name.startswith(SERVED) for name in state if name != SERVED_COUNTS) // num_weights
    return [
        [state[f"{SERVED}{number}.{place}"] for place in range(num_weights)] for number in range(num_arrays)
    ]


def _zeros(weights: Sequence[NDArray[Any]]) -> Weights:
    return [np.zeros_like(weight) for weight in weights]
