"""What a plan says before it starts: its size, the table of its cells, its jobs and their cost."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table

from dlscale.base.quantities import format_seconds
from dlscale.base.strings import plural
from dlscale.benchmarks.cli.streams import say
from dlscale.benchmarks.records.cell import Case, Cell
from dlscale.benchmarks.records.curves import SETTINGS, curve_names, options_place
from dlscale.benchmarks.study.plan import Launch, Plan, launches_needed, num_comparisons, row_carriers
from dlscale.collectives.algorithms.registry import SYNC
from dlscale.collectives.sharding import NAMES as SHARDS

if TYPE_CHECKING:  # a report counts cases, and needs nothing that launches them
    from dlscale.benchmarks.jobs.jobs import Job
    from dlscale.benchmarks.launch.campaign import Campaign

MIN_COLUMNS = 110  # where the output goes to a file, which has no width to keep to
# Of a cell, in the order of a row.
CELL_FIELDS = (
    *("workload", "preset", "framework", "backend", "backend_options", "algorithm", "algorithm_options"),
    *("num_servers", "num_ranks", "num_nodes", "cores_per_rank", "local_batch", "precision", "compiled"),
    *("variables", "device", "shard", "split"),
)


def planned_rows(plan: Plan, todo: Iterable[Launch]) -> list[dict[str, Any]]:
    """A row for cells that share their launches, by workload, framework, backend and ranks, as JSON has it.

    `todo` are the launches that are left of the plan. `curve` is the backend with what tells it from other curves, but
    for the batch.
    """
    left = {_place(launch): launch for launch in todo}
    groups: dict[tuple[str, ...], list[Launch]] = {}
    for launch in plan.launches:
        groups.setdefault(tuple(case.cell.id for case in launch.cases), []).append(launch)
    cells = {launches[0].cell.id: launches[0].cell for launches in groups.values()}
    names = curve_names(cells, settings=[name for name in SETTINGS if name != "batch"])
    rows = []
    for launches in groups.values():
        cell, cases = launches[0].cell, launches[0].cases
        own = [left[_place(launch)] for launch in launches if _place(launch) in left]
        row = {name: getattr(cell, name) for name in CELL_FIELDS} | {
            "curve": names[cell.id]
            + (f" with {plural(cell.num_servers, 'server')}" if cell.num_servers else ""),
            "learning_rate": cell.target.learning_rate if cell.target else None,
            "controls": list(dict.fromkeys(case.cell.control for case in cases)),
            "num_cells": len(cases),
            "num_launches": len(launches),
            "num_launches_left": len(own),
            "seconds_left": plan.seconds(own),
        }
        rows.append((_order(plan, cell, row["controls"]), row))
    return [row for _, row in sorted(rows, key=lambda pair: pair[0])]


def _place(launch: Launch) -> tuple[int, int]:
    """The block of a launch and its position there, which no other launch of the plan has."""
    return launch.cases[0].block, launch.cases[0].position


def _order(plan: Plan, cell: Cell, controls: Sequence[str]) -> tuple[Any, ...]:
    """The sort key of a row: in the order in which the study names things, then by size."""
    study = plan.study
    backends = ["none", *study.backends]  # a reference may be over `none`, whatever is compared
    return (
        *(study.workloads.index(cell.workload), study.frameworks.index(cell.framework)),
        *(cell.control != "train", backends.index(cell.backend)),
        *([SYNC, *study.algorithms].index(cell.algorithm), SHARDS.index(cell.shard), cell.split),
        *(cell.num_ranks, cell.num_servers, ", ".join(controls), cell.local_batch),
        *(cell.precision != study.precision, cell.compiled, options_place(cell)),
        cell.target.learning_rate if cell.target else 0.0,
    )


def cases_of(launches: Iterable[Launch]) -> list[Case]:
    """Their cases, in order."""
    return [case for launch in launches for case in launch.cases]


def counted(cases: Sequence[Case]) -> str:
    """`16 cells, 49 launches, 91 cases`: the size of a study with these cases (docs/metrics.md)."""
    cells = {case.cell.id for case in cases}
    launches = {(case.block, case.position) for case in cases}
    return f"{plural(len(cells), 'cell')}, {plural(len(launches), 'launch')}, {plural(len(cases), 'case')}"


def say_axes(plan: Plan) -> None:
    """Print the study's axes, and what carries rows of samples, where it has any.

    `axes: gloo.bucket_cap_mb 1, 25: 3 curves`; `rows over MPI (horovod, ring), torch.distributed (gloo)`.
    """
    cells = {case.cell.id: case.cell for case in cases_of(plan.launches) if case.cell.control == "train"}
    if axes := [f"{name} {', '.join(map(str, values))}" for name, values in plan.study.axes.items()]:
        names = curve_names(cells, settings=SETTINGS)
        curves = {
            (it.workload, it.framework, it.num_servers, names[cell_id]) for cell_id, it in cells.items()
        }
        say(f"axes: {'; '.join(axes)}: {plural(len(curves), 'curve')}")
    carriers = row_carriers(case.cell for case in cases_of(plan.launches))
    if carriers:
        say("rows over " + ", ".join(f"{name} ({', '.join(own)})" for name, own in carriers.items()))


def show_plan(plan: Plan, todo: Sequence[Launch]) -> None:
    """Print the table of a plan, and its totals; one line where nothing is left."""
    if not todo:
        say(f"nothing is left to run: all {plural(len(cases_of(plan.launches)), 'case')} are done")
        return
    on_nodes, begun = plan.shape.ranks_per_node is not None, len(todo) < len(plan.launches)
    texts = {"workload": "workload", "framework": "framework", "backend": "curve"}
    numbers = {"ranks": "num_ranks"} | ({"nodes": "num_nodes"} if on_nodes else {}) | {"batch": "local_batch"}
    last = {"launches": "num_launches"} | ({"left": "num_launches_left"} if begun else {}) | {"time": "time"}
    columns = texts | numbers | {"controls": "controls"} | last
    table = Table(box=None, pad_edge=False)
    for name in columns:
        table.add_column(name, justify="left" if name in (*texts, "controls") else "right")
    for row in planned_rows(plan, todo):
        row |= {"controls": ", ".join(row["controls"]), "time": format_seconds(row["seconds_left"])}
        table.add_row(*(str(row[key]) for key in columns.values()))
    total = {
        "workload": "all",
        "num_launches": str(len(plan.launches)),
        "num_launches_left": str(len(todo)),
        "time": format_seconds(plan.seconds(todo)),
    }
    table.add_row(*(total.get(key, "") for key in columns.values()))
    console = Console()
    wide = console.is_terminal or console.width >= MIN_COLUMNS
    (console if wide else Console(width=MIN_COLUMNS)).print(table)


def show_job_costs(campaign: Campaign, jobs: Sequence[Job]) -> None:
    """Print jobs, wall time, node-hours used and billed, and the precision of that many launches."""
    plan = campaign.plan
    launches = [launch for job in jobs for launch in job.launches]
    canaries = sum(launch.cell.control == "canary" for launch in launches)
    say(
        f"{plan.study.title} on {campaign.system.title} with {campaign.installation.name}: "
        f"{counted(cases_of(plan.launches))} in {plural(len(jobs), 'job')}, and {canaries} canary launches; "
        f"{plural(plan.shape.ranks_per_node or 1, 'rank')} per node, "
        f"{plan.shape.cores_per_rank} of {plan.num_cores} cores per rank"
    )
    say_axes(plan)
    table = Table(box=None, pad_edge=False)
    for name in ("job", "nodes", "sizes", "launches", "wall time", "node-hours used", "billed"):
        table.add_column(name, justify="left" if name in ("job", "sizes") else "right")
    all_used = 0.0
    for job in jobs:
        used = sum(launch.cell.num_nodes * plan.seconds([launch]) / 3600 for launch in job.launches)
        all_used += used
        sizes = ",".join(map(str, sorted({launch.cell.num_nodes for launch in job.launches})))
        table.add_row(
            *(job.name, str(job.num_nodes), sizes, str(len(job.launches)), format_seconds(job.seconds)),
            *(f"{used:.2f}", f"{job.billed_node_hours:.2f}"),
        )
    billed = sum(job.billed_node_hours for job in jobs)
    if len(jobs) > 1:
        seconds = format_seconds(sum(job.seconds for job in jobs))
        table.add_row("all", "", "", "", seconds, f"{all_used:.2f}", f"{billed:.2f}")
    Console().print(table)
    num_cases = max(1, len(cases_of(launches)))
    say(f"{all_used / num_cases:.3f} node-hours used per case, {billed / num_cases:.3f} billed")
    _say_precision(plan)


def _say_precision(plan: Plan) -> None:
    """Print how wide intervals will be, and whether comparisons can be decided."""
    from dlscale.analysis.statistics import half_width

    n, comparisons = plan.num_launches, num_comparisons(case.cell for case in cases_of(plan.launches))
    if n == 1:
        say("1 launch per cell: no intervals; give --launches 6 or more")
        return
    text = f"{n} blocks: 95 % intervals of +-{half_width(n):.2f} times the spread between launches"
    if comparisons:
        needed = launches_needed(comparisons)
        text += f"; {plural(comparisons, 'comparison')} need{'s' * (comparisons == 1)} {needed}: "
        text += "planned" if n >= needed else f"too few, give --launches {needed}"
    say(text)
