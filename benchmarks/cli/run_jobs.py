"""`dlscale plan` and `dlscale run` for systems with a scheduler: submission there, rehearsal elsewhere.

The cost of the jobs and the precision that their blocks allow are printed before anything is submitted.
"""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich.console import Console
from rich.table import Table

from dlscale.analysis.statistics import blocks_needed, half_width
from dlscale.analysis.text import plural
from dlscale.base.batch import scheduler
from dlscale.base.errors import UsageError
from dlscale.base.quantities import format_seconds
from dlscale.benchmarks.cli.options import say_given_up
from dlscale.benchmarks.cli.plan_table import axes_text, cases_of, counted, plan_json, show_plan
from dlscale.benchmarks.cli.request import Request, expanded, study_of
from dlscale.benchmarks.jobs import submission
from dlscale.benchmarks.jobs.jobs import Job, all_jobs, cut
from dlscale.benchmarks.jobs.submission import write_rehearsal
from dlscale.benchmarks.launch.campaign import (
    Campaign,
    abandoned_cases,
    campaign_for_jobs,
    campaign_for_rehearsal,
    open_campaign,
)
from dlscale.benchmarks.study.plan import Launch, num_comparisons
from dlscale.benchmarks.study.sizes import DEFAULT_MAX_NODES, chosen_partition
from dlscale.benchmarks.study.study import DEVICE_BACKENDS, Study, load_study
from dlscale.benchmarks.systems.system import System
from dlscale.collectives import capabilities

if TYPE_CHECKING:
    from dlscale.analysis.predict.solution import SamplesToTarget


def rehearsal_line(system: System) -> str:
    """What every reader of a rehearsal has to know first."""
    return f"rehearsal: this machine is not {system.name}; nothing is submitted and nothing was measured"


def needs_open_ports(system: System, request: Request) -> bool:
    """Whether the usual backends of the study's device exchange nothing across nodes unless open ports are allowed.

    A rehearsal opens no port, so that it goes on with them where the user neither allowed nor forbade it.
    """
    device = request.get("device") or system.default_device
    return device in DEVICE_BACKENDS and not request.has("backends") and request.allow_open_ports is None


def solution_request(name: str, system: System, request: Request) -> tuple[Request, str]:
    """The request with the study's own preset, framework and batch instead of the system's, which train here too.

    Where no sizes are named they are the usual ones that the data have enough samples for, and the text says so.
    Raises UsageError for what cannot be trained on one node.
    """
    study = load_study(name)
    own = {"preset": study.preset, "frameworks": study.frameworks, "batch": study.batch}
    changed = request.changed(fields={key: value for key, value in own.items() if not request.has(key)})
    if request.has("nodes") or request.has("ranks"):
        return changed, ""
    problem = ""
    for exponent in reversed(range(DEFAULT_MAX_NODES.bit_length())):
        nodes = [1 << power for power in range(exponent + 1)]
        smaller = changed.changed(fields={"nodes": nodes}) if problem else changed
        try:
            expanded(study_of(name, system, smaller), system, smaller)
        except UsageError as error:
            if problem and nodes == [1]:
                raise
            problem = problem or str(error)
        else:
            return smaller, f"on up to {nodes[-1]} nodes: {problem}" if problem else ""
    return changed, ""


def run_as_jobs(
    study: Study,
    system: System,
    request: Request,
    *,
    start: bool,
    commands: bool,
    as_json: bool = False,
    trained: Mapping[str, list[SamplesToTarget]] | None = None,
) -> int:
    """Plan a study's jobs, check max_node_hours, and submit them if this machine is the system.

    A rehearsal of time to solution predicts it from the samples of `trained` trainings, by workload.
    What is not started is printed: as a table, with `commands` also the scripts, or as JSON alone.
    """
    is_here = system.is_here()
    make = campaign_for_jobs if is_here else campaign_for_rehearsal
    campaign = make(
        study,
        system,
        environment_name=request.environment,
        data=request.data,
        results=_results(system, request, is_here=is_here),
    )
    limit = walltime(study, system, request.walltime)
    if as_json:
        todo = campaign.todo(campaign.store.summaries()) if is_here else campaign.plan.launches
        click.echo(json.dumps(plan_json(campaign.plan, todo)))
        return 0
    if not is_here:
        jobs = _rehearsed_jobs(campaign, limit, asked=request.walltime is not None)
        _check_node_hours(jobs, request.max_node_hours)
        if jobs:
            show_job_costs(campaign, jobs)
        show_plan(campaign.plan, campaign.plan.launches)
        if start:
            from dlscale.benchmarks.cli.rehearsal import show_bounds
            from dlscale.benchmarks.cli.rehearsal_prediction import show_prediction

            show_bounds(campaign)
            show_prediction(campaign)
            if study.target:
                from dlscale.benchmarks.cli.rehearsal_solution import show_solutions

                show_solutions(campaign, trained or {})
            write_rehearsal(campaign, jobs, account=request.account)
            click.echo(f"scripts and plan are in {campaign.store.folder}")
        elif commands:
            _print_scripts(campaign, jobs, request.account)
        return 0
    if system.needs_account and not request.account and start:
        raise UsageError(f"jobs on {system.name} need an account to charge; give --account (make: ACCOUNT=)")
    if not start:
        todo = campaign.todo(campaign.store.summaries())
        jobs = _jobs(campaign, todo, limit)
        _check_node_hours(jobs, request.max_node_hours)
        if jobs:
            show_job_costs(campaign, jobs)
        show_plan(campaign.plan, todo)
        if commands:
            _print_scripts(campaign, jobs, request.account)
        return 0
    account, most = request.account, request.max_node_hours
    return submit(campaign, data=request.data, account=account, limit=limit, max_node_hours=most)


def submit(
    campaign: Campaign,
    *,
    data: str | None,
    account: str | None,
    limit: float | None,
    max_node_hours: float | None,
    max_attempts: int | None = None,
) -> int:
    """Submit jobs for the cases that are neither done nor in a pending or running job."""
    facts = {"data": data, "account": account, "walltime": limit}
    with open_campaign(campaign, facts, max_attempts=max_attempts) as left:
        if max_attempts:
            say_given_up(abandoned_cases(campaign, left), max_attempts)
        known = all_jobs(campaign.store.folder)
        states = submission.job_states(campaign.system, known)
        busy = {
            case.id
            for job in known
            if states[job.name] in ("pending", "running")
            for launch in job.read().launches
            for case in launch.cases
        }
        todo = [launch for launch in left if not busy & {case.id for case in launch.cases}]
        if not todo:
            click.echo(
                "nothing to submit: "
                + ("the remaining cases are already queued or running" if left else "all cases are done")
            )
            return 0
        first = 1 + max((int(job.name.removeprefix("job-")) for job in known), default=-1)
        jobs = _jobs(campaign, todo, limit, first_index=first)
        _check_node_hours(jobs, max_node_hours)
        show_job_costs(campaign, jobs)
        for files in submission.submit(campaign, jobs, account=account):
            click.echo(f"submitted {files.name} as job {files.id}")
    click.echo(f"records will be in {campaign.store.folder}; dlscale status shows the progress")
    return 0


def own_nodes(campaign: Campaign) -> tuple[str, ...]:
    """The nodes of the surrounding job. Raises UsageError outside a job, or if it has too few nodes."""
    system = campaign.system
    try:
        nodes = tuple(scheduler(system.scheduler).nodes(os.environ))
    except (ValueError, OSError) as error:
        raise UsageError(
            f"--in-allocation outside a job of {system.name} ({error}); leave it out to submit jobs instead"
        ) from None
    most = max(launch.cell.num_nodes for launch in campaign.plan.launches)
    if most > len(nodes):
        raise UsageError(
            f"the job has {len(nodes)} nodes, but --nodes asks for {most}; give fewer, or start a larger job"
        )
    return nodes


def walltime(study: Study, system: System, asked: float | None) -> float | None:
    """Wall-time limit of a job in seconds: what was asked for, else the partition's; None if unknown.

    Raises UsageError.
    """
    most = chosen_partition(study, system).max_walltime
    if asked is None:
        return most.number if most else None
    if most and asked > most.number:
        raise UsageError(
            f"--walltime of {format_seconds(asked)} exceeds the limit of {most.value} on partition "
            f"{study.partition or system.partition} of {system.name}; ask for less, or choose another --partition"
        )
    return asked


def _results(system: System, request: Request, *, is_here: bool) -> Path:
    """The system's results folder unless --results names one; a rehearsal stays here. Raises UsageError."""
    if not is_here or request.has("results") or not system.filesystem:
        return request.results
    path = os.path.expandvars(system.filesystem.results)
    if "$" in path:
        raise UsageError(
            f"results on {system.name} belong in {system.filesystem.results}, but that variable is not set; "
            "set it, or give --results"
        )
    return Path(path)


def _jobs(
    campaign: Campaign, launches: Sequence[Launch], limit: float | None, *, first_index: int = 0
) -> tuple[Job, ...]:
    if not launches:
        return ()
    system = campaign.system
    partition = chosen_partition(campaign.plan.study, system)
    most = (partition.max_nodes or partition.num_nodes).value
    for launch in launches:
        if launch.cell.num_nodes > most:
            raise UsageError(
                f"{launch.cell.num_ranks} ranks with {launch.cell.num_servers} servers need {launch.cell.num_nodes} "
                f"nodes of {system.name}, which allows {most} per job; ask for fewer"
            )
    least = partition.min_nodes.value if partition.min_nodes else 1
    jobs, warnings = cut(
        campaign.plan, launches, system.policy, limit=limit, min_nodes=least, first_index=first_index
    )
    if limit is None:
        warnings = (*warnings, "the partition's wall-time limit is unknown; set one with --walltime")
    for warning in (*campaign.plan.warnings, *warnings):
        click.echo(f"warning: {warning}")
    return jobs


def _rehearsed_jobs(campaign: Campaign, limit: float | None, *, asked: bool) -> tuple[Job, ...]:
    """The jobs; none, with a line why, where a launch does not fit into the partition's longest job.

    Raises UsageError where a shorter limit was asked for.
    """
    try:
        return _jobs(campaign, campaign.plan.launches, limit)
    except UsageError as error:
        if asked:
            raise
        click.echo(f"no jobs, which {campaign.system.name} would refuse: {error}")
        return ()


def _check_node_hours(jobs: Sequence[Job], most: float | None) -> None:
    billed = sum(job.billed_node_hours for job in jobs)
    if most is not None and billed > most:
        raise UsageError(
            f"these jobs may be billed {billed:.1f} node-hours, more than max_node_hours = {most:g}; use fewer "
            "nodes, launches or backends, or a smaller --budget"
        )


def _print_scripts(campaign: Campaign, jobs: Sequence[Job], account: str | None) -> None:
    for job in jobs:
        click.echo(f"\n# {job.name}")
        click.echo(submission.job_script(campaign, job, account=account, after=None))
        click.echo("# its launches, on the first of its nodes:")
        for launch in job.launches:
            click.echo(shlex.join(campaign.command(launch)))


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
    if axes := axes_text(plan):
        click.echo(axes)
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
    verdict = "enough" if plan.num_launches >= needed else f"too few: give --launches {needed}"
    compared = f"backends with {exchanging[0]}"
    if plan.study.axes or plan.study.ladder:
        compared = "curves" if plan.study.axes else "steps with the ones before"
    click.echo(
        f"{plural(comparisons, 'comparison')} of {compared}, over all numbers of ranks: at least "
        f"{needed} blocks are needed, {verdict}"
    )
