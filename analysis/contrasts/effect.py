"""How large a difference is beside the noise of the launches."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from scipy.special import nctdtrinc

from dlscale.analysis.statistics import LEVEL, MIN_BLOCKS, Interval


def standardised(logs: Sequence[float], *, level: float = LEVEL) -> Interval | None:
    """Mean over standard deviation of paired log ratios (Cohen's d of paired values), with its exact interval.

    The interval is that of the noncentral t distribution, if log ratios are normal. It is the caution that so few
    blocks ask for: an observed 2 is 0.5 to 3.4 by 6 blocks. The centre is biased away from 0, by 19 % at 6 blocks and
    9 % at 10. Its size says how surely a difference shows, and not whether it matters; that is for the ratio to say.
    None for fewer than 3 blocks, and where all log ratios are equal.
    """
    values = np.asarray(logs, dtype=np.float64)
    n = len(values)
    spread = float(values.std(ddof=1)) if n >= MIN_BLOCKS else 0.0
    if spread <= 1e-12 * float(np.abs(values).max(initial=0.0)):
        return None
    center = float(values.mean()) / spread
    statistic = center * math.sqrt(n)
    ends = [
        float(nctdtrinc(n - 1, one, statistic)) / math.sqrt(n) for one in ((1 + level) / 2, (1 - level) / 2)
    ]
    low, high = ends if all(map(math.isfinite, ends)) else (None, None)
    return Interval(center=center, low=low, high=high, level=level, method="noncentral t", n=n)
