"""What one rank's turn changes on servers, said a second time: the reference of gate and audit for ranks that do not
wait for each other. Nothing here touches a backend.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dlscale.collectives.algorithms import downpour
from dlscale.models.workload import Replica, Weights


def num_turn_steps(algorithm: Any) -> int:
    """Steps after which a rank has given the servers all that it had, and fetches anew."""
    return algorithm.turn_steps if algorithm else 1


def change_in_turn(
    algorithm: downpour.Options | None, reference: Replica, weights: Weights
) -> list[NDArray[np.float64]]:
    """By how much the servers' `weights` fall in a turn of one rank under plain SGD with rate 1, while others wait.

    Without an algorithm a turn is one gradient. Local updates are in float32, as the rank makes them: a gradient a
    rounding away is another one.
    """
    served = [weight.astype(np.float64) for weight in weights]
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
    return [old - new for old, new in zip(weights, served, strict=True)]


def first_update(
    algorithm: downpour.Options | None, reference: Replica, *, rate: float
) -> list[NDArray[Any]]:
    """By how much one gradient of `reference` changes weights at first, by the servers' rule or its own optimizer."""
    gradients = reference.gradients()
    if algorithm is None:
        before = reference.weights()
        reference.apply(gradients)
        return [new - old for old, new in zip(before, reference.weights(), strict=True)]
    changes = []
    for gradient in gradients:
        change = np.zeros(gradient.size, np.float32)
        rule = downpour.RULES[algorithm.optimizer](gradient.size, momentum=algorithm.momentum)
        rule.apply(change, gradient.reshape(-1).copy(), rate)
        changes.append(change)
    return changes
