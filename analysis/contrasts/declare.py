"""Which comparisons are made: declared by rule before any number is looked at."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from typing import TypeVar

from dlscale.analysis.contrasts.levels import check_factor, fields_of, find_level, level_of
from dlscale.analysis.family import Family
from dlscale.analysis.frame import tidy
from dlscale.analysis.launches import Launches
from dlscale.benchmarks.record import Cell, Record
from dlscale.models.errors import UsageError

T = TypeVar("T", int, str)
Rates = Mapping[Hashable, float]  # block -> samples per second


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """One of the two that are compared: its launches that gave a number, by block."""

    name: str
    cell: Cell
    family: Family
    evidence: str
    rates: Rates

    @property
    def place(self) -> tuple[object, ...]:
        """Where among its training's sides it belongs: by ranks, then by name."""
        return self.cell.num_ranks, self.cell.num_nodes, self.cell.backend, self.name, self.cell.id


@dataclass(frozen=True, slots=True, kw_only=True)
class Declared:
    """A side and the reference that it is held against, equal in all but the factor and what follows from it."""

    contender: Side
    reference: Side


@dataclass(frozen=True, slots=True, kw_only=True)
class Declaration:
    """All comparisons that are made together, and so are corrected for each other."""

    factor: str
    pairs: tuple[Declared, ...]
    left_out: tuple[str, ...] = ()  # what has no reference to be held against, in words


def launches_of(records: Iterable[Record]) -> list[Launches]:
    """Every cell's launches. Raises UsageError if the records do not belong on one curve (see `frame.tidy`)."""
    records = list(records)
    cells = {record.case.cell.id: record.case.cell for record in records}
    return [
        Launches.of(cells[str(cell_id)], system=str(system), cases=cases)
        for (system, cell_id), cases in tidy(records).groupby(["system", "cell_id"], sort=False)
    ]


def declare(
    measured: Iterable[Launches],
    *,
    factor: str | None = None,
    reference: str | None = None,
    order: Sequence[str] = (),
    ranks: Sequence[int] = (),
    backends: Sequence[str] = (),
) -> Declaration:
    """Each value of `factor` against one reference, wherever all else is equal.

    The reference is the value that `reference` names; without it, in each training the first of `order` that was
    measured there, or by name. The factor is the backend, or the framework where there is only one backend. Backends
    are compared where they exchange anything: on several ranks, and `none` is no contender. `ranks` and `backends`
    restrict what is compared; declared before the numbers are looked at, that keeps the correction small.

    Raises UsageError if there is nothing to compare, or no such factor, reference or restriction.
    """
    sides = [side for launches in measured for side in sides_of(launches)]
    factor = check_factor(factor) if factor else _default_factor(sides)
    _check_there("ranks", ranks, {side.cell.num_ranks for side in sides})
    _check_there("backend", backends, {side.cell.backend for side in sides})
    if factor == "backend":
        sides = [side for side in sides if side.cell.num_ranks > 1 and side.cell.backend != "none"]
    sides = [replace(side, name=level_of(side.cell, factor)) for side in sides]
    levels = sorted({side.name for side in sides}, key=lambda name: (_rank_in(order, name), name))
    if len(levels) < 2:
        several = " on several ranks" if factor == "backend" else ""
        found = f"only {levels[0]}{several}" if levels else f"no training{several}"
        raise UsageError(
            f"nothing to compare: of {factor} there is {found} in these records; choose another --factor, or "
            "measure another value of it in the same study"
        )
    first = find_level(reference, levels, factor=factor) if reference else None
    pairs, left_out = [], []
    for training in _grouped(sides, without=fields_of(factor) | {"num_ranks", "num_nodes", *_BATCHES}):
        here = {side.name for side in training}
        base = first or next(level for level in levels if level in here)
        if base not in here:
            left_out.append(f"{_training_name(training[0].cell, factor)} has no {base}")
            continue
        for group in _grouped(training, without=fields_of(factor)):
            references = {side.name: side for side in group}
            pairs += [
                Declared(contender=side, reference=references[base])
                for side in group
                if base in references and side.name != base
            ]
    pairs = [
        pair
        for pair in pairs
        if (not ranks or pair.contender.cell.num_ranks in ranks)
        and (not backends or pair.contender.cell.backend in backends)
    ]
    if not pairs:
        why = "; ".join(left_out) or f"no two values of {factor} where all else, ranks among it, is equal"
        raise UsageError(f"nothing to compare: {why}")
    return Declaration(factor=factor, pairs=tuple(pairs), left_out=tuple(dict.fromkeys(left_out)))


_BATCHES = ("local_batch", "global_batch")  # of a curve, one of the two follows from the ranks


def sides_of(launches: Launches) -> Iterator[Side]:
    """Those of a training, one per kind of evidence; without rates if all launches failed."""
    if launches.cell.control != "train":
        return
    for kind in launches.kinds:
        yield Side(
            name="",
            cell=launches.cell,
            family=launches.family,
            evidence=str(kind),
            rates=launches.only(kind).by_block("samples_per_second"),
        )


def _default_factor(sides: Sequence[Side]) -> str:
    exchanging = {level_of(side.cell, "backend") for side in sides if side.cell.backend != "none"}
    several = len({side.cell.framework for side in sides}) > 1
    return "framework" if several and len(exchanging) < 2 else "backend"


def _check_there(what: str, asked: Iterable[T], there: Set[T]) -> None:
    if missing := [one for one in asked if one not in there]:
        known = ", ".join(map(str, sorted(there)))
        raise UsageError(f"no {what} {missing[0]} in these records; choose of: {known}")


def _grouped(sides: Iterable[Side], *, without: Iterable[str]) -> list[list[Side]]:
    """Those that are equal in system, kind of evidence and all fields but those; ordered by ranks, then by name."""
    ignored = set(without)
    groups: dict[str, list[Side]] = {}
    for side in sides:
        fields = side.cell.model_dump(exclude=ignored)
        key = repr((side.family.system, side.evidence, *sorted(fields.items())))
        groups.setdefault(key, []).append(side)
    ordered = [sorted(group, key=lambda side: side.place) for group in groups.values()]
    return sorted(ordered, key=lambda group: (group[0].family, group[0].evidence, group[0].place))


def _rank_in(order: Sequence[str], name: str) -> int:
    """Where in a study's own order; what it does not name comes last."""
    first = name.split(" ")[0].rstrip(",")
    return order.index(first) if first in order else len(order)


def _training_name(cell: Cell, factor: str) -> str:
    return " ".join(
        [cell.workload, *(getattr(cell, name) for name in ("framework", "backend") if name != factor)]
    )
