"""Elastic averaging SGD: ranks train alone, tied to a centre by an elastic force.

S. Zhang, A. Choromanska, Y. LeCun, *Deep learning with Elastic Averaging SGD*, NIPS 2015, arXiv:1412.6651. With x_i the
weights of rank i of P, c the centre, r the learning rate, g_i the gradient at x_i, and a = b / P for the moving rate b

    x_i <- x_i - r g_i - a (x_i - c)        c <- c + a sum_i (x_i - c) = (1 - b) c + b mean_i x_i

in every step whose number the interval divides, x_i - r g_i in all others (equations 3 to 5 there; the elastic force is
that of the weights before the step). The centre is what was learnt. EAMSGD has Nesterov's momentum d in each rank's own
steps: the gradient is that at x_i + d v_i.

Over collectives all ranks exchange in the same steps and hold the same centre. Over servers each worker exchanges when
its own step is due, and the centre moves by a (x_i - c) for that worker alone (algorithm 1 there).
"""

from __future__ import annotations

from dataclasses import dataclass

from dlscale.base.errors import UsageError


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """`interval`: steps between two exchanges with the centre. `moving_rate`: b, of the centre towards the mean.

    `momentum`: Nesterov's in the ranks' own steps, which makes it EAMSGD; 0 leaves them to the network's optimizer.
    """

    interval: int = 10
    moving_rate: float = 0.9
    momentum: float = 0.0

    def __post_init__(self) -> None:
        if self.interval < 1:
            raise UsageError(f"option interval of algorithm easgd is {self.interval}; give 1 or more")
        if not 0 < self.moving_rate <= 1:
            raise UsageError(
                f"option moving_rate of algorithm easgd is {self.moving_rate}; give more than 0 and at most 1"
            )
        if not 0 <= self.momentum < 1:
            raise UsageError(
                f"option momentum of algorithm easgd is {self.momentum}; give at least 0 and less than 1"
            )
