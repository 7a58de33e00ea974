"""`dlscale run` for systems with a scheduler: submission there, rehearsal elsewhere.

The cost of the jobs and the precision that their blocks allow are printed before anything is submitted.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence

import click

from dlscale.base.errors import UsageError
from dlscale.benchmarks.cli.plan_table import plan_json, show_job_costs, show_plan
from dlscale.benchmarks.cli.request import Request, Start, expanded, study_of
from dlscale.benchmarks.jobs import submission
from dlscale.benchmarks.jobs.jobs import Job
from dlscale.benchmarks.launch.campaign import Campaign, open_campaign
from dlscale.benchmarks.launch.preparing import campaign_for_jobs, campaign_for_rehearsal
from dlscale.benchmarks.study.plan import Launch
from dlscale.benchmarks.study.sizes import DEFAULT_MAX_NODES
from dlscale.benchmarks.study.study import Study, load_study
from dlscale.benchmarks.systems.system import System


def rehearsal_line(system: System) -> str:
    """What every reader of a rehearsal has to know first."""
    return f"rehearsal: {system.elsewhere}; nothing is submitted and nothing was measured"


def needs_open_ports(system: System, request: Request) -> bool:
    """Whether the usual backends of the study's device exchange nothing across nodes unless open ports are allowed.

    A rehearsal opens no port, so that it goes on with them where the user neither allowed nor forbade it.
    """
    device = request.get("device") or system.default_device
    return device == "gpu" and not request.has("backends") and request.allow_open_ports is None


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


def run_as_jobs(study: Study, system: System, request: Request, how: Start) -> int:
    """Submit a study's jobs if this machine is the system, else rehearse them; or print what would be submitted."""
    is_here = system.is_here()
    results = request.results
    if is_here:
        results = submission.results_folder(system, results, named=request.has("results"))
    campaign = (campaign_for_jobs if is_here else campaign_for_rehearsal)(
        study, system, environment_name=request.environment, data=request.data, results=results
    )
    limit = submission.walltime(study, system, request.walltime)
    todo: Sequence[Launch] = campaign.plan.launches
    if is_here and not how.start:
        todo = campaign.todo()
    if how.as_json:
        click.echo(json.dumps(plan_json(campaign.plan, todo)))
        return 0
    if is_here and how.start:
        if system.needs_account and not request.account:
            raise UsageError(
                f"jobs on {system.name} need an account to charge; give --account (make: ACCOUNT=)"
            )
        account, most = request.account, request.max_node_hours
        return submit(campaign, data=request.data, account=account, limit=limit, max_node_hours=most)
    jobs: tuple[Job, ...] = ()
    try:
        jobs = _told_jobs(campaign, todo, limit)
    except UsageError as error:  # a launch that does not fit into the partition's longest job
        if is_here or request.walltime is not None:
            raise
        click.echo(f"no jobs, which {system.name} would refuse: {error}")
    submission.check_node_hours(jobs, request.max_node_hours)
    if not how.start:
        _print_scripts(campaign, jobs, request.account)
    if jobs:
        show_job_costs(campaign, jobs)
    show_plan(campaign.plan, todo)
    if how.start:
        _rehearse(campaign, jobs, request.account)
    return 0


def _rehearse(campaign: Campaign, jobs: Sequence[Job], account: str | None) -> None:
    """Predict what the study would measure, and write the jobs' scripts."""
    # Here, because predictions take longer to import than a plan takes.
    from dlscale.benchmarks.cli.rehearsal import show_rehearsal
    from dlscale.benchmarks.cli.show_predictions import put_rehearsal

    campaign.store.refuse_links()
    show_rehearsal(campaign)
    submission.write_rehearsal(campaign, jobs, account=account)
    click.echo(f"scripts and plan are in {campaign.store.folder}")
    put_rehearsal(campaign.store.folder)


def submit(
    campaign: Campaign,
    *,
    data: str | None,
    account: str | None,
    limit: float | None,
    max_node_hours: float | None,
) -> int:
    """Submit jobs for the cases that are neither done nor in a pending or running job."""
    facts = {"data": data, "account": account, "walltime": limit}
    with open_campaign(campaign, facts) as left:
        todo, first = submission.not_submitted(campaign, left)
        if not todo:
            click.echo(
                "nothing to submit: "
                + ("the remaining cases are already queued or running" if left else "all cases are done")
            )
            return 0
        jobs = _told_jobs(campaign, todo, limit, first_index=first)
        submission.check_node_hours(jobs, max_node_hours)
        show_job_costs(campaign, jobs)
        for files in submission.submit(campaign, jobs, account=account):
            click.echo(f"submitted {files.name} as job {files.id}")
    click.echo(f"records will be in {campaign.store.folder}; dlscale status shows the progress")
    return 0


def _told_jobs(
    campaign: Campaign, launches: Sequence[Launch], limit: float | None, *, first_index: int = 0
) -> tuple[Job, ...]:
    jobs, warnings = submission.jobs_of(campaign, launches, limit, first_index=first_index)
    for warning in warnings:
        click.echo(f"warning: {warning}")
    return jobs


def _print_scripts(campaign: Campaign, jobs: Sequence[Job], account: str | None) -> None:
    for job in jobs:
        click.echo(f"# {job.name}")
        click.echo(submission.job_script(campaign, job, account=account, after=None))
        click.echo("# its launches, on the first of its nodes:")
        for launch in job.launches:
            click.echo(shlex.join(campaign.command(launch)))
        click.echo()
