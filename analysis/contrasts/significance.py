"""Is a difference between paired launches more than chance, and is it still if several are looked at?"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

MAX_EXACT = 16  # blocks
NUM_DRAWS = 2**16 - 1
_SEED = 1935  # the same records, the same p


def sign_flip(logs: Sequence[float]) -> float:
    """The two-sided probability that chance puts the mean of paired log ratios as far from 0 as it is, or further.

    If neither side is faster, each block's log ratio could as well have the other sign (Fisher's randomisation test):
    nothing else is assumed of the noise. All signs are tried for up to 16 blocks, so the probability is exact; beyond,
    65,535 random ones and the observed one. Raises ValueError without values.
    """
    values = np.asarray(logs, dtype=np.float64)
    if not len(values):
        raise ValueError("no log ratios to test")
    least = (
        abs(values.sum()) - 1e-12 * np.abs(values).sum()
    )  # equal sums are equal, however they were added up
    if len(values) <= MAX_EXACT:
        return float(np.mean(np.abs(_all_sums(values)) >= least))
    generator = np.random.default_rng(_SEED)
    sums = (2.0 * generator.integers(0, 2, (NUM_DRAWS, len(values))) - 1.0) @ values
    return float((1 + np.sum(np.abs(sums) >= least)) / (1 + NUM_DRAWS))


def smallest_p(num_blocks: int) -> float:
    """What `sign_flip` gives at least: if all blocks agree."""
    return max(2.0 ** (1 - num_blocks), 1 / (1 + NUM_DRAWS)) if num_blocks else 1.0


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's adjusted probabilities, in the same order.

    Who claims those that are at most 5 % claims anything that is not so in 5 % of studies at most, however the tests
    depend on each other (Holm 1979).
    """
    adjusted = [0.0] * len(p_values)
    worst = 0.0
    for done, index in enumerate(sorted(range(len(p_values)), key=lambda one: p_values[one])):
        worst = max(worst, min(1.0, (len(p_values) - done) * p_values[index]))
        adjusted[index] = worst
    return adjusted


def _all_sums(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Of all signs but the first, which by symmetry need not be turned, [2^(n - 1)]."""
    sums = values[:1]
    for value in values[1:]:
        sums = np.concatenate([sums + value, sums - value])
    return sums
