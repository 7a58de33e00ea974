"""The comparisons that a study's variants declare: along axes, and up a ladder.

Each curve is compared with one other that differs from it in one setting: along an axis with the curve of the first
value, and curves of all first values with the first backend. So as many comparisons are made as of as many backends.
On a ladder each step is compared with the one before it. docs/sweeps.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from dlscale.analysis.curves import named_cells
from dlscale.analysis.findings.contrast_declaration import (
    Declaration,
    Declared,
    Side,
    fields_of,
    level_of,
    sides_of,
)
from dlscale.analysis.launches import CellLaunches
from dlscale.analysis.variants import Variants
from dlscale.base.errors import UsageError
from dlscale.benchmarks.records.record import Cell
from dlscale.collectives.algorithms.registry import SYNC


def declare_variants(
    measured: Iterable[CellLaunches],
    variants: Variants,
    *,
    order: Sequence[str] = (),
    ranks: Sequence[int] = (),
    backends: Sequence[str] = (),
) -> Declaration:
    """The comparisons of a study with axes or a ladder, where gradients are exchanged, on several ranks.

    Raises UsageError if there is nothing to compare.
    """
    members = [launches for launches in measured if launches.cell.control == "train"]
    members = [
        launches for launches in members if launches.cell.num_ranks > 1 and launches.cell.backend != "none"
    ]
    names = _names(members, variants)
    sides = [replace(side, name=names[side.cell.id]) for launches in members for side in sides_of(launches)]
    pairs: list[Declared] = []
    left_out: list[str] = []
    for group in _alike(sides):
        found = _steps(group, variants) if variants.ladder else _along_axes(group, variants, order)
        pairs += found
        compared = {side.cell.id for pair in found for side in (pair.contender, pair.reference)}
        left_out += [f"{side.name}: without its reference" for side in group if side.cell.id not in compared]
    pairs = [
        pair
        for pair in pairs
        if (not ranks or pair.contender.cell.num_ranks in ranks)
        and (not backends or pair.contender.cell.backend in backends)
    ]
    if not pairs:
        raise UsageError("nothing to compare: no two curves on as many ranks, more than 1, in these records")
    return Declaration(factor=variants.factor, pairs=tuple(pairs), left_out=tuple(dict.fromkeys(left_out)))


def _names(members: Sequence[CellLaunches], variants: Variants) -> dict[str, str]:
    """Cell id -> the name of its side."""
    if variants.ladder:
        return {launches.id: step_name(launches.cell, variants) for launches in members}
    named = named_cells((launches.cell for launches in members), settings=variants.settings)
    return {launches.id: level_of(named[launches.id], "backend") for launches in members}


def step_name(cell: Cell, variants: Variants) -> str:
    """`ring step 2 (+ compiled)`; the first step has no plus."""
    step = variants.step(cell)
    if step is None:
        return level_of(cell, "backend")
    return f"{cell.method} step {step} ({'+ ' if step else ''}{variants.step_text(step)})"


def _alike(sides: Iterable[Side]) -> list[list[Side]]:
    """Groups of sides that are equal in all that neither an axis nor a backend changes, by number of ranks."""
    ignored = fields_of("backend") | fields_of("environment") - {"environment"}
    ignored |= {"local_batch", "global_batch", "precision", "compiled", "memory_format"}
    groups: dict[str, list[Side]] = {}
    for side in sides:
        fields = sorted(side.cell.model_dump(exclude=set(ignored)).items())
        groups.setdefault(repr((side.family.system, side.evidence, fields)), []).append(side)
    ordered = [sorted(group, key=lambda side: side.place) for group in groups.values()]
    return sorted(ordered, key=lambda group: (group[0].family, group[0].evidence, group[0].place))


def _steps(group: Sequence[Side], variants: Variants) -> list[Declared]:
    """Each step versus the one before it, which of a backend's steps were measured."""
    pairs = []
    for key in dict.fromkeys((side.cell.method, side.cell.num_servers) for side in group):
        own = [side for side in group if (side.cell.method, side.cell.num_servers) == key]
        on = {step: side for side in own if (step := variants.step(side.cell)) is not None}
        pairs += [
            Declared(contender=on[step], reference=on[step - 1]) for step in sorted(on) if step - 1 in on
        ]
    return pairs


def _along_axes(group: Sequence[Side], variants: Variants, order: Sequence[str]) -> list[Declared]:
    """Each curve versus the one with the first value of the last setting in which it has another one."""
    places = {side.cell.id: variants.place(side.cell) for side in group}
    known = {
        (side.cell.backend, side.cell.algorithm, side.cell.num_servers, place): side
        for side in group
        if (place := places[side.cell.id]) is not None
    }

    def rank(key: tuple[str, str, int, tuple[int, ...]]) -> tuple[object, ...]:
        backend, algorithm, num_servers, place = key
        first = order.index(backend) if backend in order else len(order)
        return first, backend, algorithm != SYNC, algorithm, num_servers, place

    pairs = []
    first = next((key for key in sorted(known, key=rank) if not any(key[3])), None)
    for backend, algorithm, num_servers, place in sorted(known, key=rank):
        contender = known[backend, algorithm, num_servers, place]
        differing = [axis for axis, value in enumerate(place) if value]
        reference = first
        if differing:
            axis = differing[-1]
            reference = (backend, algorithm, num_servers, (*place[:axis], 0, *place[axis + 1 :]))
        if reference in known and known[reference] is not contender:
            pairs.append(Declared(contender=contender, reference=known[reference]))
    return pairs
