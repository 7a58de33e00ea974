"""What a study's jobs cost, before anything is submitted."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import click
from rich.console import Console
from rich.table import Table

from dlscale.benchmarks.campaign import Campaign
from dlscale.benchmarks.jobs import JobPlan
from dlscale.benchmarks.precision import blocks_needed, half_width
from dlscale.benchmarks.record import Cell
from dlscale.benchmarks.units import format_seconds
from dlscale.collectives import capabilities


def show(campaign: Campaign, jobs: Sequence[JobPlan]) -> None:
    """Jobs, wall time, node-hours used and billed, and what so many launches can show."""
    plan = campaign.plan
    cells = {case.cell.id for launch in plan.launches for case in launch.cases}
    click.echo(
        f"{plan.study.title} on {campaign.system.title} with {campaign.installation.name}: {len(cells)} cells, "
        f"{plan.study.launches} launches of each, {len(jobs)} jobs; "
        f"{plan.shape.ranks_per_node} ranks per node, {plan.shape.cores_per_rank} of {plan.num_cores} cores per rank"
    )
    table = Table(box=None, pad_edge=False)
    for name in ("job", "nodes", "sizes", "launches", "wall time", "node-hours used", "billed"):
        table.add_column(name, justify="left" if name in ("job", "sizes") else "right")
    used = billed = 0.0
    for job in jobs:
        own = sum(launch.cell.num_nodes * plan.seconds([launch]) / 3600 for launch in job.launches)
        used, billed = used + own, billed + job.billed_node_hours
        sizes = sorted({launch.cell.num_nodes for launch in job.launches})
        table.add_row(
            job.name,
            str(job.num_nodes),
            ",".join(map(str, sizes)),
            str(len(job.launches)),
            format_seconds(job.seconds),
            f"{own:.2f}",
            f"{job.billed_node_hours:.2f}",
        )
    if len(jobs) > 1:
        table.add_row(
            "all",
            "",
            "",
            "",
            format_seconds(sum(job.seconds for job in jobs)),
            f"{used:.2f}",
            f"{billed:.2f}",
        )
    Console().print(table)
    num_cases = sum(len(launch.cases) for job in jobs for launch in job.launches)
    click.echo(
        f"{used / max(1, num_cases):.3f} node-hours used per case, {billed / max(1, num_cases):.3f} billed"
    )
    _say_what_it_can_show(campaign)


def _say_what_it_can_show(campaign: Campaign) -> None:
    study = campaign.plan.study
    exchanging = [name for name in study.backends if capabilities(name).exchanges]
    width = half_width(study.launches)
    if study.launches == 1:
        click.echo("1 launch of each cell: no number will have an interval; 6 or more carry one (--launches)")
    else:
        click.echo(
            f"{study.launches} blocks: a 95 % interval is +-{width:.2f} of the spread between launches "
            f"(at a spread of 2 %: +-{2 * width:.1f} %)"
        )
    comparisons = num_comparisons(case.cell for launch in campaign.plan.launches for case in launch.cases)
    if comparisons < 1:
        return
    needed = blocks_needed(comparisons)
    verdict = "enough" if study.launches >= needed else f"too few: give --launches {needed}"
    click.echo(
        f"comparisons of backends with {exchanging[0]}, on all numbers of ranks together: {comparisons}, which need "
        f"{needed} blocks or more: {verdict}"
    )


def num_comparisons(cells: Iterable[Cell]) -> int:
    """As many as `dlscale compare` declares of a study: on several ranks each backend against the first."""
    contenders: dict[tuple[object, ...], set[str]] = {}
    for cell in cells:
        if cell.control == "train" and cell.num_ranks > 1 and capabilities(cell.backend).exchanges:
            key = (cell.workload, cell.framework, cell.num_ranks, cell.num_nodes)
            contenders.setdefault(key, set()).add(cell.id)
    return sum(len(those) - 1 for those in contenders.values())
