"""Curves over ranks, and their names: backend, algorithm, what is sharded, and of the options those that differ.

Cells are named together (`named_cells`), because what differs is known only of all. A cell that was not named shows
all options that it was given.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from typing import Any

from dlscale.analysis.records import NamedCell, named
from dlscale.analysis.statistics import Interval
from dlscale.analysis.text import backend_name
from dlscale.benchmarks.records.cell import AUTO, Case, Cell, Setting
from dlscale.benchmarks.records.record import Record
from dlscale.collectives.sharding import NONE

# Settings of a cell that separate families, beside the options of backends.
SETTINGS = ("batch", "precision", "compiled")

OF_METHOD = ("shard", "split")  # those that a cell's method says


def setting_of(cell: Cell, name: str) -> Setting | None:
    """The cell's value of a setting: batch along its curve, `horovod.cycle_time_ms`, a variable, or None."""
    if name == "batch":
        return cell.batch
    if name == "learning_rate":
        return cell.target.learning_rate if cell.target else None
    if name in SETTINGS or name in OF_METHOD:
        value: Setting | None = getattr(cell, name)
        return value
    owner, dot, option = name.partition(".")
    if dot and owner == cell.algorithm:
        return cell.algorithm_options.get(option)
    if dot:
        return cell.backend_options.get(option) if owner == cell.backend else None
    return cell.variables.get(name)


def setting_text(name: str, value: object) -> str:
    """`cycle_time_ms=5`, `batch 32`, `compiled`, `optimizer sharded`: a value in a curve's name."""
    if name == "compiled":
        return "compiled" if value else "not compiled"
    if name == "precision":
        return str(value)
    if name == "batch":
        return f"batch {value}"
    if name == "split":
        return f"split {value}"
    if name == "shard":
        return "not sharded" if value == NONE else f"{value} sharded"
    if name == "learning_rate":
        return f"learning rate {value:g}"
    return f"{name.partition('.')[2] or name}={value}"


def named_cells(cells: Iterable[Cell], *, settings: Sequence[str] = ()) -> dict[str, NamedCell]:
    """Cell id -> the cell with its curve's name, which has the options in which the cells of its backend differ.

    One set of options of a backend and an algorithm is shown whole, as there is nothing to tell apart. With `settings`,
    of different families, the name has those of them, and the variables, in which any two trainings differ. Learning
    rates are in it where a study tries several for equal cells.
    """
    members = {cell.id: cell for cell in cells if cell.control != "canary"}
    variables = sorted({name for cell in members.values() for name in cell.variables}) if settings else []
    shared = _differing(members.values(), [*settings, *variables])
    if rates_are_tried(members.values()):
        shared.append("learning_rate")
    joined = _joined(members)
    by_method: dict[str, list[tuple[str, Cell]]] = {}
    for cell_id, cell in members.items():
        by_method.setdefault(joined.get(cell_id, cell.method), []).append((cell_id, cell))
    found = {}
    for method, own in by_method.items():
        options = sorted(
            {f"{cell.backend}.{name}" for _, cell in own for name in cell.backend_options}
            | {f"{cell.algorithm}.{name}" for _, cell in own for name in cell.algorithm_options}
        )
        shown = _differing([cell for _, cell in own], options) or options
        for cell_id, cell in own:
            parts = [
                setting_text(name, value) for name in shown if (value := setting_of(cell, name)) is not None
            ]
            name = f"{method} ({', '.join(parts)})" if parts else method
            parts = [
                setting_text(name, value) for name in shared if (value := setting_of(cell, name)) is not None
            ]
            found[cell_id] = named(cell, ", ".join([name, *parts]))
    return found


def _joined(members: Mapping[str, Cell]) -> dict[str, str]:
    """Cell id -> the method of its curve, where ranks share samples and each number of them has one split.

    1 rank, which has whole samples, belongs to it.
    """
    if all(cell.split == 1 for cell in members.values()):
        return {}
    curves: dict[str, dict[str, Cell]] = {}
    for cell_id, cell in members.items():
        key = f"{cell.batch} {cell.model_dump_json(exclude=_ALONG)}"
        curves.setdefault(key, {})[cell_id] = cell
    found: dict[str, str] = {}
    for own in curves.values():
        forms = {(cell.num_ranks, cell.split) for cell in own.values() if cell.control == "train"}
        beyond = {split for num_ranks, split in forms if num_ranks > 1}
        if max(beyond, default=1) == 1 or len({num_ranks for num_ranks, _ in forms}) < len(forms):
            continue
        first = next(iter(own.values()))
        split = AUTO if len(beyond) > 1 else str(*beyond)
        found |= dict.fromkeys(own, f"{first.base_method}, split {split}")
    return found


# What differs along a curve of splits.
_ALONG = {
    *("num_ranks", "num_nodes", "split"),
    *("local_batch", "global_batch", "control", "data"),
}


def rates_are_tried(cells: Iterable[Cell]) -> bool:
    """Whether two cells differ in their learning rate alone; those that follow the batch do not."""
    rates: dict[str, set[float]] = {}
    for cell in cells:
        if cell.target:
            rules = cell.target.model_dump_json(exclude={"learning_rate": True, "schedule": {"first_rate"}})
            alike = f"{rules} {cell.model_dump_json(exclude={'target'})}"
            rates.setdefault(alike, set()).add(cell.target.learning_rate)
    return any(len(several) > 1 for several in rates.values())


def _differing(cells: Iterable[Cell], names: Sequence[str]) -> list[str]:
    """The settings that are not the same in all trainings."""
    cells = [cell for cell in cells if cell.control == "train"]
    return [name for name in names if len({repr(setting_of(cell, name)) for cell in cells}) > 1]


def options_order(cell: Cell) -> tuple[tuple[str, bool, float, str], ...]:
    """The sort key of options and variables: by name, numbers by size."""

    def key(name: str, value: Setting) -> tuple[str, bool, float, str]:
        try:
            return name, False, float(value), ""
        except ValueError:
            return name, True, 0.0, str(value)

    return tuple(key(name, value) for name, value in sorted({**cell.options, **cell.variables}.items()))


def with_curve_names(
    records: Iterable[Record], planned: Iterable[Case], *, settings: Sequence[str] = ()
) -> tuple[list[Record], list[Case]]:
    """The records and planned cases of a study with named cells (`named_cells`), where the name is another one."""
    records, planned = list(records), list(planned)
    given: dict[str, set[str]] = {}
    for case in (*(record.case for record in records), *planned):
        given.setdefault(case.cell.method, set()).add(repr(case.cell.options))
    every = [record.case.cell for record in records] + [case.cell for case in planned]
    whole = all(cell.split == 1 for cell in every)
    if (
        not settings
        and whole
        and all(len(options) == 1 for options in given.values())
        and not rates_are_tried(every)
    ):
        return records, planned
    ids: dict[str, str] = {}  # by the cell's text: an id is costly
    cells: dict[str, Cell] = {}
    for case in (*(record.case for record in records), *planned):
        if (text := repr(case.cell)) not in ids:
            ids[text] = case.cell.id
            cells[ids[text]] = case.cell
    named = named_cells(cells.values(), settings=settings)
    renamed = {cell_id: cell for cell_id, cell in named.items() if cell.curve != backend_name(cells[cell_id])}
    if not renamed:
        return records, planned

    def case_named(case: Case) -> Case:
        cell = renamed.get(ids[repr(case.cell)])
        return case.model_copy(update={"cell": cell}) if cell else case

    return (
        [record.model_copy(update={"case": case_named(record.case)}) for record in records],
        [case_named(case) for case in planned],
    )


Point = Any  # of a curve at one number of ranks: a ScalingRow or a TimeToSolution
Value = Callable[[Any], Interval | None]  # of a point


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """One backend with one set of options and one kind of evidence, over the number of ranks."""

    name: str
    backend: str
    evidence: str
    rows: tuple[Point, ...]

    @property
    def joined(self) -> bool:
        """Whether a line may join the points: two or more, each on more ranks than the one before."""
        ranks = [row.cell.num_ranks for row in self.rows]
        return len(ranks) > 1 and all(fewer < more for fewer, more in pairwise(ranks))


def curves_of(rows: Iterable[Point], value: Value) -> list[Curve]:
    """The curves of the training rows (not controls) that have `value`, in the table's order."""
    drawn = [row for row in rows if row.cell.control == "train" and value(row) is not None]

    def key(row: Point) -> tuple[str, str, str]:
        return backend_name(row.cell), row.cell.backend, str(row.evidence)

    # The table is already grouped by backend, but kinds of evidence alternate within a backend.
    order = list(dict.fromkeys(key(row) for row in drawn))
    grouped = groupby(sorted(drawn, key=lambda row: (order.index(key(row)), row.cell.num_ranks)), key=key)
    return [
        Curve(name=name, backend=backend, evidence=evidence, rows=tuple(group))
        for (name, backend, evidence), group in grouped
    ]


def missing_from(rows: Iterable[Point], curves: Sequence[Curve]) -> list[str]:
    """Descriptions of the trained cells without a point in these curves, each with the reason."""
    shown = {id(row) for curve in curves for row in curve.rows}
    words = []
    for row in rows:
        if row.cell.control == "train" and id(row) not in shown:
            ranks = f"{row.cell.num_ranks} rank{'s' * (row.cell.num_ranks > 1)}"
            launches = f"{row.num_launches} of {row.num_planned} launches"
            words.append(
                f"{backend_name(row.cell)} on {ranks} ({'no base case' if row.num_launches else launches})"
            )
    return words


def limits(intervals: Sequence[Interval]) -> tuple[float, float]:
    """The lowest and highest value that must be visible."""
    return (
        min(interval.center if interval.low is None else interval.low for interval in intervals),
        max(interval.center if interval.high is None else interval.high for interval in intervals),
    )
