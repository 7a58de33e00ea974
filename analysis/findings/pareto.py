"""The Pareto front of time to solution against what it costs: node-hours, core-hours and energy.

A cell is on a front if no other one reaches the target both sooner and cheaper. Times and costs are those of the median
training, from the launch; energy is joules per sample over the windows x the median samples to the target.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby, pairwise
from typing import Any

from dlscale.analysis.curves import curves_of, limits
from dlscale.analysis.declare import Column, Sentence, TableOf, Tags, tags_of
from dlscale.analysis.families import Family
from dlscale.analysis.finding import Finding, training_columns
from dlscale.analysis.findings import energy, solution_table
from dlscale.analysis.findings.energy import Energy
from dlscale.analysis.findings.small_print import solution_origin
from dlscale.analysis.findings.solutions import TimeToSolution, goal_text
from dlscale.analysis.form import Form
from dlscale.analysis.measured import Measured
from dlscale.analysis.plots import Axis, Figure, Guide, Plot, Point, Series
from dlscale.analysis.records import setting_columns
from dlscale.analysis.statistics import Interval
from dlscale.analysis.text import cell_name, interval_columns, listed, number, plural, training_title

SECONDS_PER_HOUR = 3600
COSTS = {"node_hours": "node-hours", "core_hours": "core-hours", "kilojoules": "energy"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Priced:
    """A cell whose median time is known, and what that costs, by the names of `COSTS`; energy only where it was read.

    Core-hours are of the cores that ranks and servers are bound to. `fronts` are the costs whose front it is on.
    """

    row: TimeToSolution
    seconds: Interval  # from the launch
    costs: Mapping[str, Interval]
    fronts: frozenset[str] = frozenset()


def priced(solutions: Iterable[TimeToSolution], energies: Iterable[Energy]) -> list[Priced]:
    """All cells with a median time. Fronts are those of one family, target and kind of evidence."""
    joules = {(energy.cell.id, energy.evidence): energy.joules_per_sample for energy in energies}
    known = [cell for row in solutions if (cell := _priced(row, joules.get((row.cell.id, row.evidence))))]
    found = []
    for group in comparable(known):
        fronts = {name: front([cell for cell in group if name in cell.costs], name) for name in COSTS}
        found += [
            replace(cell, fronts=frozenset(name for name, best in fronts.items() if cell in best))
            for cell in group
        ]
    return found


def front(cells: Sequence[Priced], cost: str) -> list[Priced]:
    """The cells that no other one beats in time and cost, the fastest first; of equal ones all."""

    def beaten(cell: Priced) -> bool:
        seconds, price = _point_of(cell, cost)
        others = (_point_of(other, cost) for other in cells)
        return any(x <= seconds and y <= price and (x, y) != (seconds, price) for x, y in others)

    return sorted((cell for cell in cells if not beaten(cell)), key=lambda cell: cell.seconds.center)


def _point_of(cell: Priced, cost: str) -> tuple[float, float]:
    return cell.seconds.center, cell.costs[cost].center


def shown_cost(cells: Sequence[Priced]) -> str:
    """Node-hours where cells differ in nodes; else core-hours, for time alone decides between equal nodes."""
    return "node_hours" if len({cell.row.cell.num_nodes for cell in cells}) > 1 else "core_hours"


def front_text(cells: Sequence[Priced]) -> str:
    """A sentence on the front against `shown_cost` of comparable cells."""
    name = shown_cost(cells)
    texts = [
        f"{cell_name(cell.row.cell, cell.row.evidence)} on {plural(cell.row.cell.num_ranks, 'rank')} "
        f"({number(cell.seconds.center)} s, {number(cell.costs[name].center)})"
        for cell in sorted(cells, key=lambda cell: cell.seconds.center)
        if name in cell.fronts
    ]
    return f"By medians not beaten by any other cell in both time and {COSTS[name]}: {listed(texts)}."


def comparable(cells: Iterable[Priced]) -> list[list[Priced]]:
    """The cells by family, target and kind of evidence."""

    def key(cell: Priced) -> tuple[Any, ...]:
        return cell.row.family, cell.row.evidence, cell.row.target.metric, cell.row.target.threshold

    return [list(group) for _, group in groupby(sorted(cells, key=key), key=key)]


def _priced(row: TimeToSolution, joules_per_sample: Interval | None) -> Priced | None:
    if row.seconds is None:
        return None
    cores = row.cell.num_processes * row.cell.cores_per_rank
    costs = {
        "node_hours": row.seconds.times(row.cell.num_nodes / SECONDS_PER_HOUR),
        "core_hours": row.seconds.times(cores / SECONDS_PER_HOUR),
    }
    if joules_per_sample and row.samples:
        costs["kilojoules"] = row.samples.times(joules_per_sample.center / 1000)
    return Priced(row=row, seconds=row.seconds, costs=costs)


def to_pareto_row(cell: Priced) -> dict[str, Any]:
    """The row of a cell: time from the launch, costs, and the fronts that it is on."""
    return {
        **setting_columns(cell.row.family, cell.row.cell),
        "metric": cell.row.target.metric,
        "threshold": cell.row.target.threshold,
        "evidence": cell.row.evidence,
        **interval_columns("seconds", cell.seconds),
        **{
            key: value
            for name in COSTS
            for key, value in interval_columns(name, cell.costs.get(name)).items()
        },
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
        Column("node-hours", lambda cell: cell.costs["node_hours"]),
        Column("core-hours", lambda cell: cell.costs["core_hours"]),
        Column("energy", lambda cell: cell.costs.get("kilojoules", ""), unit="kJ"),
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
    names = [
        shown_cost(cells),
        *(["kilojoules"] if any("kilojoules" in cell.costs for cell in cells) else []),
    ]
    return Figure(
        name="pareto",
        title=f"What {goal_text(cells[0].row.target)} costs: {training_title(family)}",
        subtitle=family.constants,
        small_print=(SMALL_PRINT, solution_origin(study.provenance)),
        panels=tuple(_plot(name, [cell for cell in cells if name in cell.costs]) for name in names),
        rows=[to_pareto_row(cell) for cell in cells],
        wide=len(names) > 1,
    )


def _plot(name: str, cells: Sequence[Priced]) -> Plot:
    known = {(cell.row.cell.id, cell.row.evidence): cell for cell in cells}
    return Plot(
        name=name,
        title="",
        says="",
        x=Axis(title="time to solution [s]", low=0, high=1.08 * limits([cell.seconds for cell in cells])[1]),
        y=Axis(title=COST_TITLES[name], low=0, high=1.08 * limits([cell.costs[name] for cell in cells])[1]),
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
    seconds, cost = cell.seconds, cell.costs[name]
    return Point(
        x=seconds.center,
        y=cost.center,
        left=seconds.low,
        right=seconds.high,
        low=cost.low,
        high=cost.high,
        label=str(cell.row.cell.num_ranks),
    )


def _stairs(cells: Sequence[Priced], name: str) -> tuple[tuple[float, float], ...]:
    """From each cell on the front to the next: first later, then cheaper."""
    best = sorted(_point_of(cell, name) for cell in cells if name in cell.fronts)
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
