"""Downpour SGD: workers fetch weights from servers and push gradients to them, and nobody waits for anybody.

J. Dean et al., *Large Scale Distributed Deep Networks*, NIPS 2012, section 4.1 and algorithm 7.1 of its appendix. With
x the worker's weights, w the servers', g the gradient at x, G what it accrued since its last push, r the learning rate:

    before step k, if k mod fetch_every = 0      x <- w
    in every step                                G <- G + g,  x <- x - r g
    after it, if k + 1 mod push_every = 0        the servers update w by G, and G <- 0

Workers push after the first `push_every` steps and not after the first one, so that each push has as many. Each server
updates its shard on its own, as soon as a push is there, by one of these rules (u and s begin with 0):

    sgd        w <- w - r G
    momentum   u <- m u + G                                  w <- w - r u
    adagrad    s <- s + G^2                                  w <- w - r G / (sqrt(s) + e)         (section 4.1 there)
    adam       as in `models.optimizers`, whose betas and epsilon it has

The staleness of a push is the number of updates between those that the worker's weights had taken up when they were
fetched and the push's own. `divide_by_staleness` divides r by it where it is above 1 (W. Zhang, S. Gupta, X. Lian,
J. Liu, *Staleness-aware Async-SGD for Distributed Deep Learning*, IJCAI 2016, arXiv:1511.05950, equation 6).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from dlscale.base.errors import UsageError
from dlscale.collectives.backend import Setup
from dlscale.collectives.option_kinds import CheckedOptions, at_least, one_of, option
from dlscale.models.optimizers import ADAM_EPSILON, BETAS

Floats = NDArray[np.float32]

ADAGRAD_EPSILON = 1e-10  # torch's
BLOCK = 1 << 15  # elements that all passes of an update go over before the next ones: they stay in the cache


@dataclass(frozen=True, slots=True, kw_only=True)
class Options(CheckedOptions):
    """`fetch_every`, `push_every`: steps of a worker. `optimizer`, with `momentum`: the servers' rule.

    `learning_rate`: theirs and the workers'; 0 means that of the network's own optimizer. `masters`: servers that
    stand between the workers and one more, which holds the weights; 0: none. `groups`: of workers that push the mean of
    their gradients, computed with the same weights, as one; 0: every worker for itself.
    """

    owner = "algorithm downpour"

    fetch_every: int = at_least(1, 1)
    push_every: int = at_least(1, 1)
    optimizer: str = one_of(("sgd", "momentum", "adagrad", "adam"), "sgd")
    learning_rate: float = option(
        0.0,
        lambda rate: 0 <= rate < math.inf,
        "give a positive number, or 0 for that of the network's optimizer",
    )
    momentum: float = option(0.9, lambda value: 0 <= value < 1, "give at least 0 and less than 1")
    divide_by_staleness: bool = False
    masters: int = at_least(0, 0)
    groups: int = at_least(0, 0)

    def check_together(self) -> None:
        """Returns if the options fit each other. Raises UsageError."""
        if self.groups and (self.fetch_every, self.push_every) != (1, 1):
            raise UsageError(
                "option groups of algorithm downpour with intervals above 1: a group fetches and pushes in every step; "
                "leave them out"
            )

    def for_gate(self) -> Options:
        """The same algorithm with intervals of two steps at most, by plain SGD of rate 1."""
        return Options(
            fetch_every=min(self.fetch_every, 2),
            push_every=min(self.push_every, 2),
            learning_rate=1.0,
            groups=self.groups,
        )

    def turns(self, num_workers: int) -> list[range]:
        """The workers of each group; one each without groups."""
        count = self.groups or num_workers
        ends = [num_workers * place // count for place in range(count + 1)]
        return [range(*pair) for pair in pairwise(ends)]

    def check_setup(self, setup: Setup) -> None:
        """Returns if ranks could train in that setup. Raises UsageError."""
        if self.groups > setup.num_ranks:
            raise UsageError(
                f"option groups of algorithm downpour is {self.groups} on {setup.num_ranks} ranks: more groups than "
                f"workers; give at most {setup.num_ranks}"
            )
        if self.masters > setup.num_ranks:
            raise UsageError(
                f"option masters of algorithm downpour is {self.masters} on {setup.num_ranks} ranks: a master would be "
                f"without workers; give at most {setup.num_ranks - 1}"
            )
        if self.masters and setup.num_servers != self.masters + 1:
            raise UsageError(
                f"option masters of algorithm downpour is {self.masters} with {setup.num_servers} servers: each master "
                f"is one, and so is the one over them; set servers={self.masters + 1}"
            )


class ServerRule:
    """How a server updates its shard: `apply` changes weights in place, and may overwrite the gradient."""

    def kept(self) -> list[Floats]:
        """What it needs between updates: its arrays themselves, each with an element per weight."""
        return []

    def resume(self, num_updates: int) -> None:
        """What `kept` gives was overwritten by what it is after so many updates."""


class Sgd(ServerRule):
    """Plain SGD: bit for bit w - r G in float32."""

    def __init__(self, count: int, *, momentum: float) -> None:
        del count, momentum  # it keeps nothing

    def apply(self, weights: Floats, gradient: Floats, rate: float) -> None:
        """Two passes."""
        for w, g in _blocks(weights, gradient):
            np.multiply(g, np.float32(rate), out=g)
            np.subtract(w, g, out=w)


class Momentum(ServerRule):
    """SGD with momentum."""

    def __init__(self, count: int, *, momentum: float) -> None:
        self._momentum, self._u = np.float32(momentum), np.zeros(count, np.float32)

    def kept(self) -> list[Floats]:
        """Momentum u."""
        return [self._u]

    def apply(self, weights: Floats, gradient: Floats, rate: float) -> None:
        """Four passes."""
        for w, g, u in _blocks(weights, gradient, self._u):
            np.multiply(u, self._momentum, out=u)
            np.add(u, g, out=u)
            np.multiply(u, np.float32(rate), out=g)
            np.subtract(w, g, out=w)


class Adagrad(ServerRule):
    """Adagrad with the sums of this shard."""

    def __init__(self, count: int, *, momentum: float) -> None:
        del momentum
        self._sums, self._work = np.zeros(count, np.float32), np.empty(min(count, BLOCK), np.float32)

    def kept(self) -> list[Floats]:
        """Sums s."""
        return [self._sums]

    def apply(self, weights: Floats, gradient: Floats, rate: float) -> None:
        """Seven passes."""
        for w, g, s in _blocks(weights, gradient, self._sums):
            work = self._work[: w.size]
            np.multiply(g, g, out=work)
            np.add(s, work, out=s)
            np.sqrt(s, out=work)
            np.add(work, np.float32(ADAGRAD_EPSILON), out=work)
            np.multiply(g, np.float32(rate), out=g)
            np.divide(g, work, out=g)
            np.subtract(w, g, out=w)


class Adam(ServerRule):
    """Adam, algorithm 1 of Kingma & Ba 2015, arXiv:1412.6980."""

    def __init__(self, count: int, *, momentum: float) -> None:
        del momentum
        self._mean, self._square = np.zeros(count, np.float32), np.zeros(count, np.float32)
        self._work = np.empty(min(count, BLOCK), np.float32)
        self._num_updates = 0

    def kept(self) -> list[Floats]:
        """Both moments."""
        return [self._mean, self._square]

    def resume(self, num_updates: int) -> None:
        """Biases are those of the next update."""
        self._num_updates = num_updates

    def apply(self, weights: Floats, gradient: Floats, rate: float) -> None:
        """Twelve passes."""
        self._num_updates += 1
        one, two = BETAS
        step = np.float32(rate / (1 - one**self._num_updates))
        scale = np.float32(1 / np.sqrt(1 - two**self._num_updates))
        for w, g, m, v in _blocks(weights, gradient, self._mean, self._square):
            work = self._work[: w.size]
            np.multiply(m, np.float32(one), out=m)
            np.multiply(g, np.float32(1 - one), out=work)
            np.add(m, work, out=m)
            np.multiply(g, g, out=g)
            np.multiply(g, np.float32(1 - two), out=g)
            np.multiply(v, np.float32(two), out=v)
            np.add(v, g, out=v)
            np.sqrt(v, out=work)
            np.multiply(work, scale, out=work)
            np.add(work, np.float32(ADAM_EPSILON), out=work)
            np.divide(m, work, out=work)
            np.multiply(work, step, out=work)
            np.subtract(w, work, out=w)


RULES: dict[str, type[Sgd | Momentum | Adagrad | Adam]] = {
    "sgd": Sgd,
    "momentum": Momentum,
    "adagrad": Adagrad,
    "adam": Adam,
}


def _blocks(*arrays: Floats) -> Iterator[tuple[Floats, ...]]:
    for start in range(0, arrays[0].size, BLOCK):
        yield tuple(array[start : start + BLOCK] for array in arrays)
