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
fetched and the push's own.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dlscale.base.errors import UsageError
from dlscale.collectives.backend import Setup
from dlscale.collectives.option_kinds import CheckedOptions, at_least, one_of, option
from dlscale.models.optimizers import ADAM_EPSILON, BETAS

Floats = NDArray[np.float32]

NUM_KEPT = {
    "sgd": 0,
    "momentum": 1,
    "adagrad": 1,
    "adam": 2,
}  # arrays that a rule keeps, an element per weight
ADAGRAD_EPSILON = np.float32(1e-10)  # torch's
BLOCK = 1 << 15  # elements that all passes of an update go over before the next ones: they stay in the cache


@dataclass(frozen=True, slots=True, kw_only=True)
class Options(CheckedOptions):
    """`fetch_every`, `push_every`: steps of a worker. `optimizer`, with `momentum`: the servers' rule.

    `learning_rate`: theirs and the workers'; 0 means that of the network's own optimizer. `masters`: servers that
    stand between the workers and one more, which holds the weights; 0: none.
    """

    owner = "algorithm downpour"
    servers_update = True

    fetch_every: int = at_least(1, 1)
    push_every: int = at_least(1, 1)
    optimizer: str = one_of(tuple(NUM_KEPT), "sgd")
    learning_rate: float = option(
        0.0,
        lambda rate: 0 <= rate < math.inf,
        "give a positive number, or 0 for that of the network's optimizer",
    )
    momentum: float = option(0.9, lambda value: 0 <= value < 1, "give at least 0 and less than 1")
    masters: int = at_least(0, 0)

    def for_gate(self) -> Options:
        """The same algorithm with intervals of two steps at most, by plain SGD of rate 1."""
        return Options(
            fetch_every=min(self.fetch_every, 2), push_every=min(self.push_every, 2), learning_rate=1.0
        )

    def check_setup(self, setup: Setup) -> None:
        """Returns if ranks could train in that setup. Raises UsageError."""
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


class Rule:
    """How a server updates `count` weights; `kept` are the arrays that it needs between updates."""

    def __init__(self, optimizer: str, count: int, *, momentum: float) -> None:
        self.kept = [np.zeros(count, np.float32) for _ in range(NUM_KEPT[optimizer])]
        self.num_updates = 0
        self._work = np.empty(min(count, BLOCK), np.float32)
        self._update: Callable[..., None] = getattr(self, f"_{optimizer}")
        self._decay = np.float32(momentum)

    def apply(self, weights: Floats, gradient: Floats, rate: float) -> None:
        """Update the weights in place; the gradient may be overwritten."""
        self.num_updates += 1
        for start in range(0, weights.size, BLOCK):
            own = [array[start : start + BLOCK] for array in (weights, gradient, *self.kept)]
            self._update(rate, self._work[: own[0].size], *own)

    def _sgd(self, rate: float, _: Floats, w: Floats, g: Floats) -> None:
        g *= np.float32(rate)
        w -= g

    def _momentum(self, rate: float, _: Floats, w: Floats, g: Floats, u: Floats) -> None:
        u *= self._decay
        u += g
        w -= np.multiply(u, np.float32(rate), out=g)

    def _adagrad(self, rate: float, work: Floats, w: Floats, g: Floats, s: Floats) -> None:
        s += np.multiply(g, g, out=work)
        np.sqrt(s, out=work)
        work += ADAGRAD_EPSILON
        g *= np.float32(rate)
        g /= work
        w -= g

    def _adam(self, rate: float, work: Floats, w: Floats, g: Floats, m: Floats, v: Floats) -> None:
        """Algorithm 1 of Kingma & Ba 2015, arXiv:1412.6980."""
        one, two = BETAS
        m *= np.float32(one)
        m += np.multiply(g, np.float32(1 - one), out=work)
        g *= g
        g *= np.float32(1 - two)
        v *= np.float32(two)
        v += g
        np.sqrt(v, out=work)
        work *= np.float32(1 / np.sqrt(1 - two**self.num_updates))
        work += np.float32(ADAM_EPSILON)
        np.divide(m, work, out=work)
        work *= np.float32(rate / (1 - one**self.num_updates))
        w -= work
