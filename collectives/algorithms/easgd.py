"""Elastic averaging SGD: ranks train alone, tied to a centre by an elastic force.

S. Zhang, A. Choromanska, Y. LeCun, *Deep learning with Elastic Averaging SGD*, NIPS 2015, arXiv:1412.6651. With x_i the
weights of rank i of P, c the centre, r the learning rate, g_i the gradient at x_i, and a = b / P for the moving rate b

    x_i <- x_i - r g_i - a (x_i - c)        c <- c + a sum_i (x_i - c) = (1 - b) c + b mean_i x_i

in every step whose number the interval divides, x_i - r g_i in all others: equations 3 and 4 of its section 3, which
are 5 and 6 with a = r rho and b = P a. The elastic force is that of the weights before the step. In step 0 there is
none, for all begin at the centre. Where the rate changes, a does not, as in the authors' program (sixin-zh/mpiT). The
centre is what was learnt. x_i - r g_i is the network's own optimizer's doing.

Over collectives all ranks exchange in the same steps and hold the same centre. Over servers each worker exchanges when
its own step is due, and the centre moves by a (x_i - c) for that worker alone (algorithm 1 there).
There a worker asks for c and sends a (x_i - c) back, and others may come between; here it sends x_i, and the server
moves the centre that it answers with. Step 0, in which algorithm 1 exchanges too, is left out: there a worker is at the
centre that it was given.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from dlscale.collectives.algorithms.rounds import FlatWeights
from dlscale.collectives.backend import Collective
from dlscale.collectives.option_kinds import CheckedOptions, at_least, option


@dataclass(frozen=True, slots=True, kw_only=True)
class Options(CheckedOptions):
    """`interval`: steps between two exchanges with the centre. `moving_rate`: b, of the centre towards the mean."""

    owner = "algorithm easgd"

    interval: int = at_least(1, 10)
    moving_rate: float = option(0.9, lambda rate: 0 < rate <= 1, "give more than 0 and at most 1")

    def for_gate(self) -> Options:
        """The shortest round that shows steps with and without the elastic force."""
        return replace(self, interval=min(self.interval, 2))

    def rule(self, weights: FlatWeights, collective: Collective) -> Elastic:
        """What a rank does over a collective; collective."""
        return Elastic(self, weights, collective)


class Elastic:
    """Ties the ranks to a centre, which each of them holds (`rounds.Rule`)."""

    def __init__(self, options: Options, weights: FlatWeights, collective: Collective) -> None:
        self._options, self._weights, self._collective = options, weights, collective
        self.centre = weights.buffer()
        weights.read(self.centre)
        self._mean, self._force = weights.buffer(), np.empty_like(self.centre)
        self.num_exchanges = 0

    def before(self, step: int) -> None:
        """In a step that exchanges, take up the elastic force, and move the centre."""
        if not self._exchanges(step):
            return
        self._weights.read(self._mean)
        np.subtract(self._mean, self.centre, out=self._force)
        self._collective.allreduce(self._mean, "average")
        moving_rate = self._options.moving_rate
        self._force *= np.float32(moving_rate / self._collective.size)
        self._mean -= self.centre
        self._mean *= np.float32(moving_rate)
        self.centre += self._mean
        self.num_exchanges += 1

    def after(self, step: int) -> None:
        """Let the elastic force act on the weights after the step."""
        if self._exchanges(step):
            self._weights.read(self._mean)
            self._mean -= self._force
            self._weights.write(self._mean)

    def _exchanges(self, step: int) -> bool:
        return step > 0 and step % self._options.interval == 0
