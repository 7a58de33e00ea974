"""The declaration of comparisons: selected by rule, before any number is looked at.

The levels of one factor of a study are compared with one reference wherever all else is equal. In a study with axes
each curve is compared with one other that differs from it in one setting: along an axis with the curve of the first
value, and curves of all first values with the first backend (docs/comparing.md). Of two studies the same cells are
compared. They have no common blocks: nothing is claimed of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from typing import TypeVar

from dlscale.analysis.curves import named_cells
from dlscale.analysis.families import Family, environment_text
from dlscale.analysis.findings.record_fields import field_table
from dlscale.analysis.launches import Block, CellLaunches
from dlscale.analysis.records import algorithm_text
from dlscale.analysis.text import backend_name
from dlscale.analysis.variants import Variants
from dlscale.base.errors import UsageError
from dlscale.benchmarks.records.cell import Cell
from dlscale.collectives.algorithms.registry import SYNC

# Fields of a cell. Cells that differ in any other field do different work or have another size.
FACTORS = (
    *(
        "backend",
        "algorithm",
        "shard",
        "split",
        "framework",
        "environment",
        "precision",
        "compiled",
        "device",
        "data",
    ),
    *("batch", "num_servers", "cores_per_rank", "threads_per_rank"),
)


def check_factor(name: str) -> str:
    """`name`, with short forms such as `servers` resolved. Raises UsageError for a field that is no factor."""
    name = {"servers": "num_servers", "local_batch": "batch", "global_batch": "batch"}.get(name, name)
    if name not in FACTORS:
        raise UsageError(f"no factor {name!r} to compare inside a study; choose one of: {', '.join(FACTORS)}")
    return name


def fields_of(factor: str) -> frozenset[str]:
    """The fields of a cell that may differ with the factor: its own, and those that follow from it."""
    known = field_table()
    own = known.factors([factor])
    return own.union(*(known.follows.get(name, ()) for name in own)) & Cell.model_fields.keys()


def level_of(cell: Cell, factor: str) -> str:
    """The factor's value, in words: `ring`, `grpc_ps, 2 servers`, `tensorflow`, `bf16`."""
    if factor == "backend":
        servers = f", {cell.num_servers} server{'s' * (cell.num_servers > 1)}" if cell.num_servers else ""
        return backend_name(cell) + servers
    if factor == "algorithm":
        return f"{cell.algorithm} ({algorithm_text(cell)})" if cell.algorithm_options else cell.algorithm
    if factor == "batch":
        whose = {"weak": "per rank", "strong": "in all"}
        return f"{cell.batch} {whose[cell.scaling_mode]}"
    if factor == "compiled":
        return "compiled" if cell.compiled else "not compiled"
    if factor == "environment":
        return environment_text(cell)
    return str(getattr(cell, factor))


def find_level(word: str, levels: Sequence[str], *, factor: str) -> str:
    """The level with this name or unique prefix. Raises UsageError, listing all levels, if there is none."""
    if word in levels:
        return word
    matching = [level for level in levels if level.startswith(word)]
    if len(matching) == 1:
        return matching[0]
    what = "no" if not matching else "several values begin with"
    raise UsageError(f"{what} {word!r} of {factor} in these records; choose one of: {', '.join(levels)}")


T = TypeVar("T", int, str)
Rates = Mapping[Block, float]  # block -> samples per second, or tokens where their number differs


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """One side of a comparison: its good launches, by block."""

    name: str
    cell: Cell
    family: Family
    evidence: str
    rates: Rates

    @property
    def place(self) -> tuple[object, ...]:
        """The sort key among the sides of a training: by ranks, then by name."""
        return self.cell.num_ranks, self.cell.num_nodes, self.cell.backend, self.name, self.cell.id


@dataclass(frozen=True, slots=True, kw_only=True)
class Declared:
    """A side and its reference, equal in all but the factor and what follows from it."""

    contender: Side
    reference: Side

    @property
    def common(self) -> list[Block]:
        return [block for block in self.contender.rates if block in self.reference.rates]

    @property
    def why_none(self) -> str:
        """The reason why there is no paired test; empty if there is one."""
        for side in (self.contender, self.reference):
            if not side.rates:
                return f"every launch of {side.name} failed"
        if not self.common:
            return "no block in common, so what changed on the machine between their launches is in the ratio"
        return ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Declaration:
    """All comparisons that are made together, and so corrected together for multiple testing."""

    factor: str
    pairs: tuple[Declared, ...]
    left_out: tuple[str, ...] = ()  # in words: trainings without a reference


def declare(
    measured: Iterable[CellLaunches],
    *,
    factor: str | None = None,
    reference: str | None = None,
    order: Sequence[str] = (),
    ranks: Sequence[int] = (),
    backends: Sequence[str] = (),
) -> Declaration:
    """Each value of `factor` versus one reference, wherever all else is equal.

    The reference is the value named by `reference`; without it, in each training the first of `order` that was
    measured, else synchronous SGD or the first by name. The default factor is the backend, or the framework if there is
    only one backend.
    Backends are compared only where they exchange gradients: on several ranks, and without `none`. `ranks` and
    `backends` restrict what is compared; declared before the numbers are looked at, this keeps the correction small.

    Raises UsageError if there is nothing to compare, or no such factor, reference or restriction.
    """
    sides = [side for launches in measured for side in sides_of(launches)]
    factor = check_factor(factor) if factor else _default_factor(sides)
    _check_there("ranks", ranks, {side.cell.num_ranks for side in sides})
    _check_there("backend", backends, {side.cell.backend for side in sides})
    if factor == "backend":
        sides = [side for side in sides if side.cell.num_ranks > 1 and side.cell.backend != "none"]
    sides = [replace(side, name=level_of(side.cell, factor)) for side in sides]
    levels = sorted(
        {side.name for side in sides}, key=lambda name: (_rank_in(order, name), name != SYNC, name)
    )
    if len(levels) < 2:
        several = " on several ranks" if factor == "backend" else ""
        present = f"only {levels[0]}{several}" if levels else f"no training{several}"
        raise UsageError(
            f"nothing to compare: of {factor} there is {present} in these records; choose another --by, or "
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
    why = "; ".join(left_out) or f"no two values of {factor} where all else, ranks among it, is equal"
    return _declaration(factor, pairs, left_out, why=why, ranks=ranks, backends=backends)


def _declaration(
    factor: str,
    pairs: Iterable[Declared],
    left_out: Iterable[str],
    *,
    why: str,
    ranks: Sequence[int],
    backends: Sequence[str],
) -> Declaration:
    """The comparisons on these ranks and of these backends. Raises UsageError, saying `why`, if there are none."""
    kept = tuple(
        pair
        for pair in pairs
        if (not ranks or pair.contender.cell.num_ranks in ranks)
        and (not backends or pair.contender.cell.backend in backends)
    )
    if not kept:
        raise UsageError(f"nothing to compare: {why}")
    return Declaration(factor=factor, pairs=kept, left_out=tuple(dict.fromkeys(left_out)))


_BATCHES = ("local_batch", "global_batch")  # along a curve, one of the two follows from the ranks


def sides_of(launches: CellLaunches) -> Iterator[Side]:
    """The sides of a training, one per kind of evidence; without rates if all launches failed."""
    if launches.cell.control != "train":
        return
    for kind in launches.of_kind:
        yield Side(
            name="",
            cell=launches.cell,
            family=launches.family,
            evidence=kind,
            rates=launches.of_kind[kind].samples_per_second,
        )


def _default_factor(sides: Sequence[Side]) -> str:
    exchanging = {level_of(side.cell, "backend") for side in sides if side.cell.backend != "none"}
    several = len({side.cell.framework for side in sides}) > 1
    return "framework" if several and len(exchanging) < 2 else "backend"


def _check_there(what: str, asked: Iterable[T], there: Set[T]) -> None:
    if missing := [value for value in asked if value not in there]:
        known = ", ".join(map(str, sorted(there)))
        raise UsageError(f"no {what} {missing[0]} in these records; choose from: {known}")


def _grouped(sides: Iterable[Side], *, without: Iterable[str]) -> list[list[Side]]:
    """Groups of sides equal in system, evidence and all fields but `without`; ordered by ranks, then by name."""
    ignored = set(without)
    groups: dict[str, list[Side]] = {}
    for side in sides:
        fields = side.cell.model_dump(exclude=ignored)
        key = repr((side.family.system, side.evidence, *sorted(fields.items())))
        groups.setdefault(key, []).append(side)
    ordered = [sorted(group, key=lambda side: side.place) for group in groups.values()]
    return sorted(ordered, key=lambda group: (group[0].family, group[0].evidence, group[0].place))


def _rank_in(order: Sequence[str], name: str) -> int:
    """The position in a study's own order; what it does not name comes last."""
    first = name.split(" ")[0].rstrip(",")
    return order.index(first) if first in order else len(order)


def _training_name(cell: Cell, factor: str) -> str:
    return " ".join(
        [cell.workload, *(getattr(cell, name) for name in ("framework", "backend") if name != factor)]
    )


# What neither an axis nor a backend changes is equal in all curves that are compared.
_VARIED = {
    *("local_batch", "global_batch", "split", "precision", "compiled"),
}


def declare_variants(
    measured: Iterable[CellLaunches],
    variants: Variants,
    *,
    order: Sequence[str] = (),
    ranks: Sequence[int] = (),
    backends: Sequence[str] = (),
) -> Declaration:
    """The comparisons of a study with axes, where gradients are exchanged, on several ranks.

    Raises UsageError if there is nothing to compare.
    """
    members = [
        launches
        for launches in measured
        if (cell := launches.cell).control == "train" and cell.num_ranks > 1 and cell.backend != "none"
    ]
    names = _names(members, variants)
    sides = [replace(side, name=names[side.cell.id]) for launches in members for side in sides_of(launches)]
    ignored = _VARIED | fields_of("backend") | fields_of("environment") - {"environment"}
    pairs: list[Declared] = []
    left_out: list[str] = []
    for group in _grouped(sides, without=ignored):
        found = _along_axes(group, variants, order)
        pairs += found
        compared = {side.cell.id for pair in found for side in (pair.contender, pair.reference)}
        left_out += [f"{side.name}: without its reference" for side in group if side.cell.id not in compared]
    why = "no two curves on as many ranks, more than 1, in these records"
    return _declaration(variants.factor, pairs, left_out, why=why, ranks=ranks, backends=backends)


def _names(members: Sequence[CellLaunches], variants: Variants) -> dict[str, str]:
    """Cell id -> the name of its side."""
    named = named_cells((launches.cell for launches in members), settings=variants.settings)
    return {launches.id: level_of(named[launches.id], "backend") for launches in members}


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


STUDY_FACTOR = "study"  # the factor of a comparison between two studies


def declare_between(
    a: Iterable[CellLaunches],
    b: Iterable[CellLaunches],
    *,
    keys: Sequence[str],
) -> Declaration:
    """B's trainings versus A's, at each point: a combination of the fields `keys` with one training on each side.

    Blocks of two studies are never paired, even if the studies have the same name: they ran at different times, and
    what changed between them is in the ratio. Kinds of evidence are not mixed.
    """
    groups = [_sides_by_point(side, [key for key in keys if key in Cell.model_fields]) for side in (a, b)]
    pairs, left_out = [], []
    for point in groups[0]:
        if point not in groups[1]:
            continue
        mine, theirs = (group[point] for group in groups)
        if len(mine) > 1 or len(theirs) > 1:
            left_out.append(f"{' '.join(map(str, point[1:]))}: several of them in one study")
            continue
        reference, contender = (
            replace(
                side,
                name=name,
                rates={(f"{name} {study}", block): rate for (study, block), rate in side.rates.items()},
            )
            for side, name in ((mine[0], "A"), (theirs[0], "B"))
        )
        pairs.append(Declared(contender=contender, reference=reference))
    return Declaration(factor=STUDY_FACTOR, pairs=tuple(pairs), left_out=tuple(left_out))


def _sides_by_point(
    measured: Iterable[CellLaunches], keys: Sequence[str]
) -> dict[tuple[object, ...], list[Side]]:
    """The sides by point, in order of family, ranks and name."""
    sides = [side for launches in measured for side in sides_of(launches)]
    groups: dict[tuple[object, ...], list[Side]] = {}
    for side in sorted(sides, key=lambda side: (side.family, side.evidence, side.place)):
        groups.setdefault((side.evidence, *(getattr(side.cell, key) for key in keys)), []).append(side)
    return groups
