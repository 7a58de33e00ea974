"""What a plan says before it starts: what is measured, how long it takes, and the table of its cells."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from dlscale.base.quantities import format_seconds
from dlscale.base.strings import plural
from dlscale.benchmarks.cli import say, show_table
from dlscale.benchmarks.records.cell import SETTINGS, Case, curve_names
from dlscale.benchmarks.study.plan import Launch, Plan
from dlscale.collectives import CONTROL

if TYPE_CHECKING:  # a report counts cases, and needs nothing that launches them
    from dlscale.benchmarks.launch.campaign import Campaign

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
    left = {(launch.cases[0].block, launch.cases[0].position): launch for launch in todo}
    groups: dict[str, list[Launch]] = {}
    for launch in plan.launches:
        groups.setdefault(launch.cell.id, []).append(launch)
    cells = {name: launches[0].cell for name, launches in groups.items()}
    names = curve_names(cells, settings=[name for name in SETTINGS if name != "batch"])
    rows = []
    for launches in groups.values():
        cell, cases = launches[0].cell, launches[0].cases
        places = [(launch.cases[0].block, launch.cases[0].position) for launch in launches]
        own = [left[place] for place in places if place in left]
        servers = f" with {plural(cell.num_servers, 'server')}" if cell.num_servers else ""
        rows.append(
            {name: getattr(cell, name) for name in CELL_FIELDS}
            | {
                "curve": names[cell.id] + servers,
                "learning_rate": cell.target.learning_rate if cell.target else None,
                "controls": list(dict.fromkeys(case.cell.control for case in cases)),
                "num_cells": len(cases),
                "num_launches": len(launches),
                "num_launches_left": len(own),
                "seconds_left": plan.seconds(own),
            }
        )
    backends = [CONTROL, *plan.study.backends]  # a reference may be over it, whatever is compared
    along = ("curve", "num_ranks", "local_batch", "controls")

    def order(row: dict[str, Any]) -> tuple[Any, ...]:
        kind = row["controls"][0] != "train", backends.index(row["backend"])
        return row["workload"], row["framework"], *kind, *(row[name] for name in along)

    return sorted(rows, key=order)


def counted(cases: Sequence[Case]) -> str:
    """`16 cells, 49 launches, 91 cases`: the size of a study with these cases (docs/metrics.md)."""
    cells = {case.cell.id for case in cases}
    launches = {(case.block, case.position) for case in cases}
    return f"{plural(len(cells), 'cell')}, {plural(len(launches), 'launch')}, {plural(len(cases), 'case')}"


def say_plan(campaign: Campaign, todo: Sequence[Launch]) -> None:
    """What is measured, how many launches are left, about how long they take, and what to be warned of."""
    plan, study = campaign.plan, campaign.plan.study
    cells = [launch.cell for launch in plan.launches]
    ranks = sorted({cell.num_ranks for cell in cells})
    backends = [name for name in study.backends if name in {cell.backend for cell in cells}]
    say(
        f"{study.title} of {', '.join(study.workloads)} in {', '.join(study.frameworks)} over {', '.join(backends)} on "
        f"{', '.join(map(str, ranks))} rank{'s' * (ranks != [1])}, "
        f"{plan.shape.cores_per_rank} of {plan.shape.num_cores} cores per rank"
    )
    size, left = (counted([case for it in some for case in it.cases]) for some in (plan.launches, todo))
    if left != size:
        size += f", of which {left if todo else 'none'} are left"
    say(
        f"{size}: about {format_seconds(plan.seconds(todo))} on {campaign.system.title} with "
        f"{campaign.installation.name} ({campaign.fingerprint.versions.get('mpi', campaign.system.launcher)})"
    )
    for warning in plan.warnings:
        say(f"warning: {warning}")
    if quota := campaign.fingerprint.node.get("quota_cores"):
        say(
            f"warning: this container or job may use {quota} cores; nothing is claimed of launches that it stops"
        )


def show_plan(campaign: Campaign, todo: Sequence[Launch]) -> None:
    """Print the table of a plan's cells, and its totals."""
    plan = campaign.plan
    columns = {"workload": "workload", "framework": "framework", "backend": "curve", "ranks": "num_ranks"}
    columns |= {"nodes": "num_nodes"} if plan.shape.ranks_per_node else {}
    columns |= {"batch": "local_batch", "controls": "controls", "launches": "num_launches"}
    columns |= {"left": "num_launches_left"} if len(todo) < len(plan.launches) else {}
    columns |= {"time": "seconds_left"}
    total = {"workload": "all", "num_launches": len(plan.launches), "num_launches_left": len(todo)}
    rows = [*planned_rows(plan, todo), total | {"seconds_left": plan.seconds(todo), "controls": []}]
    for row in rows:
        row |= {"controls": ", ".join(row["controls"]), "seconds_left": format_seconds(row["seconds_left"])}
    cells = ([row.get(key, "") for key in columns.values()] for row in rows)
    show_table(list(columns), cells, words=("workload", "framework", "backend", "controls"))
