"""Local SGD: every rank trains alone, and every so many steps all ranks go on with the mean of their weights.

S. Stich, *Local SGD Converges Fast and Communicates Little*, ICLR 2019, arXiv:1805.09767, algorithm 1. With w_i the
weights of rank i of P, after every H steps

    w_i <- (w_1 + ... + w_P) / P

Post-local SGD (T. Lin et al., *Don't Use Large Mini-Batches, Use Local SGD*, ICLR 2020, arXiv:1808.07217) takes
synchronous steps first. What optimizers keep (momentum, Adam's moments) and what batch norm remembers stay each rank's
own. With H = 1 and plain SGD it is synchronous SGD.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dlscale.collectives.algorithms.rounds import Average, Buffer, FlatWeights
from dlscale.collectives.option_kinds import CheckedOptions, at_least


@dataclass(frozen=True, slots=True, kw_only=True)
class Options(CheckedOptions):
    """`interval`: steps between two averages, H. `start`: synchronous steps before the first local one."""

    owner = "algorithm local_sgd"

    interval: int = at_least(1, 8)
    start: int = at_least(0, 0)

    @property
    def num_synchronous(self) -> int:
        return self.start

    def for_gate(self) -> Options:
        """The shortest round that shows local and synchronous steps and an average."""
        return replace(self, interval=min(self.interval, 2), start=min(self.start, 1))

    def rule(self, weights: FlatWeights, average: Average) -> Rule:
        """The rule of one training, whose initial weights are `weights`."""
        return Rule(self, weights, average)


class Rule:
    """Averages the weights of all ranks (`rounds.Rule`)."""

    def __init__(self, options: Options, weights: FlatWeights, average: Average) -> None:
        self._options, self._weights, self._average = options, weights, average
        self._mean = weights.buffer()
        self.num_exchanges = 0
        self._equal = np.array([True])  # whether all ranks hold the same weights

    def before(self, step: int) -> None:
        """Nothing."""

    def after(self, step: int) -> None:
        """Average, if the step ends a round; the first round begins with the first local step."""
        self._equal[0] = step < self._options.start
        if self._equal[0] or (step + 1 - self._options.start) % self._options.interval:
            return
        self._weights.read(self._mean)
        self._average(self._mean)
        self._weights.write(self._mean)
        self.num_exchanges += 1
        self._equal[0] = True

    def learnt(self) -> Buffer:
        """The mean of all ranks' weights as they are now; collective."""
        self._weights.read(self._mean)
        if not self._equal[0]:
            self._average(self._mean)
        return self._mean

    def kept(self) -> dict[str, NDArray[Any]]:
        """Whether the weights are equal: the mean of equal ones may be rounded to others."""
        return {"equal": self._equal}

    def resume(self) -> None:
        """Nothing."""
