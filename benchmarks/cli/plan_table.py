"""The table of a plan: what shares a launch, how often it is launched, and how long that takes.

`counted` is the one way in which plans, runs, jobs, `dlscale status` and the page say how large a study is: in cells,
launches and cases, as the glossary of docs/metrics.md has them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click
from rich.console import Console
from rich.table import Table

from dlscale.analysis.statistics import blocks_needed, half_width
from dlscale.base.quantities import format_seconds
from dlscale.base.strings import plural
from dlscale.benchmarks.records.cell import Case, Cell
from dlscale.benchmarks.records.curves import SETTINGS, curve_names, options_place
from dlscale.benchmarks.study.plan import Launch, Plan, num_comparisons
from dlscale.benchmarks.study.splitting import row_carriers
from dlscale.collectives import capabilities
from dlscale.collectives.algorithms.registry import SYNC
from dlscale.collectives.sharding import NAMES as SHARDS

if TYPE_CHECKING:  # a report counts cases, and needs nothing that launches them
    from dlscale.benchmarks.jobs.jobs import Job
    from dlscale.benchmarks.launch.campaign import Campaign

MIN_COLUMNS = 110  # where the output goes to a file, which has no width to keep to


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedCells:
    """Cells that share their launches, in the order of these launches' cases."""

    cells: tuple[Cell, ...]
    curve: str  # the backend with what tells it from other curves, but for the batch
    num_launches: int
    num_left: int  # launches with a case that has no good record yet
    seconds: float  # estimated, of what is left

    @property
    def controls(self) -> str:
        """Their controls: `train, synthetic, loader`."""
        return ", ".join(dict.fromkeys(cell.control for cell in self.cells))

    @property
    def name(self) -> str:
        """Their curve and servers."""
        cell = self.cells[0]
        servers = f" with {plural(cell.num_servers, 'server')}" if cell.num_servers else ""
        return self.curve + servers


def planned_cells(plan: Plan, todo: Sequence[Launch]) -> list[PlannedCells]:
    """What a plan measures, by workload, framework, backend and ranks. `todo` are the launches that are left of it."""
    left = {_place(launch): launch for launch in todo}
    groups: dict[tuple[str, ...], list[Launch]] = {}
    for launch in plan.launches:
        groups.setdefault(tuple(case.cell.id for case in launch.cases), []).append(launch)
    cells = [launches[0].cell for launches in groups.values()]
    settings = [name for name in SETTINGS if name != "batch"]
    names = curve_names({cell.id: cell for cell in cells}, settings=settings)
    rows = []
    for launches in groups.values():
        own = [left[_place(launch)] for launch in launches if _place(launch) in left]
        rows.append(
            PlannedCells(
                cells=tuple(case.cell for case in launches[0].cases),
                curve=names[launches[0].cell.id],
                num_launches=len(launches),
                num_left=len(own),
                seconds=plan.seconds(own),
            )
        )
    study = plan.study
    workloads, frameworks = study.workloads, study.frameworks
    backends = ["none", *study.backends]  # a reference may be over `none`, whatever is compared
    algorithms = [SYNC, *study.algorithms]

    def order(row: PlannedCells) -> tuple[object, ...]:
        cell = row.cells[0]
        return (
            *(workloads.index(cell.workload), frameworks.index(cell.framework)),
            *(cell.control != "train", backends.index(cell.backend)),
            algorithms.index(cell.algorithm),
            SHARDS.index(cell.shard),
            cell.split,
            *(cell.num_ranks, cell.num_servers, row.controls, cell.local_batch),
            *(cell.precision != study.precision, cell.compiled),
            options_place(cell),
            cell.target.learning_rate if cell.target else 0.0,
        )

    return sorted(rows, key=order)


def _place(launch: Launch) -> tuple[int, int]:
    """The block of a launch and its position there, which no other launch of the plan has."""
    return launch.cases[0].block, launch.cases[0].position


def counted(cases: Iterable[Case]) -> str:
    """`16 cells, 49 launches, 91 cases`: the size of a study with these cases."""
    cases = list(cases)
    cells = {case.cell.id for case in cases}
    launches = {(case.block, case.position) for case in cases}
    return counts_text(num_cells=len(cells), num_launches=len(launches), num_cases=len(cases))


def cases_of(launches: Iterable[Launch]) -> list[Case]:
    """Their cases, in order."""
    return [case for launch in launches for case in launch.cases]


def counts_text(*, num_cells: int, num_launches: int, num_cases: int) -> str:
    """`16 cells, 49 launches, 91 cases`."""
    return f"{plural(num_cells, 'cell')}, {plural(num_launches, 'launch')}, {plural(num_cases, 'case')}"


def axes_text(plan: Plan) -> str:
    """`axes: gloo.bucket_cap_mb 1, 25: 3 curves`; empty without any."""
    study = plan.study
    cells = {case.cell.id: case.cell for case in cases_of(plan.launches) if case.cell.control == "train"}
    names = curve_names(cells, settings=SETTINGS)
    curves = {
        (cell.workload, cell.framework, cell.num_servers, names[cell_id]) for cell_id, cell in cells.items()
    }
    axes = [f"{name} {', '.join(map(str, values))}" for name, values in study.axes.items()]
    return f"axes: {'; '.join(axes)}: {plural(len(curves), 'curve')}" if axes else ""


def rows_text(plan: Plan) -> str:
    """`rows over MPI (horovod, ring), torch.distributed (gloo)`; empty where samples stay whole."""
    carriers = row_carriers(case.cell for case in cases_of(plan.launches))
    named = [f"{carrier} ({', '.join(backends)})" for carrier, backends in carriers.items()]
    return f"rows over {', '.join(named)}" if named else ""


def plan_json(plan: Plan, todo: Sequence[Launch]) -> dict[str, Any]:
    """`{"schema": 1, "rows": [...]}`, with a row for cells that share their launches."""
    return {"schema": 1, "rows": [_json_row(row) for row in planned_cells(plan, todo)]}


# Of a cell, in the order of a row.
_JSON_FIELDS = (
    *("workload", "preset", "framework", "backend", "backend_options", "algorithm", "algorithm_options"),
    *("num_servers", "num_ranks", "num_nodes", "cores_per_rank", "local_batch", "precision", "compiled"),
    *("variables", "device", "shard", "split"),
)


def _json_row(row: PlannedCells) -> dict[str, Any]:
    cell = row.cells[0]
    return {name: getattr(cell, name) for name in _JSON_FIELDS} | {
        "learning_rate": cell.target.learning_rate if cell.target else None,
        "controls": list(dict.fromkeys(member.control for member in row.cells)),
        "num_cells": len(row.cells),
        "num_launches": row.num_launches,
        "num_launches_left": row.num_left,
        "seconds_left": row.seconds,
    }


def show_plan(plan: Plan, todo: Sequence[Launch]) -> None:
    """Print the table of a plan, and its totals; one line where nothing is left."""
    if not todo:
        click.echo(f"nothing is left to run: all {plural(len(cases_of(plan.launches)), 'case')} are done")
        return
    on_nodes, begun = plan.shape.ranks_per_node is not None, len(todo) < len(plan.launches)
    table = Table(box=None, pad_edge=False)
    words = ("workload", "framework", "backend", "controls")
    shown = ["workload", "framework", "backend", "ranks", *(["nodes"] * on_nodes), "batch", "controls"]
    for name in (*shown, "launches", *(["left"] * begun), "time"):
        table.add_column(name, justify="left" if name in words else "right")
    for row in planned_cells(plan, todo):
        cell = row.cells[0]
        table.add_row(
            *(cell.workload, cell.framework, row.name, str(cell.num_ranks)),
            *([str(cell.num_nodes)] * on_nodes),
            *(str(cell.local_batch), row.controls, str(row.num_launches)),
            *([str(row.num_left)] * begun),
            format_seconds(row.seconds),
        )
    table.add_row(
        *("all", *([""] * (len(shown) - 1)), str(len(plan.launches))),
        *([str(len(todo))] * begun),
        format_seconds(plan.seconds(todo)),
    )
    console = Console()
    wide = console.is_terminal or console.width >= MIN_COLUMNS
    (console if wide else Console(width=MIN_COLUMNS)).print(table)


def show_job_costs(campaign: Campaign, jobs: Sequence[Job]) -> None:
    """Print jobs, wall time, node-hours used and billed, and the precision of that many launches."""
    plan = campaign.plan
    canaries = sum(launch.cell.control == "canary" for job in jobs for launch in job.launches)
    click.echo(
        f"{plan.study.title} on {campaign.system.title} with {campaign.installation.name}: "
        f"{counted(cases_of(plan.launches))} in {plural(len(jobs), 'job')}, and {canaries} canary launches; "
        f"{plural(plan.shape.ranks_per_node or 1, 'rank')} per node, "
        f"{plan.shape.cores_per_rank} of {plan.num_cores} cores per rank"
    )
    for text in filter(None, (axes_text(plan), rows_text(plan))):
        click.echo(text)
    small = [job for job in jobs if job.num_nodes > max(launch.cell.num_nodes for launch in job.launches)]
    if small:
        most = max(launch.cell.num_nodes for job in small for launch in job.launches)
        click.echo(
            f"warning: {plural(len(small), 'job')} for at most {plural(most, 'node')} will have "
            f"{small[0].num_nodes}, the fewest of the partition, and are billed for them"
        )
    table = Table(box=None, pad_edge=False)
    for name in ("job", "nodes", "sizes", "launches", "wall time", "node-hours used", "billed"):
        table.add_column(name, justify="left" if name in ("job", "sizes") else "right")
    used = billed = 0.0
    for job in jobs:
        own = sum(launch.cell.num_nodes * plan.seconds([launch]) / 3600 for launch in job.launches)
        used, billed = used + own, billed + job.billed_node_hours
        sizes = ",".join(map(str, sorted({launch.cell.num_nodes for launch in job.launches})))
        table.add_row(
            *(job.name, str(job.num_nodes), sizes, str(len(job.launches)), format_seconds(job.seconds)),
            *(f"{own:.2f}", f"{job.billed_node_hours:.2f}"),
        )
    if len(jobs) > 1:
        seconds = format_seconds(sum(job.seconds for job in jobs))
        table.add_row("all", "", "", "", seconds, f"{used:.2f}", f"{billed:.2f}")
    Console().print(table)
    num_cases = sum(len(launch.cases) for job in jobs for launch in job.launches)
    click.echo(
        f"{used / max(1, num_cases):.3f} node-hours used per case, {billed / max(1, num_cases):.3f} billed"
    )
    _show_precision(campaign)


def _show_precision(campaign: Campaign) -> None:
    plan = campaign.plan
    exchanging = [name for name in plan.study.backends if capabilities(name).exchanges]
    width = half_width(plan.num_launches)
    if plan.num_launches == 1:
        click.echo("1 launch per cell: no intervals; give --launches 6 or more")
    else:
        click.echo(
            f"{plan.num_launches} blocks: 95 % intervals of +-{width:.2f} times the spread between launches "
            f"(+-{2 * width:.1f} % at a spread of 2 %)"
        )
    comparisons = num_comparisons(case.cell for launch in plan.launches for case in launch.cases)
    if comparisons < 1:
        return
    needed = blocks_needed(comparisons)
    verdict = "planned" if plan.num_launches >= needed else f"too few: give --launches {needed}"
    compared = f"backends with {exchanging[0]}"
    if plan.study.axes:
        compared = "curves"
    click.echo(
        f"{plural(comparisons, 'comparison')} of {compared} need{'s' * (comparisons == 1)} {needed} launches of each: "
        f"{verdict}"
    )
