"""Draws of the gradient noise scale while a training stands still at an evaluation.

A draw is every rank's own gradients, on the local batch that it trains on next and with the weights of now, by the
replica that evaluates: so it is the same over every backend, whatever its trainer lets be seen, and neither the trainer
nor the order of its samples knows of it. Gradients of n local batches of b samples give the two numbers from which
`analysis.findings.noise_scale` estimates (S. McCandlish et al., arXiv:1812.06162, appendix A.1). On 1 rank two
successive local batches are drawn, as those of two ranks would be.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dlscale.benchmarks.rank.measure import BarrierControl
from dlscale.benchmarks.records.target import GradientNoise
from dlscale.collectives.capabilities import Capabilities
from dlscale.collectives.control import Communicator
from dlscale.models.workload import Replica

# Steps per local batch drawn. A draw takes as long as a step, within a tenth: with this many it costs less than 1 %.
NOISE_EVERY = 120
PIECE = 1 << 16  # values whose squares are summed in their own precision


@dataclass(frozen=True, slots=True, kw_only=True)
class NoiseMeter:
    """Draws at evaluations. Collective."""

    replica: Replica  # with the trainer's weights whenever `draw` is called
    control: BarrierControl
    world: Communicator  # of the workers
    every: int = NOISE_EVERY
    aside: Callable[[], AbstractContextManager[Any]] = (
        nullcontext  # so that nothing else is counted meanwhile
    )

    def prepare(self) -> None:
        """Compute a gradient before the training, for TensorFlow traces the first one. Not collective."""
        self.replica.gradients()

    def draw(self, step: int, *, since: int) -> GradientNoise | None:
        """A `GradientNoise` at the evaluation after `step`; None where none is due, or norms are not finite.

        `since`: the step of the evaluation before, 0 at the first.
        """
        count = num_draws(step, every=self.every, since=since, num_ranks=self.world.Get_size())
        if not count:
            return None
        with self.aside():
            self.control.barrier()
            begin = time.perf_counter()
            local, mean = square_norms(self.replica, count, world=self.world)
            seconds = self.control.maximum(time.perf_counter() - begin)
        if not (math.isfinite(local) and math.isfinite(mean)):
            return None
        return GradientNoise(
            num_batches=count * self.world.Get_size(),
            local_square_norm=local,
            mean_square_norm=mean,
            seconds=seconds,
        )


def num_draws(step: int, *, every: int, since: int, num_ranks: int) -> int:
    """Local batches that each rank draws at an evaluation after `step`, of the steps `since` the one before.

    One for every `every` steps of the whole training; on 1 rank in pairs, for one gradient alone says nothing of noise.
    """
    at_once = 2 if num_ranks == 1 else 1
    return at_once * (step // (at_once * every) - since // (at_once * every))


def unmeasurable_because(capabilities: Capabilities, num_ranks: int, *, split: int = 1) -> str:
    """Why the noise scale of such a training cannot be measured; empty if it can."""
    if split > 1:
        return f"{split} ranks share samples: a rank's gradient is not that of samples of its own"
    if num_ranks > 1 and not capabilities.exchanges:
        return f"{capabilities.name} exchanges no gradients: ranks have weights of their own"
    return ""


def square_norms(replica: Replica, num_draws: int, *, world: Any) -> tuple[float, float]:
    """(mean of the square norms, square norm of the mean) of each rank's next `num_draws` gradients; collective.

    Every rank sums a part of the gradients over ranks and squares it: half of what an allreduce moves.
    """
    own = squares = 0.0
    totals: list[NDArray[np.float32]] = []
    for place in range(num_draws):
        gradients = [gradient.ravel() for gradient in replica.gradients()]
        own += sum(map(_square_norm, gradients))
        totals = [a + b for a, b in zip(totals, gradients, strict=True)] if place else gradients
    size, rank = world.Get_size(), world.Get_rank()
    for total in totals:
        ends = [total.size * (index + 1) // size for index in range(size)]
        counts = np.diff([0, *ends])
        part = np.empty(counts[rank], total.dtype)
        world.Reduce_scatter(total, part, counts)
        squares += _square_norm(part)
    num_batches = num_draws * size
    local, mean = world.allreduce(np.array([own, squares]))
    return float(local) / num_batches, float(mean) / num_batches**2


def _square_norm(values: NDArray[np.float32]) -> float:
    """In pieces that are added up in float64: the noise scale is made from the difference of two such sums."""
    pieces = (values[begin : begin + PIECE] for begin in range(0, values.size, PIECE))
    return math.fsum(float(piece @ piece) for piece in pieces)
