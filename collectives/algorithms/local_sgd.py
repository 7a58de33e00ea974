"""Local SGD: every rank trains alone, and every so many steps all ranks go on with the mean of their weights.

S. Stich, *Local SGD Converges Fast and Communicates Little*, ICLR 2019, arXiv:1805.09767, algorithm 1. With w_i the
weights of rank i of P, after every H steps

    w_i <- (w_1 + ... + w_P) / P

Post-local SGD (T. Lin et al., *Don't Use Large Mini-Batches, Use Local SGD*, ICLR 2020, arXiv:1808.07217) takes
synchronous steps first. What optimizers keep (momentum, Adam's moments) and what batch norm remembers stay each rank's
own. With H = 1 and plain SGD it is synchronous SGD.
"""

from __future__ import annotations

from dataclasses import dataclass

from dlscale.base.errors import UsageError


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """`interval`: steps between two averages, H. `start`: synchronous steps before the first local one."""

    interval: int = 8
    start: int = 0

    def __post_init__(self) -> None:
        for name, least in (("interval", 1), ("start", 0)):
            if getattr(self, name) < least:
                raise UsageError(
                    f"option {name} of algorithm local_sgd is {getattr(self, name)}; give {least} or more"
                )
