"""Running a study on this machine: what is said before its launches, the launches, and the screen about it."""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from itertools import groupby

import click

from dlscale.base.quantities import format_seconds
from dlscale.benchmarks.cli import FAILED_CASES, INSUFFICIENT_DATA
from dlscale.benchmarks.cli.plan_table import axes_text, cases_of, counted, rows_text, show_plan
from dlscale.benchmarks.cli.progress import LaunchProgress
from dlscale.benchmarks.cli.request import Request
from dlscale.benchmarks.launch.campaign import Campaign, open_campaign, run_launch
from dlscale.benchmarks.launch.other_load import read_other_load
from dlscale.benchmarks.launch.preparing import prepare_campaign
from dlscale.benchmarks.records.cell import Cell
from dlscale.benchmarks.records.curves import SETTINGS, curve_names
from dlscale.benchmarks.study.plan import Launch
from dlscale.benchmarks.study.study import Study
from dlscale.benchmarks.systems.system import System


def campaign_of(study: Study, system: System, request: Request) -> Campaign:
    """The campaign of a study on this machine. Raises UsageError for whatever would not work."""
    return prepare_campaign(
        study, system, environment_name=request.environment, data=request.data, results=request.results
    )


def show_campaign(campaign: Campaign, todo: list[Launch]) -> None:
    """Print the commands of a campaign, of which `todo` is left, then its plan and the table of its cells."""
    for launch in todo:
        click.echo(shlex.join(campaign.command(launch)))
    _print_plan(campaign, todo)
    show_plan(campaign.plan, todo)


def run_here(campaign: Campaign, request: Request) -> int:
    """Run what is left of a campaign on this machine, print one screen about the study and draw its figures."""
    with open_campaign(campaign, {"data": request.data}) as launches:
        _print_plan(campaign, launches)
        if launches and not (load := read_other_load(gpus=campaign.plan.study.device == "gpu")).quiet:
            click.echo(
                f"warning: the machine is busy ({load.text}): nothing will be claimed of noisy numbers"
            )
        _run_launches(campaign, launches)
    from dlscale.benchmarks.cli.report import show_study

    status = show_study(campaign.store)
    done = campaign.store.finished()
    if campaign.planned - done or status == FAILED_CASES:
        return FAILED_CASES
    if status == INSUFFICIENT_DATA and campaign.plan.study.target:  # no training reached it
        return INSUFFICIENT_DATA
    return 0


def _print_plan(campaign: Campaign, todo: list[Launch]) -> None:
    """What is measured, how many launches are left, about how long they take, and where the records go."""
    plan, study = campaign.plan, campaign.plan.study
    cells = [launch.cell for launch in plan.launches]
    ranks = sorted({cell.num_ranks for cell in cells})
    backends = [name for name in study.backends if name in {cell.backend for cell in cells}]
    click.echo(
        f"{study.title} of {_listed(study.workloads)} in {_listed(study.frameworks)} over {_listed(backends)} on "
        f"{_listed(ranks)} rank{'s' * (ranks != [1])}, {plan.shape.cores_per_rank} of {plan.num_cores} cores per rank"
    )
    for text in filter(None, (axes_text(plan), rows_text(plan))):
        click.echo(text)
    size, left = counted(cases_of(plan.launches)), counted(cases_of(todo))
    if left != size:
        size += f", of which {left if todo else 'none'} are left"
    click.echo(
        f"{size}: about {format_seconds(plan.seconds(todo))} on {campaign.system.title} with "
        f"{campaign.installation.name} ({campaign.fingerprint.versions.get('mpi', campaign.system.launcher)})"
    )
    click.echo(f"records: {campaign.store.folder}")
    for warning in plan.warnings:
        click.echo(f"warning: {warning}")
    if names := campaign.withheld:
        click.echo(
            f"warning: launches do not get {', '.join(names)} of this shell; --set NAME=VALUE sets one in every launch"
        )
    for pair, reason in campaign.unusable.items():
        click.echo(f"warning: {' in '.join(pair)} cannot be started, its cases will be failures: {reason}")
    if todo and study.budget and (needed := plan.seconds(plan.launches)) > 1.05 * study.budget:
        click.echo(
            f"warning: {plan.num_launches} launches of each cell need at least {format_seconds(needed)}; the budget of "
            f"{format_seconds(study.budget)} is exceeded, and every launch gets its shortest windows"
        )


def _listed(names: Iterable[object]) -> str:
    return ", ".join(map(str, names))


def _run_launches(campaign: Campaign, launches: list[Launch]) -> None:
    """Run the launches block by block."""
    plan = campaign.plan
    several = plan.study.axes
    # Of all cases: a launch whose training is done begins with another one.
    cells = [case.cell for launch in plan.launches for case in launch.cases] if several else []
    names = curve_names({cell.id: cell for cell in cells}, settings=SETTINGS)
    with LaunchProgress(num_launches=len(launches), planned_seconds=plan.seconds(launches)) as progress:
        for index, members in groupby(launches, key=lambda launch: launch.cases[0].block):
            # Each tier of sizes has blocks of its own.
            block = f"block {index % plan.num_launches + 1}/{plan.num_launches}"
            for launch in members:
                training = _training_of(launch.cell, names.get(launch.cell.id, launch.cell.method))
                progress.started(f"{block}, {training}", plan.seconds([launch]))
                records = run_launch(campaign, launch)
                progress.finished(
                    [f"{record.case.id}: {record.failure.message}" for record in records if record.failure]
                )


def _training_of(cell: Cell, curve: str) -> str:
    if cell.control == "whole_machine":
        return f"{cell.workload} in {cell.framework}, 1 rank on all cores as a reference"
    ranks = f"{cell.num_ranks} rank{'s' if cell.num_ranks > 1 else ''}"
    return f"{cell.workload} in {cell.framework} over {curve} on {ranks}"
