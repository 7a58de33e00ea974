"""Which of a few values stand out, by medians, so that what stands out does not hide itself."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

THRESHOLD = 3.5  # of the modified z-score (Iglewicz and Hoaglin 1993)
BAND = 0.02  # of the time: what is nearer to the others stands out to no reader, however quiet they are
NORMAL = 0.6745  # median absolute deviation of a normal distribution, in standard deviations
MIN_OTHERS = 3  # cells whose launches of a block say together how fast the machine was then

Values = NDArray[np.float64]
Which = NDArray[np.bool_]


def deviations(logs: Values) -> Values:
    """From the median, along the last axis."""
    return logs - np.median(logs, axis=-1, keepdims=True)


def usual_deviation(logs: Values) -> float:
    """The median absolute deviation."""
    return float(np.median(np.abs(deviations(logs))))


def stands_out(from_median: Values, *, usual: float) -> Which:
    """Which log times are beyond the threshold, and by 2 % or more; `usual` is the median absolute deviation."""
    size = np.abs(from_median)
    found: Which = (NORMAL * size > THRESHOLD * usual) & (size > np.log1p(BAND))
    return found


def without_block_effects(cells: Sequence[dict[int, float]]) -> list[dict[int, float]]:
    """Log times of each cell's launches by block, less what the other cells say of the block.

    What all launches of a block have in common is the machine's: the median, over the other cells, of how far each is
    from its own median. A cell is left as it is if one of its blocks has fewer than 3 others.
    """
    centred = [_centred(cell) for cell in cells]
    by_block: dict[int, list[tuple[int, float]]] = {}
    for index, cell in enumerate(centred):
        for block, value in cell.items():
            by_block.setdefault(block, []).append((index, value))
    effects: dict[tuple[int, int], float] = {}
    for block, members in by_block.items():
        if len(members) > MIN_OTHERS:
            others = median_of_others(np.array([value for _, value in members]))
            effects |= {(index, block): float(one) for (index, _), one in zip(members, others, strict=True)}
    return [
        {block: value - effects[index, block] for block, value in cell.items()}
        if all((index, block) in effects for block in cell)
        else cell
        for index, cell in enumerate(centred)
    ]


def median_of_others(values: Values) -> Values:
    """For each of two values or more the median of the others, without sorting again for each."""
    order = np.argsort(values, kind="stable")
    place = np.empty(len(values), dtype=np.intp)
    place[order] = np.arange(len(values))
    ascending, middle = values[order], (len(values) - 1) // 2

    def at(index: int) -> Values:
        """The index-th smallest of the others."""
        found: Values = np.where(index < place, ascending[index], ascending[index + 1])
        return found

    return at(middle) if len(values) % 2 == 0 else (at(middle - 1) + at(middle)) / 2


def _centred(cell: dict[int, float]) -> dict[int, float]:
    median = float(np.median(list(cell.values())))
    return {block: value - median for block, value in cell.items()}
