"""Sums of levels with their intervals: how one part of a loss is estimated from blocks of launches."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from scipy.special import stdtrit

from dlscale.analysis.statistics import INSUFFICIENT, LEVEL, MIN_BLOCKS, Interval
from dlscale.analysis.waterfall.parts import Level, Terms
from dlscale.analysis.waterfall.times import Seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Levels:
    """Seconds per step of each level, block by block.

    `near`: of the blocks in which "measured", one of these levels, was launched. `far`: of other blocks, if the base
    case shares none with it; else empty.
    """

    near: Mapping[Level, Seconds]
    far: Mapping[Level, Seconds]

    @property
    def known(self) -> frozenset[Level]:
        """Those that have values."""
        return frozenset((*self.near, *self.far))

    def typical(self, level: Level) -> float:
        """The geometric mean over blocks, seconds."""
        values = self.near[level] if level in self.near else self.far[level]
        return float(np.exp(np.log(values).mean()))

    def by_block(self, terms: Terms) -> Seconds:
        """The sum in each block, as a share of the measured step. Raises KeyError if a level is far."""
        total = sum(factor * self.near[level] for level, factor in terms.items())
        return np.asarray(total / self.near["measured"], np.float64)

    def share(self, terms: Terms, *, level: float = LEVEL) -> Interval:
        """The sum as a share of the measured step.

        The centre is the sum of the levels' ratios to the measured step, each that of geometric means, as
        `statistics.block_ratio` has them; so centres add up as the terms do. The interval is the t interval of its
        terms by block, to first order (`statistics.block_difference` is the case of two terms): what drifts from block
        to block cancels. With far levels it is Welch's, and labelled unpaired.
        """
        weights = {
            name: factor * self.typical(name) / self.typical("measured") for name, factor in terms.items()
        }
        center = math.fsum(weights.values())
        measured = np.log(self.near["measured"])
        near, far = np.zeros(len(measured)), np.zeros(0)
        for name, weight in weights.items():
            if name in self.near:
                near = near + weight * (np.log(self.near[name]) - measured)
            else:
                near = near - weight * measured
                far = (far if len(far) else 0.0) + weight * np.log(self.far[name])
        return _t_interval(center, [near, far] if len(far) else [near], level=level)


def _t_interval(center: float, groups: list[Seconds], *, level: float) -> Interval:
    """Around `center`, from the spread of the mean of each independent group."""
    n, unpaired = min(map(len, groups)), len(groups) > 1
    if n < MIN_BLOCKS:
        method = f"{INSUFFICIENT}, unpaired" if unpaired else INSUFFICIENT
        return Interval(center=center, low=None, high=None, level=level, method=method, n=n)
    variances = [float(group.var(ddof=1)) / len(group) for group in groups]
    spread = sum(one**2 / (len(group) - 1) for one, group in zip(variances, groups, strict=True))
    freedom = sum(variances) ** 2 / spread if spread else n - 1.0  # Welch-Satterthwaite; n - 1 for one group
    half = float(stdtrit(freedom, (1 + level) / 2)) * math.sqrt(sum(variances))
    return Interval(
        center=center,
        low=center - half,
        high=center + half,
        level=level,
        method="unpaired t" if unpaired else "paired t",
        n=n,
    )
