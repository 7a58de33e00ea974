"""The gate of ranks that do not wait for each other: each has its turn alone, and the loss falls.

What one rank's turn changes on servers is said a second time here, for gate and audit; the reference touches no
backend.
"""

from __future__ import annotations

import math
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dlscale.benchmarks.rank.gates import RELATIVE_TOLERANCE, broadcast_gate, largest_of, worst_deviation
from dlscale.benchmarks.records.record import Gate
from dlscale.collectives.algorithms import downpour, easgd
from dlscale.collectives.backend import Backend
from dlscale.models.workload import Replica, ReplicaFactory, Shard, Weights

Served: TypeAlias = downpour.Options | easgd.Options | None
Exact: TypeAlias = list[NDArray[np.float64]]


def num_turn_steps(algorithm: Served) -> int:
    """Steps in which a rank gives the servers as many local batches, wherever it begins."""
    match algorithm:
        case downpour.Options(fetch_every=fetch_every, push_every=push_every):
            return math.lcm(fetch_every, push_every)
        case easgd.Options(interval=interval):
            return interval
    return 1


def turns(algorithm: Served, num_ranks: int) -> list[range]:
    """Which ranks step together while all others wait; most often each has its turn alone."""
    if isinstance(algorithm, downpour.Options):
        return algorithm.turns(num_ranks)
    return [range(rank, rank + 1) for rank in range(num_ranks)]


def are_grouped(algorithm: Served) -> bool:
    """Whether some ranks step together, and others not with them."""
    return isinstance(algorithm, downpour.Options) and algorithm.groups > 0


def num_first_steps(algorithm: Served) -> int:
    """Steps of a rank's first turn: elastic ranks exchange at the beginning of a round, and the first has nothing."""
    return num_turn_steps(algorithm) + isinstance(algorithm, easgd.Options)


def change_in_turn(
    algorithm: Served, reference: Replica, weights: Weights, *, own: Weights, num_ranks: int
) -> Exact:
    """By how much the servers' `weights` fall in a rank's first turn under plain SGD with rate 1, while others wait.

    `own` are the rank's weights at its beginning, where it does not fetch first. Without an algorithm a turn is one
    gradient. Local updates are in float32, as the rank makes them: a gradient a rounding away is another one.
    """
    if isinstance(algorithm, easgd.Options):
        return _elastic_change(algorithm, reference, weights, own=own, num_ranks=num_ranks)
    served = _exact(weights)
    fetch_every, push_every = (algorithm.fetch_every, algorithm.push_every) if algorithm else (1, 1)
    accrued = [np.zeros_like(weight) for weight in served]
    local: Weights = []
    for step in range(num_turn_steps(algorithm)):
        if step % fetch_every == 0:
            local = [weight.astype(np.float32) for weight in served]
        reference.load(local)
        gradients = reference.gradients()
        accrued = [total + gradient for total, gradient in zip(accrued, gradients, strict=True)]
        local = [weight - gradient for weight, gradient in zip(local, gradients, strict=True)]
        if (step + 1) % push_every == 0:
            served = [weight - total for weight, total in zip(served, accrued, strict=True)]
            accrued = [np.zeros_like(weight) for weight in served]
    return [np.ascontiguousarray(old - new) for old, new in zip(weights, served, strict=True)]


def _elastic_change(
    algorithm: easgd.Options, reference: Replica, centre: Weights, *, own: Weights, num_ranks: int
) -> Exact:
    share, momentum = algorithm.moving_rate / num_ranks, np.float32(algorithm.momentum)
    velocity = [np.zeros_like(weight) for weight in own]
    for _ in range(algorithm.interval):
        ahead = [weight + momentum * v for weight, v in zip(own, velocity, strict=True)]
        reference.load(ahead)
        gradients = reference.gradients()
        updated = [weight - gradient for weight, gradient in zip(ahead, gradients, strict=True)]
        velocity = [new - old for new, old in zip(updated, own, strict=True)]
        own = updated
    return [np.ascontiguousarray(share * (c - x)) for c, x in zip(_exact(centre), own, strict=True)]


def _exact(weights: Weights) -> Exact:
    return [weight.astype(np.float64) for weight in weights]


def turns_gate(
    backend: Backend, factory: ReplicaFactory, *, control: Any, shard: Shard, seed: int, precision: str
) -> list[Gate]:
    """Ranks step one after the other: each changes the weights by minus its own gradient, once, and nothing else does.

    Plain SGD with learning rate 1. A rank's gradient is that at the weights which it held, whatever others have
    done since; the change is measured from the weights that the rank before left behind. With one rank it is the
    gate of synchronous training. The first and the last rank both go first once: after steps that long the gradients of
    others may vanish, and would show nothing. A turn lasts until the rank has pushed. Ranks of a group have their turn
    together, and the change is by the mean of their gradients.
    """
    gates: list[Gate] = []
    worst = 0.0
    algorithm = backend.served.for_gate() if backend.served else None
    order = turns(algorithm, shard.count)
    for first in dict.fromkeys((0, len(order) - 1)):
        trainer = backend.distribute(factory, shard=shard, seed=seed + shard.index, gate=True)
        try:
            left = first_weights = trainer.weights()
            reference = factory(shard=shard, seed=seed, gate=True)
            gates = gates or [broadcast_gate(left, reference, control=control)]
            for turn in (*order[first:], *order[:first]):
                is_mine = shard.index in turn
                own = [np.zeros(weight.shape) for weight in left]
                if is_mine:
                    own = change_in_turn(
                        algorithm, reference, trainer.weights(), own=first_weights, num_ranks=shard.count
                    )
                if len(turn) > 1:
                    for change in own:
                        control.Allreduce(None, change)
                        change /= len(turn)
                if is_mine:
                    for _ in range(num_first_steps(algorithm)):
                        trainer.step()
                    trainer.synchronize()
                if len(turn) > 1:
                    control.Barrier()  # one of them pushes for all
                if is_mine:
                    after = trainer.weights()
                    worst = max(worst, worst_deviation(left, after, own, largest=largest_of(own)))
                    left = after
                left = _broadcast(left, control=control, root=turn[0])
        finally:
            trainer.close()
    worst = max(control.allgather(worst))
    tolerance = RELATIVE_TOLERANCE[precision]
    detail = (
        "change of the weights by ranks that step in turn against each one's own gradient, of each tensor's largest "
        "gradient"
    )
    return [*gates, Gate.at_most(tolerance, worst, name="gradient", detail=detail)]


def _broadcast(weights: Weights, *, control: Any, root: int) -> Weights:
    """The weights of `root`."""
    copies = [weight.copy() for weight in weights]
    for copy in copies:
        control.Bcast(copy, root=root)
    return copies
