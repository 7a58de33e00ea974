"""`dlscale plan` and `dlscale run`: the plan of a study is printed, and its launches run here."""

from __future__ import annotations

import shlex
import signal
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from dlscale.base.errors import UsageError
from dlscale.base.quantities import format_seconds
from dlscale.benchmarks.cli import FAILED_CASES, NOT_COMPARABLE, run_jobs
from dlscale.benchmarks.cli.options import say_given_up, study_of, study_options
from dlscale.benchmarks.cli.progress import LaunchProgress
from dlscale.benchmarks.launch import parity_gate
from dlscale.benchmarks.launch.campaign import (
    Campaign,
    abandoned_cases,
    open_campaign,
    prepare_campaign,
    run_launch,
)
from dlscale.benchmarks.study.plan import Launch
from dlscale.benchmarks.systems.system import load_system


@click.command()
@click.argument("study")
@study_options
def plan(study: str, **options: Any) -> int:
    """Print what STUDY would run: launches in order, jobs and node-hours, estimated time. Starts nothing.

    \b
    Examples:
      dlscale plan strong-scaling --ranks 1,2
      dlscale plan weak-scaling --system cori --nodes 1:64:x2
    """  # noqa: D301
    return _run(study, options, start=False)


@click.command()
@click.argument("study")
@study_options
@click.option("--dry-run", is_flag=True, help="Print the exact commands and scripts, and start nothing.")
@click.option(
    "--in-allocation", is_flag=True, help="Use the nodes of the job that this runs in; submit nothing."
)
@click.option(
    "--compatibility-lines", is_flag=True, help="At the end print the lines that site harnesses look for."
)
def run(study: str, dry_run: bool, in_allocation: bool, compatibility_lines: bool, **options: Any) -> int:
    """Run STUDY (weak-scaling, strong-scaling or a .toml file), print one screen about it and draw its figures.

    On a system with a scheduler its jobs are submitted; anywhere else that system is rehearsed. The same command
    resumes an interrupted study. Failed cases are tried again.

    \b
    Examples:
      dlscale run weak-scaling
      dlscale run weak-scaling --backends none,ring --budget 2min --results /scratch/results
      dlscale run weak-scaling --system cori --nodes 1,2,4 --account m1234 --max-node-hours 20
      dlscale run weak-scaling --dry-run
    """  # noqa: D301
    return _run(
        study,
        options,
        start=not dry_run,
        in_allocation=in_allocation,
        compatibility_lines=compatibility_lines,
    )


def _run(
    name: str,
    options: dict[str, Any],
    *,
    start: bool,
    in_allocation: bool = False,
    compatibility_lines: bool = False,
) -> int:
    system = load_system(options["system"])
    study = study_of(name, system, options)
    if system.scheduler != "none" and not in_allocation:
        if compatibility_lines:
            raise UsageError(
                "--compatibility-lines of jobs that are only submitted; use dlscale export lines later"
            )
        return run_jobs.run_as_jobs(study, system, options, start=start)
    campaign = prepare_campaign(
        study,
        system,
        environment_name=options["environment"],
        data=options["data"],
        results=Path(options["results"]),
    )
    if in_allocation:
        campaign = replace(campaign, nodes=run_jobs.own_nodes(campaign))
    if not start:
        _print_plan(campaign, campaign.todo(campaign.store.summaries()))
        _print_commands(campaign)
        return 0
    # A batch system asks a job to end by SIGTERM: that is a Ctrl-C, and its ranks and records are seen to.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    return run_here(campaign, data=options["data"], compatibility_lines=compatibility_lines)


def run_here(
    campaign: Campaign,
    *,
    data: str | None,
    max_attempts: int | None = None,
    compatibility_lines: bool = False,
) -> int:
    """Run what is left of a campaign on this machine, print one screen about the study and draw its figures."""
    with open_campaign(campaign, {"data": data}, max_attempts=max_attempts) as launches:
        _print_plan(campaign, launches)
        if max_attempts:
            say_given_up(abandoned_cases(campaign, launches), max_attempts)
        _check_parity(campaign)
        _run_launches(campaign, launches)
    from dlscale.benchmarks.cli.report import show_study

    status = show_study(campaign.store)
    if compatibility_lines:
        from dlscale.benchmarks.cli.export_formats import show_lines

        show_lines(campaign.store.folder)
    done = campaign.store.finished()
    planned = {case.id for launch in campaign.plan.launches for case in launch.cases}
    if planned - done:
        return FAILED_CASES
    return NOT_COMPARABLE if status == NOT_COMPARABLE else 0


def _print_plan(campaign: Campaign, todo: list[Launch]) -> None:
    """What is measured, how many launches are left, about how long they take, and where the records go."""
    plan, study = campaign.plan, campaign.plan.study
    cells = [launch.cell for launch in plan.launches]
    ranks = sorted({cell.num_ranks for cell in cells})
    backends = [name for name in study.backends if name in {cell.backend for cell in cells}]
    cores = plan.launches[0].cell.cores_per_rank
    click.echo(
        f"{study.title} of {_listed(study.workloads)} in {_listed(study.frameworks)} over {_listed(backends)} on "
        f"{_listed(ranks)} rank{'s' * (ranks != [1])}, {cores} of {plan.num_cores} cores per rank"
    )
    done = len(plan.launches) - len(todo)
    already = f" ({done} are done already)" if done else ""
    click.echo(
        f"{len(todo)} to run of {len(plan.launches)} launches{already}, about "
        f"{format_seconds(plan.seconds(todo))}, on {campaign.system.title} with {campaign.installation.name} "
        f"({campaign.fingerprint.versions.get('mpi', 'MPI')})"
    )
    click.echo(f"records: {campaign.store.folder}")
    for warning in plan.warnings:
        click.echo(f"warning: {warning}")
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
        click.echo(f"comparing {request.workloads[0]} in both frameworks ...")
        verdicts = parity_gate.ask(campaign.installation, request)
        parity_gate.keep(campaign, verdicts)
        for verdict in verdicts:
            if not verdict.passed:
                failed = ", ".join(gate.name for gate in verdict.checks if not gate.passed)
                click.echo(f"warning: {verdict.workload} is not comparable between frameworks: {failed}")


def _print_commands(campaign: Campaign) -> None:
    for launch in campaign.plan.launches:
        click.echo(shlex.join(campaign.command(launch)))


def _run_launches(campaign: Campaign, launches: list[Launch]) -> None:
    plan = campaign.plan
    with LaunchProgress(num_launches=len(launches), planned_seconds=plan.seconds(launches)) as progress:
        for launch in launches:
            cell = launch.cell
            # Each tier of sizes has blocks of its own.
            block = launch.cases[0].block % plan.num_launches
            progress.started(
                f"block {block + 1}/{plan.num_launches}, {cell.workload} in {cell.framework} over {cell.backend} "
                f"on {cell.num_ranks} rank{'s' if cell.num_ranks > 1 else ''}"
            )
            records = run_launch(campaign, launch)
            progress.finished(
                plan.seconds([launch]),
                [f"{record.case.id}: {record.failure.message}" for record in records if record.failure],
            )
