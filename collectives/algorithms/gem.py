"""Gradient energy matching: workers scale each push so that all of them together move the weights as one would alone.

J. Hermans, G. Louppe, *Gradient Energy Matching for Distributed Asynchronous Gradient Descent*, arXiv:1805.08469,
2018, algorithm 1. With w the servers' weights, s the worker's, g the gradient at s, r the learning rate, d the momentum
of the SGD whose energy is matched, e = 1e-16, and all operations element by element:

    m <- d m - r g                                     the worker's estimate of that SGD's update (equation 24)
    t <- w                                             fetched
    p = (k |m| - |t - s|) / (r |g| + e)                |t - s|: how far all workers moved w meanwhile (19 and 23)
    w <- w - p r g,  s <- t

m begins with 0, s with the first weights. `amplification` is k of equation 27, 1 in algorithm 1. As printed there p has
no bounds and is negative where the weights moved further than m, which diverges with two workers; the authors' program
(montefiore-institute/gradient-energy-matching) cuts p to 0 .. 5, and so does `limit`. A worker's gradient is at the
weights of before its last push, as printed: even alone it is one update late.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from dlscale.base.errors import UsageError

Floats = NDArray[np.float32]

EPSILON = np.float32(1e-16)


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """`learning_rate`: the workers'; 0 means that of the network's own optimizer. `momentum`: of the SGD to be matched.

    `amplification`: of its energy's root. `limit`: of p, which is then at least 0; 0 leaves p as it is.
    """

    learning_rate: float = 0.0
    momentum: float = 0.9
    amplification: float = 1.0
    limit: float = 5.0

    def __post_init__(self) -> None:
        for name in ("learning_rate", "limit"):
            if not 0 <= getattr(self, name) < float("inf"):
                raise UsageError(
                    f"option {name} of algorithm gem is {getattr(self, name)}; give a positive number, or 0 for "
                    + ("that of the network's optimizer" if name == "learning_rate" else "none")
                )
        if not 0 <= self.momentum < 1:
            raise UsageError(
                f"option momentum of algorithm gem is {self.momentum}; give at least 0 and less than 1"
            )
        if not 0 < self.amplification < float("inf"):
            raise UsageError(
                f"option amplification of algorithm gem is {self.amplification}; give more than 0, 1 for none"
            )

    def for_gate(self) -> Options:
        """The same with rate 1."""
        return replace(self, learning_rate=1.0)


class Matching:
    """One worker's estimate, and the scaling of its pushes; flat buffers of `count` elements."""

    def __init__(self, options: Options, count: int, *, rate: float) -> None:
        self._options, self._rate = options, np.float32(rate)
        self._estimate = np.zeros(count, np.float32)

    def scale(self, gradient: Floats, *, start: Floats, fetched: Floats) -> None:
        """In place: the gradient at `start` becomes p r g, what the servers take off weights like `fetched`."""
        gradient *= self._rate
        self._estimate *= np.float32(self._options.momentum)
        self._estimate -= gradient
        scaling = np.abs(self._estimate)
        scaling *= np.float32(self._options.amplification)
        scaling -= np.abs(fetched - start)
        scaling /= np.abs(gradient) + EPSILON
        if self._options.limit:
            np.clip(scaling, 0, np.float32(self._options.limit), out=scaling)
        gradient *= scaling
