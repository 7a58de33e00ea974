"""The same cells in two studies, held against each other. They have no blocks in common, so nothing is claimed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from dlscale.analysis.contrasts.declare import Declaration, Declared, Side, sides_of
from dlscale.analysis.launches import Launches
from dlscale.benchmarks.record import Cell

STUDY = "study"  # the factor


def between(
    a: Iterable[Launches], b: Iterable[Launches], *, keys: Sequence[str], names: tuple[str, str] = ("A", "B")
) -> Declaration:
    """B's trainings against A's, at each point: a combination of the fields `keys` that just one of each side has.

    Blocks of two studies are never paired, not even where both call themselves the same: they ran at different times,
    and what changed between them is in the ratio. Kinds of evidence are not mixed.
    """
    groups = [_by_point(side, [key for key in keys if key in Cell.model_fields]) for side in (a, b)]
    pairs, left_out = [], []
    for point in groups[0]:
        if point not in groups[1]:
            continue
        mine, theirs = (group[point] for group in groups)
        if len(mine) > 1 or len(theirs) > 1:
            left_out.append(f"{' '.join(map(str, point[1:]))}: several of them in one study")
            continue
        reference, contender = (
            replace(side, name=name, rates={(name, block): rate for block, rate in side.rates.items()})
            for side, name in ((mine[0], names[0]), (theirs[0], names[1]))
        )
        pairs.append(Declared(contender=contender, reference=reference))
    return Declaration(factor=STUDY, pairs=tuple(pairs), left_out=tuple(left_out))


def _by_point(measured: Iterable[Launches], keys: Sequence[str]) -> dict[tuple[object, ...], list[Side]]:
    """In order of family, ranks and name."""
    sides = [side for launches in measured for side in sides_of(launches)]
    found: dict[tuple[object, ...], list[Side]] = {}
    for side in sorted(sides, key=lambda side: (side.family, side.evidence, side.place)):
        found.setdefault((side.evidence, *(getattr(side.cell, key) for key in keys)), []).append(side)
    return found
