"""A study as jobs of a system's scheduler: their scripts, what they cost, and submitting them."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import click

from dlscale.base.errors import UsageError
from dlscale.base.quantities import format_seconds
from dlscale.benchmarks.cli import say, show_table
from dlscale.benchmarks.cli.plan_table import say_plan
from dlscale.benchmarks.jobs import submission
from dlscale.benchmarks.jobs.jobs import Job, cut
from dlscale.benchmarks.launch.campaign import Campaign, open_campaign
from dlscale.benchmarks.study.plan import Launch


def jobs_of(
    campaign: Campaign,
    launches: Sequence[Launch],
    limit: float | None,
    *,
    max_node_hours: float | None,
    first_index: int = 0,
) -> tuple[Job, ...]:
    """The jobs of those launches; prints what they measure, and warnings. Raises UsageError if they cost more."""
    jobs, warnings = cut(campaign.plan, launches, campaign.system, limit=limit, first_index=first_index)
    submission.check_node_hours(jobs, max_node_hours)
    say_plan(campaign, launches)
    for warning in warnings:
        say(f"warning: {warning}")
    return jobs


def show_commands(campaign: Campaign, launches: Iterable[Launch]) -> None:
    """Print the exact command line of each launch."""
    for launch in launches:
        click.echo(shlex.join(campaign.command(launch)))


def show_scripts(campaign: Campaign, jobs: Sequence[Job], *, account: str | None) -> None:
    """Print each job's script, and the command lines of its launches."""
    for job in jobs:
        click.echo(f"# {job.name}")
        click.echo(submission.job_script(campaign, job, account=account))
        click.echo("# its launches, on the first of its nodes:")
        show_commands(campaign, job.launches)
        click.echo()


def show_costs(campaign: Campaign, jobs: Sequence[Job]) -> None:
    """Print each job's wall time and node-hours."""
    plan, rows, total, billed = campaign.plan, list[tuple[object, ...]](), 0.0, 0.0
    for job in jobs:
        used = sum(launch.cell.num_nodes * plan.seconds([launch]) / 3600 for launch in job.launches)
        total, billed = total + used, billed + job.billed_node_hours
        size = job.num_nodes, len(job.launches), format_seconds(job.seconds)
        rows.append((job.name, *size, f"{used:.2f}", f"{job.billed_node_hours:.2f}"))
    rows.append(("all", "", "", "", f"{total:.2f}", f"{billed:.2f}"))
    show_table(("job", "nodes", "launches", "wall time", "node-hours used", "billed"), rows, words=("job",))


def submit(campaign: Campaign, facts: Mapping[str, Any], *, max_node_hours: float | None) -> int:
    """Submit jobs for the cases that are neither done nor in a pending or running job. Raises UsageError.

    The `facts` of study.json have the data, the account and the wall time per job.
    """
    account = facts["account"]
    if campaign.system.needs_account and not account:
        raise UsageError(
            f"jobs on {campaign.system.name} need an account to charge; give --account (make: ACCOUNT=)"
        )
    with open_campaign(campaign, facts) as left:
        todo, first = submission.not_submitted(campaign, left)
        if not todo:
            why = "the remaining cases are already queued or running" if left else "all cases are done"
            say(f"nothing to submit: {why}")
            return 0
        jobs = jobs_of(campaign, todo, facts["walltime"], max_node_hours=max_node_hours, first_index=first)
        show_costs(campaign, jobs)
        for files in submission.submit(campaign, jobs, account=account):
            say(f"submitted {files.name} as job {files.id}")
    say(f"records will be in {campaign.store.folder}; dlscale status shows the progress")
    return 0
