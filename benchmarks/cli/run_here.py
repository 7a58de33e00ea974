"""A study on this machine: what is said before its launches, the launches, and the screen about it."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable
from dataclasses import replace
from itertools import groupby

import click

from dlscale.base.quantities import format_seconds
from dlscale.base.strings import plural
from dlscale.benchmarks.cli import FAILED_CASES, INSUFFICIENT_DATA
from dlscale.benchmarks.cli.plan_table import cases_of, counted, planned_rows, say_axes, show_plan
from dlscale.benchmarks.cli.progress import LaunchProgress
from dlscale.benchmarks.cli.request import Request, data_of, own_defaults, study_of
from dlscale.benchmarks.cli.streams import say
from dlscale.benchmarks.jobs.submission import own_nodes
from dlscale.benchmarks.launch.campaign import Campaign, open_campaign, run_launch
from dlscale.benchmarks.launch.environment import other_load
from dlscale.benchmarks.launch.preparing import prepare_campaign
from dlscale.benchmarks.launch.probe import quota_warning
from dlscale.benchmarks.records.cell import Cell
from dlscale.benchmarks.records.curves import SETTINGS, curve_names
from dlscale.benchmarks.study.plan import Launch
from dlscale.benchmarks.study.study import Study
from dlscale.benchmarks.systems.system import System


def plan_and_run(
    name: str, system: System, request: Request, *, dry_run: bool, as_json: bool, in_allocation: bool
) -> int:
    """Plan a study, and run it or print its plan; returns the exit status. Raises UsageError."""
    study = study_of(name, system, request)
    request = with_defaults(study, system, request, quiet=as_json)
    campaign = prepare_campaign(
        study, system, environment_name=request.environment, data=request.data, results=request.results
    )
    if in_allocation:
        campaign = replace(campaign, nodes=own_nodes(campaign))
    if not dry_run:
        return run_here(campaign, request.data)
    todo = campaign.todo()
    if as_json:
        say_json(campaign, todo)
        return 0
    for launch in todo:
        click.echo(shlex.join(campaign.command(launch)))
    _say_plan(campaign, todo)
    show_plan(campaign.plan, todo)
    return 0


def with_defaults(study: Study, system: System, request: Request, *, quiet: bool) -> Request:
    """The request with the system's own data where the user gave none; prints what the system adds."""
    if not quiet and (line := own_defaults(study, system, request)):
        say(line)
    return request.changed(data=data_of(system, request))


def say_json(campaign: Campaign, todo: Iterable[Launch]) -> None:
    """Print the cells of a plan as JSON."""
    click.echo(json.dumps({"schema": 1, "rows": planned_rows(campaign.plan, todo)}))


def run_here(campaign: Campaign, data: str | None) -> int:
    """Run what is left of a campaign on this machine, print one screen about the study and draw its figures."""
    with open_campaign(campaign, {"data": data}) as launches:
        _say_plan(campaign, launches)
        if launches and (load := other_load()):
            say(f"warning: the machine is busy ({load}): nothing will be claimed of noisy numbers")
        _run_launches(campaign, launches)
    from dlscale.benchmarks.cli.report import show_study

    status = show_study(campaign.store)
    if campaign.planned - campaign.store.finished() or status == FAILED_CASES:
        return FAILED_CASES
    # No training reached its target; a short study without intervals is no failure of `run`.
    return INSUFFICIENT_DATA if status == INSUFFICIENT_DATA and campaign.plan.study.target else 0


def _say_plan(campaign: Campaign, todo: list[Launch]) -> None:
    """What is measured, how many launches are left, about how long they take, and where the records go."""
    plan, study = campaign.plan, campaign.plan.study
    cells = [launch.cell for launch in plan.launches]
    ranks = sorted({cell.num_ranks for cell in cells})
    backends = [name for name in study.backends if name in {cell.backend for cell in cells}]
    say(
        f"{study.title} of {', '.join(study.workloads)} in {', '.join(study.frameworks)} over {', '.join(backends)} on "
        f"{', '.join(map(str, ranks))} rank{'s' * (ranks != [1])}, "
        f"{plan.shape.cores_per_rank} of {plan.num_cores} cores per rank"
    )
    say_axes(plan)
    size, left = counted(cases_of(plan.launches)), counted(cases_of(todo))
    if left != size:
        size += f", of which {left if todo else 'none'} are left"
    say(
        f"{size}: about {format_seconds(plan.seconds(todo))} on {campaign.system.title} with "
        f"{campaign.installation.name} ({campaign.fingerprint.versions.get('mpi', campaign.system.launcher)})"
    )
    say(f"records: {campaign.store.folder}")
    warnings = [
        *plan.warnings,
        *(
            f"{' in '.join(pair)} cannot be started, its cases will be failures: {reason}"
            for pair, reason in campaign.unusable.items()
        ),
    ]
    if quota := quota_warning(campaign.fingerprint.node):
        warnings.append(quota)
    if names := campaign.withheld:
        warnings.append(
            f"launches do not get {', '.join(names)} of this shell; --set NAME=VALUE sets one in every launch"
        )
    if todo and study.budget and (needed := plan.seconds(plan.launches)) > 1.05 * study.budget:
        warnings.append(
            f"{plural(plan.num_launches, 'launch')} of each cell take at least {format_seconds(needed)}; the budget of "
            f"{format_seconds(study.budget)} is exceeded, and every launch gets its shortest windows"
        )
    for warning in warnings:
        say(f"warning: {warning}")


def _run_launches(campaign: Campaign, launches: list[Launch]) -> None:
    """Run the launches block by block."""
    plan = campaign.plan
    # Of all cases: a launch whose training is done begins with another one.
    cells = {case.cell.id: case.cell for case in cases_of(plan.launches)} if plan.study.axes else {}
    names = curve_names(cells, settings=SETTINGS)
    with LaunchProgress(num_launches=len(launches), planned_seconds=plan.seconds(launches)) as progress:
        for index, members in groupby(launches, key=lambda launch: launch.cases[0].block):
            # Each tier of sizes has blocks of its own.
            block = f"block {index % plan.num_launches + 1}/{plan.num_launches}"
            for launch in members:
                curve = names.get(launch.cell.id, launch.cell.method)
                progress.started(f"{block}: {_label(launch.cell, curve, plan.study)}", plan.seconds([launch]))
                records = run_launch(campaign, launch)
                progress.finished(
                    f"{record.case.id}: {record.failure.message}" for record in records if record.failure
                )


def _label(cell: Cell, curve: str, study: Study) -> str:
    """`ring, 2 ranks`, after the workload and the framework where the study has several of them."""
    parts = [cell.workload] * (len(study.workloads) > 1) + [cell.framework] * (len(study.frameworks) > 1)
    whole = cell.control == "whole_machine"
    return ", ".join(
        [*parts, *(["1 rank on all cores"] if whole else [curve, plural(cell.num_ranks, "rank")])]
    )
