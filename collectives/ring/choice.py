"""From times to switch points: arithmetic only. A table has, for every size, the seconds of every way."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TypeVar

Way = TypeVar("Way")
Table = Mapping[int, Mapping[Way, float]]

NOISE = 0.03  # a way must be faster by so much to be preferred to a simpler one or to the default


def clearly_fastest(seconds: Mapping[Way, float], default: Way) -> Way:
    """The fastest way, or the default where nothing is clearly faster."""
    fastest = min(seconds, key=seconds.__getitem__)
    return fastest if seconds[fastest] < (1 - NOISE) * seconds[default] else default


def best_overall(table: Table[Way], default: Way) -> Way:
    """The way that is fastest on the geometric mean over sizes; the default if nothing is clearly faster."""
    ways = list(next(iter(table.values())))
    return clearly_fastest({way: _slowdown(table, way) for way in ways}, default)


def switch_points(table: Table[Way], order: Sequence[Way], defaults: Sequence[int]) -> list[int]:
    """Up to which size each way of `order` but the last serves, later ones serving larger sizes.

    Of all such choices the one that loses least against the fastest way of each size. Between two sizes that were
    tried lies their geometric mean. Beyond the largest that was tried `defaults` hold, the same limits as they were.
    """
    sizes = sorted(table)
    # costs[w]: the least loss so far if way w serves this size; paths[w]: which ways served the sizes up to here.
    costs = [0.0] * len(order)
    paths: list[list[int]] = [[] for _ in order]
    for size in sizes:
        fastest = min(table[size].values())
        # The cheapest of this and earlier ways goes on; min keeps the earlier one where they are equal.
        before = [min(range(w + 1), key=costs.__getitem__) for w in range(len(order))]
        costs, paths = (
            [costs[before[w]] + math.log(table[size][way] / fastest) for w, way in enumerate(order)],
            [[*paths[before[w]], w] for w in range(len(order))],
        )
    served = paths[min(range(len(order)), key=costs.__getitem__)]
    limits = []
    for w in range(len(order) - 1):
        limit = max((_limit(sizes, i) for i, by in enumerate(served) if by <= w), default=0)
        limits.append(max(limit, defaults[w]) if served[-1] <= w else limit)
    return limits


def few_manners(table: Table[Way], families: Mapping[Way, bool], most: int) -> list[Way]:
    """At most `most` ways, best overall first, that are together as good as all of them.

    Beside the best overall: each that is clearly faster at some size, and the best of the other family, since which
    family is the faster one may change while a program runs.
    """
    ways = sorted(families, key=lambda way: _slowdown(table, way))
    chosen = [ways[0]]
    chosen += [way for way in ways if families[way] != families[ways[0]]][:1]
    for seconds in table.values():
        fastest = min(seconds, key=seconds.__getitem__)
        if len(chosen) < most and seconds[fastest] < (1 - NOISE) * min(seconds[way] for way in chosen):
            chosen.append(fastest)
    return chosen


def _slowdown(table: Table[Way], way: Way) -> float:
    """Against the fastest way of each size, geometric mean."""
    return math.exp(sum(math.log(s[way] / min(s.values())) for s in table.values()) / len(table))


def _limit(sizes: Sequence[int], index: int) -> int:
    if index + 1 == len(sizes):
        return sizes[index]
    return math.isqrt(sizes[index] * sizes[index + 1])
