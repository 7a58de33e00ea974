"""The Pareto front of time to solution against what it costs: node-hours, core-hours and energy.

A cell is on a front if no other one reaches the target both sooner and cheaper. Times and costs are those of the median
training, from the launch; energy is joules per sample over the windows x the median samples to the target.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import groupby, pairwise
from typing import Any

from dlscale.analysis.curves import curves_of, limits
from dlscale.analysis.declare import (
    Axis,
    Column,
    Figure,
    Guide,
    Plot,
    Point,
    Sentence,
    Series,
    TableOf,
    Tags,
    cell_name,
    tags_of,
    training_columns,
)
from dlscale.analysis.families import Family
from dlscale.analysis.finding import Finding
from dlscale.analysis.findings import energy, solution_table
from dlscale.analysis.findings.energy import Energy
from dlscale.analysis.findings.small_print import solution_origin
from dlscale.analysis.findings.solutions import TimeToSolution, goal_text
from dlscale.analysis.form import Form
from dlscale.analysis.measured import Measured
from dlscale.analysis.records import algorithm_text, options_text
from dlscale.analysis.statistics import Interval
from dlscale.analysis.text import interval_columns, listed, number, plural

SECONDS_PER_HOUR = 3600
COSTS = {"node_hours": "node-hours", "core_hours": "core-hours", "kilojoules": "energy"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Priced:
    """A cell whose median time is known, and its costs. `fronts` are those of `COSTS` against which it is on one."""

    row: TimeToSolution
    seconds: Interval  # from the launch
    node_hours: Interval
    core_hours: Interval  # of the cores that ranks and servers are bound to
    kilojoules: Interval | None  # None where energy was not read
    fronts: frozenset[str] = frozenset()

    def cost(self, name: str) -> Interval | None:
        """That cost of `COSTS`."""
        costs = {
            "node_hours": self.node_hours,
            "core_hours": self.core_hours,
            "kilojoules": self.kilojoules,
        }
        return costs[name]


def priced(solutions: Sequence[TimeToSolution], energies: Iterable[Energy]) -> list[Priced]:
    """All cells with a median time. Fronts are those of one family, target and kind of evidence."""
    joules = {(energy.cell.id, energy.evidence): energy.joules_per_sample for energy in energies}
    found = [_priced(row, joules.get((row.cell.id, row.evidence))) for row in solutions]
    known = sorted((cell for cell in found if cell), key=_comparable)
    return [cell for _, group in groupby(known, key=_comparable) for cell in _with_fronts(list(group))]


def front(cells: Sequence[Priced], cost: str) -> list[Priced]:
    """The cells that no other one beats in time and cost, the fastest first; of equal ones all."""

    def beaten(cell: Priced) -> bool:
        own = (cell.seconds.center, _center(cell, cost))
        others = [(other.seconds.center, _center(other, cost)) for other in cells]
        return any(
            seconds <= own[0] and price <= own[1] and (seconds, price) != own for seconds, price in others
        )

    return sorted((cell for cell in cells if not beaten(cell)), key=lambda cell: cell.seconds.center)


def shown_cost(cells: Sequence[Priced]) -> str:
    """Node-hours where cells differ in nodes; else core-hours, for time alone decides between equal nodes."""
    return "node_hours" if len({cell.row.cell.num_nodes for cell in cells}) > 1 else "core_hours"


def front_text(cells: Sequence[Priced]) -> str:
    """A sentence on the front against `shown_cost` of comparable cells."""
    name = shown_cost(cells)
    best = [cell for cell in cells if name in cell.fronts]
    texts = [
        f"{cell_name(cell.row.cell, cell.row.evidence)} on {plural(cell.row.cell.num_ranks, 'rank')} "
        f"({number(cell.seconds.center)} s, {number(_center(cell, name))})"
        for cell in sorted(best, key=lambda cell: cell.seconds.center)
    ]
    return f"Not beaten by any other cell in both time and {COSTS[name]}: {listed(texts)}."


def comparable(cells: Iterable[Priced]) -> list[list[Priced]]:
    """The cells by family, target and kind of evidence."""
    return [list(group) for _, group in groupby(sorted(cells, key=_comparable), key=_comparable)]


def _comparable(cell: Priced) -> tuple[Any, ...]:
    row = cell.row
    return (row.family, row.evidence, row.target.metric, row.target.threshold)


def _priced(row: TimeToSolution, joules_per_sample: Interval | None) -> Priced | None:
    if row.seconds is None:
        return None
    cores = row.cell.num_processes * row.cell.cores_per_rank
    return Priced(
        row=row,
        seconds=row.seconds,
        node_hours=row.seconds.times(row.cell.num_nodes / SECONDS_PER_HOUR),
        core_hours=row.seconds.times(cores / SECONDS_PER_HOUR),
        kilojoules=row.samples.times(joules_per_sample.center / 1000)
        if joules_per_sample and row.samples
        else None,
    )


def _with_fronts(cells: Sequence[Priced]) -> list[Priced]:
    fronts: dict[int, set[str]] = {id(cell): set() for cell in cells}
    for name in COSTS:
        for cell in front([cell for cell in cells if cell.cost(name)], name):
            fronts[id(cell)].add(name)
    return [replace(cell, fronts=frozenset(fronts[id(cell)])) for cell in cells]


def _center(cell: Priced, name: str) -> float:
    cost = cell.cost(name)
    if cost is None:
        raise ValueError(f"{cell.row.cell.id} has no {name}")
    return cost.center


def to_pareto_row(cell: Priced) -> dict[str, Any]:
    """The row of a cell: time from the launch, costs, and the fronts that it is on."""
    own = cell.row.cell
    return {
        "workload": own.workload,
        "preset": own.preset,
        "framework": own.framework,
        "backend": own.backend,
        "backend_options": options_text(own),
        "algorithm": own.algorithm,
        "algorithm_options": algorithm_text(own),
        "num_ranks": own.num_ranks,
        "num_nodes": own.num_nodes,
        "global_batch": own.global_batch,
        "metric": cell.row.target.metric,
        "threshold": cell.row.target.threshold,
        "evidence": cell.row.evidence,
        **interval_columns("seconds", cell.seconds),
        **interval_columns("node_hours", cell.node_hours),
        **interval_columns("core_hours", cell.core_hours),
        **interval_columns("kilojoules", cell.kilojoules),
        **{f"on_front_of_{name}": name in cell.fronts for name in COSTS},
    }


PARETO = TableOf[Priced](
    name="pareto",
    caption="Time to solution and what it costs",
    columns=(
        *training_columns(lambda cell: cell.row.family),
        Column("target", lambda cell: goal_text(cell.row.target), numeric=False, common=True),
        Column("backend", lambda cell: cell_name(cell.row.cell, cell.row.evidence), numeric=False),
        Column("ranks", lambda cell: cell.row.cell.num_ranks),
        Column("nodes", lambda cell: cell.row.cell.num_nodes),
        Column("time", lambda cell: cell.seconds, unit="s"),
        Column("node-hours", lambda cell: cell.node_hours),
        Column("core-hours", lambda cell: cell.core_hours),
        Column("energy", lambda cell: cell.kilojoules or "", unit="kJ"),
        Column(
            "on the front of",
            lambda cell: listed([text for name, text in COSTS.items() if name in cell.fronts]) or "-",
            numeric=False,
        ),
    ),
    data=to_pareto_row,
    legend=(
        "On the front of a cost: no other cell reaches the target both sooner and cheaper, by medians. Node-hours are "
        "of whole nodes, core-hours of the cores that ranks are bound to, both from the launch. Energy: joules per "
        "sample of all nodes, times the median samples to the target."
    ),
    tags=lambda cell: tags_of(cell.row.cell),
)

COST_TITLES = {"node_hours": "node-hours", "core_hours": "core-hours", "kilojoules": "energy [kJ]"}
SMALL_PRINT = (
    "Medians over trainings from the launch to the target, with order-statistic intervals; numbers are ranks. "
    "No other cell is both faster and cheaper than one on the front. Node-hours are of whole nodes, core-hours of "
    "the cores that ranks are bound to; energy is joules per sample of all nodes times the median samples."
)


def pareto_figure(study: Measured, family: Family, form: Form) -> Figure | None:
    """Time against costs, and the fronts; None with fewer than two cells whose time is known.

    Left node-hours where cells differ in nodes, else core-hours; right energy, where it was read.
    """
    rows = [row for row in form.chosen(solution_table.FINDING.of(study)) if row.family == family]
    cells = priced(rows, energy.FINDING.of(study))
    if len(cells) < 2:
        return None
    names = [shown_cost(cells), *(["kilojoules"] if any(cell.kilojoules for cell in cells) else [])]
    return Figure(
        name="pareto",
        title=f"what {goal_text(cells[0].row.target)} costs: {family.title}",
        subtitle=family.constants,
        small_print=(SMALL_PRINT, solution_origin(study.provenance)),
        panels=tuple(_plot(name, [cell for cell in cells if cell.cost(name)]) for name in names),
        rows=[to_pareto_row(cell) for cell in cells],
        wide=len(names) > 1,
    )


def _plot(name: str, cells: Sequence[Priced]) -> Plot:
    known = {(cell.row.cell.id, cell.row.evidence): cell for cell in cells}
    costs = [cost for cell in cells if (cost := cell.cost(name))]
    return Plot(
        name=name,
        title="",
        says="",
        x=Axis(title="time to solution [s]", low=0, high=1.08 * limits([cell.seconds for cell in cells])[1]),
        y=Axis(title=COST_TITLES[name], low=0, high=1.08 * limits(costs)[1]),
        series=tuple(
            Series(
                name=curve.name,
                look=curve.name,
                evidence=curve.evidence,
                points=tuple(_point(known[row.cell.id, row.evidence], name) for row in curve.rows),
                tags=tags_of(curve.rows[0].cell),
            )
            for curve in curves_of([cell.row for cell in cells], lambda row: row.seconds)
        ),
        guides=tuple(Guide(label="Pareto front", points=_stairs(group, name)) for group in comparable(cells)),
    )


def _point(cell: Priced, name: str) -> Point:
    seconds, cost = cell.seconds, cell.cost(name)
    return Point(
        x=seconds.center,
        y=_center(cell, name),
        left=seconds.low,
        right=seconds.high,
        low=cost.low if cost else None,
        high=cost.high if cost else None,
        label=str(cell.row.cell.num_ranks),
    )


def _stairs(cells: Sequence[Priced], name: str) -> tuple[tuple[float, float], ...]:
    """From each cell on the front to the next: first later, then cheaper."""
    best = sorted((cell.seconds.center, _center(cell, name)) for cell in cells if name in cell.fronts)
    corners = [(later, cost) for (_, cost), (later, _) in pairwise(best)]
    return tuple(sorted([*best, *corners], key=lambda point: (point[0], -point[1])))


FINDINGS = (
    Finding(
        name="pareto",
        title="Time to solution and what it costs",
        compute=lambda study: priced(solution_table.FINDING.of(study), energy.FINDING.of(study)),
        table=PARETO,
        sentences=lambda cells: (
            Sentence(text=front_text(group), tags=Tags(workload=group[0].row.cell.workload))
            for group in comparable(cells)
        ),
        figures={"pareto": pareto_figure},
        under="time_to_solution",
    ),
)
