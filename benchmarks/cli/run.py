"""`dlscale plan` and `dlscale run`: the plan of a study is printed, and its launches run here.

A plan is a table of cells; the exact command lines are those of `run --dry-run` and of `plan --commands`.
"""

from __future__ import annotations

import json
import math
import shlex
from collections.abc import Iterable
from dataclasses import replace
from itertools import groupby
from typing import TYPE_CHECKING

import click
import rich_click

from dlscale.analysis.curves import SETTINGS, named_cells
from dlscale.analysis.records import NamedCell
from dlscale.base.errors import UsageError
from dlscale.base.quantities import format_seconds
from dlscale.benchmarks.cli import FAILED_CASES, INSUFFICIENT_DATA, NOT_COMPARABLE, run_jobs
from dlscale.benchmarks.cli.options import json_option, say_given_up
from dlscale.benchmarks.cli.plan_table import axes_text, cases_of, counted, plan_json, show_plan
from dlscale.benchmarks.cli.progress import LaunchProgress
from dlscale.benchmarks.cli.request import (
    Request,
    Start,
    StudyCommand,
    data_of,
    own_defaults,
    study_of,
    study_options,
    system_of,
)
from dlscale.benchmarks.jobs.submission import own_nodes
from dlscale.benchmarks.launch import parity_gate
from dlscale.benchmarks.launch.campaign import (
    Campaign,
    abandoned_cases,
    check_startable,
    open_campaign,
    prepare_campaign,
    run_launch,
)
from dlscale.benchmarks.launch.processes import interrupt_on_signals
from dlscale.benchmarks.launch.quiet import read_other_load, wait_until_quiet
from dlscale.benchmarks.records.record import Cell
from dlscale.benchmarks.study.plan import Launch
from dlscale.benchmarks.study.search import needs_search, search_of
from dlscale.benchmarks.study.study import Study, load_study
from dlscale.benchmarks.systems.system import System

if TYPE_CHECKING:
    from dlscale.analysis.predict.solution import SamplesToTarget


@click.command(cls=StudyCommand)
@click.argument("study")
@study_options
@rich_click.option(
    "--commands", panel="Output", is_flag=True, help="Print the exact commands and scripts, too."
)
@json_option
def plan(study: str, request: Request, commands: bool, as_json: bool) -> int:
    """Print what STUDY would run: a table of its cells, launches, estimated time, jobs and node-hours. Starts nothing.

    \b
    Examples:
      dlscale plan strong-scaling --ranks 1,2
      dlscale plan weak-scaling --system cori --nodes 1:64:x2
      dlscale plan weak-scaling --commands
    """  # noqa: D301
    return plan_and_run(study, request, Start(start=False, commands=commands, as_json=as_json))


@click.command(cls=StudyCommand)
@click.argument("study")
@study_options
@rich_click.option(
    "--in-allocation",
    panel="Where",
    is_flag=True,
    help="Use the nodes of the job that this runs in; submit nothing.",
)
@rich_click.option(
    "--dry-run",
    panel="Output",
    is_flag=True,
    help="Print the exact commands and scripts, and start nothing.",
)
def run(study: str, request: Request, dry_run: bool, in_allocation: bool) -> int:
    """Run STUDY (a name or a .toml file), print one screen about it, and draw its figures and page.

    On a system with a scheduler its jobs are submitted; anywhere else that system is rehearsed. The same command
    resumes an interrupted study. Failed cases are tried again.

    \b
    Examples:
      dlscale run weak-scaling --backends none,ring --budget 2min
      dlscale run weak-scaling --system cori --nodes 1,2,4 --account m1234 --set max_node_hours=20
      dlscale run time-to-solution --target auc=0.98 --set momentum=0.9
    """  # noqa: D301
    return plan_and_run(study, request, Start(start=not dry_run, in_allocation=in_allocation))


def plan_and_run(name: str, request: Request, how: Start) -> int:
    """Plan a study and run it if it is to start; returns the exit status. Raises UsageError."""
    system = system_of(request)
    if load_study(name).choice:
        from dlscale.benchmarks.cli.run_frameworks import run_frameworks

        if (losses := request.get("choice.losses")) is None or losses or not system.has_jobs:
            return run_frameworks(name, system, request, how)
    if system.has_jobs and not how.in_allocation:
        return _as_jobs(name, system, request, how)
    study = study_of(name, system, request)
    if needs_search(study):
        if not (study.tuning and study.tuning.only):
            from dlscale.benchmarks.cli.run_tuned import run_tuned

            return run_tuned(name, study, system, request, how)
        study = search_of(study)
    request = _introduced(study, system, request, how)
    campaign = campaign_of(study, system, request)
    if how.in_allocation:
        campaign = replace(campaign, nodes=own_nodes(campaign))
    if how.start:
        interrupt_on_signals()
        return run_here(campaign, request)
    todo = campaign.todo(campaign.store.summaries())
    if how.as_json:
        click.echo(json.dumps(plan_json(campaign.plan, todo)))
    else:
        show_campaign(campaign, todo, commands=how.commands)
    return 0


def _as_jobs(name: str, system: System, request: Request, how: Start) -> int:
    """Submit the study's jobs on their system, or rehearse them elsewhere."""
    rehearsed = not system.is_here()
    open_ports = rehearsed and run_jobs.needs_open_ports(system, request)
    if open_ports:
        request = request.changed(allow_open_ports=True)
    smaller = ""
    if solving := rehearsed and load_study(name).target is not None:
        request, smaller = run_jobs.solution_request(name, system, request)
    study = study_of(name, system, request)
    if needs_search(study):
        if not (study.tuning and study.tuning.only):
            raise UsageError(
                f"{study.name} on {system.name}: its second part needs the results of the first; submit dlscale run "
                f"{name} --set tuning.only=yes, and then dlscale run {name} --set target.tuned=FILE"
            )
        study = search_of(study)
    if rehearsed and not how.as_json:
        click.echo(run_jobs.rehearsal_line(system))
        if smaller:
            click.echo(smaller)
        if open_ports:
            click.echo(
                f"rehearsed with allow_open_ports=yes, which {system.name} itself must be given: without it no "
                "default backend for its GPUs spans nodes"
            )
    request = _introduced(study, system, request, how)
    if request.wait_quiet:
        raise UsageError(
            f"wait_quiet on {system.name}, whose jobs have nodes of their own; leave it out, or use it with "
            "--in-allocation"
        )
    trained = _trained_here(name, study, request) if solving and how.start else {}
    return run_jobs.run_as_jobs(study, system, request, how, trained=trained)


def _introduced(study: Study, system: System, request: Request, how: Start) -> Request:
    """Print what the system and profiles add to what was asked for; gives back the request with its data."""
    if not how.as_json:
        if line := own_defaults(study, system, request):
            click.echo(line)
        for key, slept in study.slept_by_profile.items():
            click.echo(f"{key}: {slept.text} ({slept.source})")
    return request.changed(data=data_of(system, request))


def _trained_here(name: str, study: Study, request: Request) -> dict[str, list[SamplesToTarget]]:
    """The samples to each workload's target in trainings of this machine, which are trained now if there are none."""
    # Here, because predictions take longer to import than a plan takes.
    from dlscale.benchmarks.cli.rehearsal import local_request, local_samples

    results = request.results
    found = {workload: local_samples(results, study, workload) for workload in study.workloads}
    if missing := [workload for workload, samples in found.items() if not samples]:
        click.echo(
            f"no trainings of {_listed(missing)} to a target are in {results}: trained now on this machine, which is "
            "all that is measured"
        )
        local = local_request(request, missing).changed(figures=False)
        plan_and_run(name, local, Start(commands=False))
        found |= {workload: local_samples(results, study, workload) for workload in missing}
        click.echo(f"on {request.system} again, where nothing was measured:")
    return found


def campaign_of(study: Study, system: System, request: Request) -> Campaign:
    """The campaign of a study on this machine. Raises UsageError for whatever would not work."""
    return prepare_campaign(
        study,
        system,
        environment_name=request.environment,
        data=request.data,
        results=request.results,
    )


def show_campaign(campaign: Campaign, todo: list[Launch], *, commands: bool) -> None:
    """Print the plan of a campaign and the table of its cells, of which `todo` is left; its commands if asked to."""
    _print_plan(campaign, todo)
    show_plan(campaign.plan, todo)
    if commands:
        _print_commands(campaign, todo)


def run_here(campaign: Campaign, request: Request, *, max_attempts: int | None = None) -> int:
    """Run what is left of a campaign on this machine, print one screen about the study and draw its figures.

    If asked to wait it begins when no other program uses the machine, or raises UsageError after that time.
    """
    check_startable(campaign)
    with open_campaign(campaign, {"data": request.data}, max_attempts=max_attempts) as launches:
        _print_plan(campaign, launches)
        if max_attempts:
            say_given_up(abandoned_cases(campaign, launches), max_attempts)
        _check_parity(campaign)
        if launches:
            _see_to_other_programs(request.wait_quiet, gpus=campaign.plan.study.device == "gpu")
        _run_launches(campaign, launches)
    from dlscale.benchmarks.cli.report import show_study

    status = show_study(campaign.store, figures=request.figures)
    done = campaign.store.finished()
    planned = {case.id for launch in campaign.plan.launches for case in launch.cases}
    if planned - done or status == FAILED_CASES:
        return FAILED_CASES
    if status == INSUFFICIENT_DATA and campaign.plan.study.target:  # no training reached it
        return INSUFFICIENT_DATA
    return NOT_COMPARABLE if status == NOT_COMPARABLE else 0


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
    if axes := axes_text(plan):
        click.echo(axes)
    size, left = counted(cases_of(plan.launches)), counted(cases_of(todo))
    if left != size:
        size += f", of which {left if todo else 'none'} are left"
    click.echo(
        f"{size}: about {format_seconds(plan.seconds(todo))} on {campaign.system.title} with "
        f"{campaign.installation.name} ({campaign.fingerprint.versions.get('mpi', 'MPI')})"
    )
    click.echo(f"records: {campaign.store.folder}")
    for warning in plan.warnings:
        click.echo(f"warning: {warning}")
    for pair, reason in campaign.unusable.items():
        click.echo(f"warning: {' in '.join(pair)} cannot be started, its cases will be failures: {reason}")
    if todo and study.budget and (needed := plan.seconds(plan.launches)) > 1.05 * study.budget:
        click.echo(
            f"warning: {plan.num_launches} launches of each cell need at least {format_seconds(needed)}; the budget of "
            f"{format_seconds(study.budget)} is exceeded, and every launch gets its shortest windows"
        )


def _listed(names: Iterable[object]) -> str:
    return ", ".join(map(str, names))


def _check_parity(campaign: Campaign) -> None:
    """Before two frameworks are compared: do they train the same program? The reports say so if not."""
    for request in parity_gate.missing(campaign):
        click.echo(f"comparing {request.workloads[0]} in {' and '.join(request.frameworks)} ...")
        verdicts = parity_gate.ask(campaign.installation, request)
        parity_gate.keep(campaign, verdicts)
        for verdict in verdicts:
            if not verdict.passed:
                failed = ", ".join(gate.name for gate in verdict.checks if not gate.passed)
                click.echo(f"warning: {verdict.workload} is not comparable between frameworks: {failed}")


def _print_commands(campaign: Campaign, launches: list[Launch]) -> None:
    for launch in launches:
        click.echo(shlex.join(campaign.command(launch)))


def _see_to_other_programs(wait_seconds: float | None, *, gpus: bool) -> None:
    """Wait until they are quiet, if asked to; else warn if they are not."""
    if wait_seconds is not None:
        said: list[str] = []  # what keeps the machine busy changes every second; once is enough

        def tell(text: str) -> None:
            if not said:
                click.echo(
                    f"waiting for at most {format_seconds(wait_seconds)} until the machine is quiet: {text}"
                )
            said.append(text)

        wait_until_quiet(wait_seconds, gpus=gpus, tell=tell)
    elif not (load := read_other_load(gpus=gpus)).quiet:
        click.echo(
            f"warning: {load.text}; the numbers will show it. --set wait_quiet=30min waits until they are done"
        )


def _run_launches(campaign: Campaign, launches: list[Launch]) -> None:
    """Run the launches block by block; at the end of each, up to a limit, those again that other programs disturbed."""
    plan = campaign.plan
    repeats = 0 if plan.study.rules.has_training_run else math.ceil(plan.study.repeats * len(launches))
    several = plan.study.axes or plan.study.ladder
    # Of all cases: a launch whose training is done begins with another one.
    cells = (case.cell for launch in plan.launches for case in launch.cases) if several else ()
    named = named_cells(cells, settings=SETTINGS)
    with LaunchProgress(num_launches=len(launches), planned_seconds=plan.seconds(launches)) as progress:

        def run_one(launch: Launch, what: str) -> bool:
            """Whether other programs disturbed it."""
            progress.started(f"{what}, {_training_of(named[launch.cell.id] if several else launch.cell)}")
            records = run_launch(campaign, launch)
            failures = [f"{record.case.id}: {record.failure.message}" for record in records if record.failure]
            progress.finished(plan.seconds([launch]), failures)
            return any(record.good and record.disturbed for record in records)

        for index, members in groupby(launches, key=lambda launch: launch.cases[0].block):
            # Each tier of sizes has blocks of its own.
            block = f"block {index % plan.num_launches + 1}/{plan.num_launches}"
            disturbed = [launch for launch in members if run_one(launch, block)]
            for launch in disturbed[:repeats]:
                progress.more(1, plan.seconds([launch]))
                run_one(launch, f"{block} again, other programs disturbed it")
            repeats -= min(repeats, len(disturbed))


def _training_of(cell: Cell) -> str:
    if cell.control == "whole_machine":
        return f"{cell.workload} in {cell.framework}, 1 rank on all cores as a reference"
    ranks = f"{cell.num_ranks} rank{'s' if cell.num_ranks > 1 else ''}"
    name = cell.curve if isinstance(cell, NamedCell) else cell.method
    return f"{cell.workload} in {cell.framework} over {name} on {ranks}"
