"""How many launches a comparison needs, and how narrow its interval can be: known before anything is run."""

from __future__ import annotations

import math

from scipy.special import stdtrit

CONFIDENCE = 0.95


def blocks_needed(num_comparisons: int) -> int:
    """The fewest paired blocks by which each of so many comparisons can be claimed at all.

    With n blocks the smallest two-sided probability of a paired test is 2^(1-n), when all n agree (M14, M21), and it
    has to stay below 5 % divided by the number of comparisons (Bonferroni, which Holm's first step also asks).
    """
    return math.ceil(1 + math.log2(num_comparisons / (1 - CONFIDENCE)) - 1e-9)


def half_width(num_blocks: int) -> float:
    """Half of a 95 % interval of a mean over blocks, in units of the standard deviation between them; inf below 2."""
    if num_blocks < 2:
        return math.inf
    return float(stdtrit(num_blocks - 1, (1 + CONFIDENCE) / 2)) / math.sqrt(num_blocks)
