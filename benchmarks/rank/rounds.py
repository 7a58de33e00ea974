"""Gate and audit of elastic averaging over collectives, in rounds (`collectives.algorithms.rounds`).

The reference says the algorithm a second time, in float64 and over the control plane, which no backend touches. Every
step of it begins at the trainer's own weights of then, or replays a whole window from one state, as other audits do.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from dlscale.benchmarks.rank import gates
from dlscale.benchmarks.rank.audit import AuditedTraining, ReplayAudit
from dlscale.benchmarks.rank.deviation import CENTRE, VELOCITY, Snapshot, snapshot
from dlscale.benchmarks.rank.replaying import mean_over_ranks
from dlscale.benchmarks.records.record import Gate
from dlscale.collectives.algorithms import easgd
from dlscale.collectives.algorithms.rounds import RoundsTrainer
from dlscale.collectives.backend import Backend
from dlscale.models.weights import WEIGHT
from dlscale.models.workload import Replica, ReplicaFactory, Shard, State, Weights

Exact = list[NDArray[np.float64]]


class Replay:
    """What a rule does to one rank's weights, step by step. Collective."""

    def __init__(
        self, options: easgd.Options, *, control: Any, centre: Sequence[Any], velocity: Sequence[Any] = ()
    ) -> None:
        self._options, self._control = options, control
        self.centre, self.velocity = _exact(centre), _exact(velocity)

    def ahead(self, weights: Weights) -> Weights:
        """Where a rank's gradient is taken: at its weights, or ahead of them by its momentum."""
        if not self.velocity:
            return weights
        momentum = np.float32(self._options.momentum)
        pairs = zip(weights, self.velocity, strict=True)
        # In float32, as weights are kept: a gradient taken a rounding away would be another one.
        return [weight + momentum * velocity.astype(np.float32) for weight, velocity in pairs]

    def after(self, step: int, before: Weights, updated: Sequence[NDArray[Any]]) -> Exact:
        """This rank's weights after that step, from those `before` it and those that its own update led to."""
        weights = _exact(updated)
        if self.velocity:
            self.velocity = [new - old for new, old in zip(weights, _exact(before), strict=True)]
        if step and step % self._options.interval == 0:
            return self._elastic(_exact(before), weights)
        return weights

    def _elastic(self, before: Exact, weights: Exact) -> Exact:
        moving_rate = self._options.moving_rate
        share = moving_rate / self._control.Get_size()
        mean = [np.asarray(mean) for mean in mean_over_ranks(before, control=self._control)]
        moved = [
            weight - share * (old - centre)
            for weight, old, centre in zip(weights, before, self.centre, strict=True)
        ]
        self.centre = [
            (1 - moving_rate) * centre + moving_rate * middle
            for centre, middle in zip(self.centre, mean, strict=True)
        ]
        return moved


def _exact(weights: Sequence[NDArray[Any]]) -> Exact:
    return [weight.astype(np.float64) for weight in weights]


def rounds_gate(
    backend: Backend, factory: ReplicaFactory, *, control: Any, shard: Shard, seed: int, precision: str
) -> list[Gate]:
    """A whole round under plain SGD with learning rate 1: each step changes each rank's weights as the rule says.

    Every rank starts from other weights, as in `gates.gradient_gate`. Each step is compared by itself, from the weights
    that the trainer had: no rounding grows from one to the next.
    """
    options = cast(easgd.Options, backend.rounds).for_gate()
    distributed = backend.distribute(factory, shard=shard, seed=seed + shard.index, gate=True)
    trainer = cast(RoundsTrainer, distributed)
    worst, num_steps = 0.0, options.interval + 1
    try:
        before = trainer.own_weights()
        reference = factory(shard=shard, seed=seed, gate=True)
        results = [gates.broadcast_gate(before, reference, control=control)]
        replay = Replay(options, control=control, centre=trainer.weights(), velocity=trainer.velocity())
        for step in range(num_steps):
            start = replay.ahead(before)
            reference.load(start)
            gradients = reference.gradients()
            largest = gates.largest_of(gradients)
            updated = [weight - gradient for weight, gradient in zip(_exact(start), gradients, strict=True)]
            centre = [value.astype(np.float32) for value in replay.centre]
            wanted = replay.after(step, before, updated)
            trainer.step()
            trainer.synchronize()
            after, learnt = trainer.own_weights(), trainer.weights()
            changes = [old - new for old, new in zip(_exact(before), wanted, strict=True)]
            compare = partial(gates.worst_deviation, largest=largest, roundings=2 + shard.count)
            worst = max(worst, compare(before, after, changes))
            changes = [old - new for old, new in zip(centre, replay.centre, strict=True)]
            worst = max(worst, compare(centre, learnt, changes))
            replay.centre = _exact(learnt)
            replay.velocity = _exact(trainer.velocity())
            before = after
    finally:
        trainer.close()
    worst = max(control.allgather(worst))
    tolerance = gates.RELATIVE_TOLERANCE[precision]
    detail = (
        f"change of the weights in each of {num_steps} steps, exchanges of weights among them, against the algorithm's "
        "rule, of each tensor's largest gradient"
    )
    return [*results, Gate.at_most(tolerance, worst, name="round", detail=detail)]


class RoundsAudit(ReplayAudit):
    """Replays steps and a window of ranks in rounds, with their exchanges (`measure.Audit`). Collective."""

    _replay: Replay
    _start: Weights  # of the step that is replayed, on this rank

    def __init__(self, training: AuditedTraining) -> None:
        super().__init__(training)
        # Rounds are those of the whole training, which may have been resumed in the midst of one.
        self._num_before = cast(RoundsTrainer, training.trainer).num_steps

    def _held(self) -> State:
        return self._state()

    def _seen(self, state: State) -> Snapshot:
        rounds = cast(RoundsTrainer, self._training.trainer)
        return snapshot(rounds.own_weights(), state, centre=rounds.weights(), velocity=rounds.velocity())

    def _replayed(self, reference: Replica) -> Snapshot:
        replay = self._replay
        return snapshot(
            reference.weights(), reference.slots(), centre=replay.centre, velocity=replay.velocity
        )

    def _restored(self, old: Snapshot, state: State) -> Replica:
        centre, velocity = (
            [value for name, value in old.items() if name.startswith(f"{kind}.")]
            for kind in (CENTRE, VELOCITY)
        )
        options = cast(easgd.Options, self._training.backend.rounds)
        self._replay = Replay(options, control=self._training.control, centre=centre, velocity=velocity)
        return super()._restored(old, state)

    def _gradients(self, reference: Replica, step: int) -> Weights:
        self._training.follow(reference, self._num_before + step)
        self._start = reference.weights()
        if self._replay.velocity:
            reference.load(self._replay.ahead(self._start))
        return reference.gradients()

    def _apply(self, reference: Replica, gradients: Weights, step: int) -> None:
        reference.apply(gradients)
        after = self._replay.after(self._num_before + step, self._start, reference.weights())
        reference.load([new.astype(old.dtype) for new, old in zip(after, self._start, strict=True)])

    def _noisy(self, gradients: Weights) -> set[str]:
        """The names of all ranks: the others' rounding arrives here with their weights."""
        names = set().union(*self._training.control.allgather(super()._noisy(gradients)))
        return names | {name.replace(WEIGHT, kind, 1) for name in names for kind in (CENTRE, VELOCITY)}
