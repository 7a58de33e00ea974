"""Is one of several slower than the others, launch after launch? A permutation test, corrected for all of them."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dlscale.analysis.statistics import Interval, block_ratio

ALPHA = 0.05  # the chance that anybody is called slow if nobody is
BAND = 0.02  # slower by less is nothing that anybody would exchange a node for
NUM_DRAWS = 1999
_SEED = 2018  # the same records, the same p


@dataclass(frozen=True, slots=True, kw_only=True)
class Slow:
    """One that looks slower than the others by BAND or more.

    `p_value` is the chance to find anybody so slow if they are all alike; `fewest_blocks` as many as would let it fall
    to `alpha` at all.
    """

    name: str
    slower: Interval  # than the median of the others: 0.1 is 10 %
    p_value: float
    alpha: float
    fewest_blocks: int

    @property
    def certain(self) -> bool:
        """Whether it is beyond chance, all the others that could have been found taken into account."""
        return self.p_value <= self.alpha


def slow_ones(blocks: Sequence[Mapping[str, float]], *, alpha: float = ALPHA) -> list[Slow]:
    """Who is slower than the others, by name; `blocks` have each one's time in a launch, in any unit.

    If all are alike, the times of a launch could belong to anybody: who is slow in one launch is no more likely to be
    slow in the next. So within each launch the times are dealt out anew, and one is slow beyond chance if its sum over
    launches of log(time / median) is more than the largest one of anybody is in all but `alpha` of the deals (Westfall
    & Young's maximum). What disturbs one launch only, however badly, does not add up. With U of them alike in B
    launches somebody is the slowest every time with probability U^(1 - B), so few launches cannot tell.
    """
    blocks = [block for block in blocks if len(block) > 1]
    names = sorted(set().union(*blocks)) if blocks else []
    found = {name: _slower(name, blocks) for name in names}
    if not any(one.center >= BAND for one in found.values()):
        return []
    p_values = _p_values(blocks, names)
    fewest = fewest_blocks(min(map(len, blocks)), alpha=alpha)
    return [
        Slow(name=name, slower=found[name], p_value=p_values[name], alpha=alpha, fewest_blocks=fewest)
        for name in names
        if found[name].center >= BAND
    ]


def fewest_blocks(num_compared: int, *, alpha: float = ALPHA) -> int:
    """The fewest launches in which one of so many can be slow beyond chance."""
    blocks = 2
    while float(num_compared) ** (1 - blocks) > alpha:
        blocks += 1
    return blocks


def _slower(name: str, blocks: Sequence[Mapping[str, float]]) -> Interval:
    own: dict[Hashable, float] = {index: block[name] for index, block in enumerate(blocks) if name in block}
    others: dict[Hashable, float] = {
        index: float(np.median([time for other, time in block.items() if other != name]))
        for index, block in enumerate(blocks)
        if name in block
    }
    return block_ratio(own, others).excess()


def _p_values(blocks: Sequence[Mapping[str, float]], names: Sequence[str]) -> dict[str, float]:
    places = {name: index for index, name in enumerate(names)}
    generator = np.random.default_rng(_SEED)
    observed, dealt = np.zeros(len(names)), np.zeros((NUM_DRAWS, len(names)))
    counts = np.zeros(len(names))
    for block in blocks:
        columns = [places[name] for name in block]
        logs: NDArray[np.float64] = np.log(list(block.values()))
        logs -= np.median(logs)
        observed[columns] += logs
        counts[columns] += 1
        dealt[:, columns] += generator.permuted(np.tile(logs, (NUM_DRAWS, 1)), axis=1)
    # Who was there more often has a larger sum by chance, too.
    scale = np.sqrt(counts)
    largest = (dealt / scale).max(axis=1)
    least = observed / scale - 1e-12  # equal sums are equal, however they were added up
    return {
        name: float((1 + np.sum(largest >= least[index])) / (1 + NUM_DRAWS)) for name, index in places.items()
    }
