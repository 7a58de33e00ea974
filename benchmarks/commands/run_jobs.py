"""`dlscale plan` and `dlscale run` on systems with a scheduler: jobs are submitted there, and rehearsed elsewhere."""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from dlscale.benchmarks import submission
from dlscale.benchmarks.campaign import Campaign
from dlscale.benchmarks.commands import job_table
from dlscale.benchmarks.commands.options import say_given_up
from dlscale.benchmarks.job_files import all_jobs
from dlscale.benchmarks.jobs import JobPlan, cut
from dlscale.benchmarks.plan import Launch
from dlscale.benchmarks.rehearse import write_rehearsal
from dlscale.benchmarks.runner import for_jobs, given_up, opened, rehearsal
from dlscale.benchmarks.schedulers import scheduler
from dlscale.benchmarks.sizes import chosen_partition
from dlscale.benchmarks.study import Study
from dlscale.benchmarks.system import System
from dlscale.benchmarks.units import parse_seconds
from dlscale.models.errors import UsageError


def run(study: Study, system: System, options: dict[str, Any], *, start: bool) -> int:
    """Plan a study's jobs, refuse what is too dear, and submit them if this machine is the system."""
    is_here = system.is_here()
    make = for_jobs if is_here else rehearsal
    campaign = make(
        study,
        system,
        environment_name=options["environment"],
        data=options["data"],
        results=_results(system, options["results"], is_here=is_here),
    )
    limit = walltime(study, system, options["walltime"])
    if not is_here:
        jobs = _jobs(campaign, campaign.plan.launches, limit)
        _check_node_hours(jobs, options["max_node_hours"])
        click.echo(
            f"rehearsal: this machine is not {system.name}. Nothing is submitted, and nothing was measured."
        )
        job_table.show(campaign, jobs)
        if start:
            from dlscale.benchmarks.commands.rehearsal_bounds import show_bounds

            show_bounds(campaign)
            write_rehearsal(campaign, jobs, account=options["account"])
            click.echo(f"scripts and plan are in {campaign.store.folder}")
        else:
            _print_scripts(campaign, jobs, options["account"])
        return 0
    if system.needs_account and not options["account"] and start:
        raise UsageError(f"{system.name} charges its jobs to an account; give --account (make: ACCOUNT=)")
    if not start:
        jobs = _jobs(campaign, campaign.todo(campaign.store.summaries()), limit)
        _check_node_hours(jobs, options["max_node_hours"])
        job_table.show(campaign, jobs)
        _print_scripts(campaign, jobs, options["account"])
        return 0
    account, most = options["account"], options["max_node_hours"]
    return submit(campaign, data=options["data"], account=account, limit=limit, max_node_hours=most)


def submit(
    campaign: Campaign,
    *,
    data: str | None,
    account: str | None,
    limit: float | None,
    max_node_hours: float | None,
    max_attempts: int | None = None,
) -> int:
    """Submit jobs for what is neither done nor in a job that waits or runs."""
    facts = {"data": data, "account": account, "walltime": limit}
    with opened(campaign, facts, max_attempts=max_attempts) as left:
        if max_attempts:
            say_given_up(given_up(campaign, left), max_attempts)
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
                + ("all that is left is in jobs that wait or run" if left else "all cases are done")
            )
            return 0
        first = 1 + max((int(job.name.removeprefix("job-")) for job in known), default=-1)
        jobs = _jobs(campaign, todo, limit, first_index=first)
        _check_node_hours(jobs, max_node_hours)
        job_table.show(campaign, jobs)
        for files in submission.submit(campaign, jobs, account=account):
            click.echo(f"submitted {files.name} as job {files.id}")
    click.echo(f"records will be in {campaign.store.folder}; dlscale status shows how far they are")
    return 0


def own_nodes(campaign: Campaign) -> tuple[str, ...]:
    """The nodes of the job that this runs in. Raises UsageError outside one, and if they are too few."""
    system = campaign.system
    try:
        nodes = tuple(scheduler(system.scheduler).nodes(os.environ))
    except (ValueError, OSError) as error:
        raise UsageError(
            f"--in-allocation outside a job of {system.name} ({error}); leave it out, and jobs are submitted"
        ) from None
    most = max(launch.cell.num_nodes for launch in campaign.plan.launches)
    if most > len(nodes):
        raise UsageError(f"{most} nodes asked for in a job that has {len(nodes)}; give fewer --nodes")
    return nodes


def walltime(study: Study, system: System, asked: str | None) -> float | None:
    """Seconds that a job may have: as asked, else the partition's limit, else unknown. Raises UsageError."""
    most = chosen_partition(study, system).max_walltime
    if asked is None:
        return most.number if most else None
    try:
        seconds = parse_seconds(asked)
    except ValueError as error:
        raise UsageError(f"--walltime: {error}") from None
    if most and seconds > most.number:
        raise UsageError(
            f"--walltime {asked} on {system.name}, whose partition {study.partition or system.partition} gives a job "
            f"{most.value}; ask for less, or for another partition"
        )
    return seconds


def _results(system: System, results: Path, *, is_here: bool) -> Path:
    """The system's own place for results, unless another was asked for; a rehearsal stays here. Raises UsageError."""
    source = click.get_current_context().get_parameter_source("results")
    if not is_here or source is not ParameterSource.DEFAULT or not system.filesystem:
        return results
    path = os.path.expandvars(system.filesystem.results)
    if "$" in path:
        raise UsageError(
            f"{system.name} keeps results in {system.filesystem.results}, and that variable is not set; "
            "set it, or give --results"
        )
    return Path(path)


def _jobs(
    campaign: Campaign, launches: Sequence[Launch], limit: float | None, *, first_index: int = 0
) -> tuple[JobPlan, ...]:
    if not launches:
        return ()
    system = campaign.system
    partition = chosen_partition(campaign.plan.study, system)
    most = (partition.max_nodes or partition.num_nodes).value
    for launch in launches:
        if launch.cell.num_nodes > most:
            raise UsageError(
                f"{launch.cell.num_ranks} ranks with {launch.cell.num_servers} servers need {launch.cell.num_nodes} "
                f"nodes of {system.name}, which gives a job {most}; ask for fewer"
            )
    least = partition.min_nodes.value if partition.min_nodes else 1
    jobs, warnings = cut(
        campaign.plan, launches, system.policy, limit=limit, min_nodes=least, first_index=first_index
    )
    if limit is None:
        warnings = (*warnings, "the partition's wall-time limit is not known; --walltime gives one")
    for warning in (*campaign.plan.warnings, *warnings):
        click.echo(f"warning: {warning}")
    return jobs


def _check_node_hours(jobs: Sequence[JobPlan], most: float | None) -> None:
    billed = sum(job.billed_node_hours for job in jobs)
    if most is not None and billed > most:
        raise UsageError(
            f"these jobs may be billed {billed:.1f} node-hours, more than --max-node-hours {most:g}; ask for fewer "
            "nodes, launches or backends, or for a smaller budget"
        )


def _print_scripts(campaign: Campaign, jobs: Sequence[JobPlan], account: str | None) -> None:
    for job in jobs:
        click.echo(f"\n# {job.name}")
        click.echo(submission.script(campaign, job, account=account, after=None))
        click.echo("# its launches, on the first of its nodes:")
        for launch in job.launches:
            click.echo("# " + shlex.join(campaign.command(launch)))
