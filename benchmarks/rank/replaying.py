"""What audits that replay steps have in common: means over ranks, a reference's slots, a lot, and their gates."""

from __future__ import annotations

import math
import secrets
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np

from dlscale.benchmarks.rank import deviation
from dlscale.benchmarks.rank.deviation import Judged
from dlscale.benchmarks.records.record import Gate
from dlscale.models.weights import NUM_DRAWN
from dlscale.models.workload import Replica, State, Weights

BLOCK = 1 << 18  # elements that are summed at once, in float64
SHIFT = 3.0  # added to batch norm's shifts, see `smoothed`
LEAST_LOSS = 1e-2  # a smaller one's rounding is not judged


def make_slots(reference: Replica) -> None:
    """Ready for `restore`, which overwrites what optimizers make in their first step; torch's need not have made it."""
    if reference.framework != "torch":
        reference.apply([np.zeros_like(weight) for weight in reference.weights()])


def loss_error(found: list[float], expected: list[float]) -> float:
    """The largest difference between losses, of those expected."""
    errors = [
        abs(own - replayed) / (abs(replayed) + LEAST_LOSS)
        for own, replayed in zip(found, expected, strict=True)
    ]
    return max((error if math.isfinite(error) else math.inf for error in errors), default=0.0)


def smoothed(weights: Weights, names: Sequence[str]) -> Weights:
    """The same weights, with the shifts of batch norm raised, so that few values lie next to the jump of ReLU.

    With first weights as they are, rounding moves some values of a deep network across it, and the gradients of the
    same network computed twice, in another order, differ by percents, from each other and from float64.
    """
    return [
        weight + np.float32(SHIFT) if "norm" in name and name.endswith("bias") else weight
        for weight, name in zip(weights, names, strict=True)
    ]


def mean_over_ranks(
    gradients: Sequence[Any], *, control: Any, num_accepted: int | None = None, order: Literal["C", "K"] = "C"
) -> Weights:
    """The means in the gradients' own type, summed over `control` in float64; of two in that type, rounded as once.

    Where only `num_accepted` ranks count, the others give zeros. In order K arrays are summed as they lie in memory,
    which must be alike on all ranks.
    """
    num_ranks = control.Get_size()
    if num_ranks == 1:
        return list(gradients)
    means = [np.empty_like(gradient, order=order) for gradient in gradients]
    # Block by block: memory that is touched for the first time costs more than the arithmetic.
    memory = np.empty(min(BLOCK, max((mean.size for mean in means), default=0)) * (num_ranks > 2))
    for gradient, mean in zip(gradients, means, strict=True):
        source, into = gradient.ravel(order=order), mean.ravel(order=order)  # a view: `mean` has no gaps
        if num_ranks == 2:
            np.divide(source, num_accepted or num_ranks, out=into)  # halved without rounding
            control.Allreduce(None, into)
            continue
        for begin in range(0, source.size, BLOCK):
            part = slice(begin, begin + BLOCK)
            total = memory[: source[part].size]
            total[:] = source[part]
            control.Allreduce(None, total)
            total /= num_accepted or num_ranks
            into[part] = total
    return means


def judged_gate(name: str, judged: Judged, detail: str, *, control: Any) -> Gate:
    """The worst of all ranks; collective."""
    # No statistic is NaN, over which a plain maximum may pass: it is infinite where a number is not finite.
    values, noises = zip(*control.allgather((judged.value, judged.noise)), strict=True)
    if (noise := max(noises)) > deviation.MOST_NOISE:
        return unaudited(name, f"replays of the same steps differ by {noise:.2g} from each other")
    apart = f" (replays differ by {noise:.2g} from each other)" if noise else ""
    return Gate.at_most(judged.allowed(noise), max(values), name=name, detail=detail + apart)


def unaudited(name: str, why: str) -> Gate:
    """The entry of what could not be looked at."""
    return Gate.unchecked(name, f"not audited: {why}")


def num_drawn(state: State) -> int:
    """Batches that a replica or trainer with that state has drawn."""
    return int(state[NUM_DRAWN][0])


def draw(count: int, *, control: Any) -> int:
    """A number below `count`, the same on all ranks of `control`, which nobody could know before."""
    number: int = control.bcast(secrets.randbelow(count))
    return number
