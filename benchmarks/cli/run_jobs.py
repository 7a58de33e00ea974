"""`dlscale run` for systems with a scheduler: submission there, rehearsal elsewhere.

The cost of the jobs and the precision that their blocks allow are printed before anything is submitted.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence

import click

from dlscale.base.errors import UsageError
from dlscale.base.redaction import redact
from dlscale.benchmarks.cli.plan_table import show_job_costs, show_plan
from dlscale.benchmarks.cli.request import Request, data_of, study_of
from dlscale.benchmarks.cli.run_here import say_json, with_defaults
from dlscale.benchmarks.cli.streams import say
from dlscale.benchmarks.jobs import submission
from dlscale.benchmarks.jobs.jobs import Job
from dlscale.benchmarks.launch.campaign import Campaign, open_campaign
from dlscale.benchmarks.launch.preparing import campaign_for_jobs, campaign_for_rehearsal
from dlscale.benchmarks.study.expand import plan_on
from dlscale.benchmarks.study.plan import Launch
from dlscale.benchmarks.study.sizes import DEFAULT_MAX_NODES
from dlscale.benchmarks.study.study import load_study
from dlscale.benchmarks.systems.system import System


def run_as_jobs(name: str, system: System, request: Request, *, dry_run: bool, as_json: bool) -> int:
    """Submit a study's jobs, rehearse them where this is not their system, or print them. Raises UsageError."""
    here = system.is_here()
    lines: list[str] = []
    missing: list[str] = []  # of the command that would submit the same on the system
    if not here:
        request, lines, missing = _rehearsed(name, system, request)
    study = study_of(name, system, request)
    for line in [] if as_json else lines:
        say(line)
    request = with_defaults(study, system, request, quiet=as_json)
    results = request.results
    if here:
        results = submission.results_folder(system, results, named=request.has("results"))
    campaign = (campaign_for_jobs if here else campaign_for_rehearsal)(
        study, system, environment_name=request.environment, data=request.data, results=results
    )
    limit = submission.walltime(study, system, request.walltime)
    account, most = request.account, request.max_node_hours
    if here and not dry_run:
        if system.needs_account and not account:
            raise UsageError(
                f"jobs on {system.name} need an account to charge; give --account (make: ACCOUNT=)"
            )
        return submit(campaign, data=request.data, account=account, limit=limit, max_node_hours=most)
    todo = campaign.todo()
    if as_json:
        say_json(campaign, todo)
        return 0
    jobs: tuple[Job, ...] = ()
    try:
        jobs = _jobs(campaign, todo, limit)
    except UsageError as error:  # a launch that does not fit into the partition's longest job
        if here or request.walltime is not None:
            raise
        say(f"no jobs, which {system.name} would refuse: {error}")
    submission.check_node_hours(jobs, most)
    if dry_run:
        _print_scripts(campaign, jobs, account)
    if jobs:
        show_job_costs(campaign, jobs)
    show_plan(campaign.plan, todo)
    if not dry_run:
        _predict(campaign, jobs, account, missing)
    return 0


def _rehearsed(name: str, system: System, request: Request) -> tuple[Request, list[str], list[str]]:
    """The request that is rehearsed, what to say of it, and what its command lacks on the system."""
    lines = [f"rehearsal: {system.elsewhere}; nothing is submitted and nothing was measured"]
    missing = ["--account", "ACCOUNT"] if system.needs_account and not request.account else []
    device = request.get("device") or system.default_device
    if device == "gpu" and not request.has("backends") and request.allow_open_ports is None:
        # A rehearsal opens no port, and without them the usual backends of GPUs exchange nothing across nodes.
        request = request.changed(allow_open_ports=True)
        missing += ["--set", "allow_open_ports=yes"]
        lines.append(
            f"rehearsed as if allow_open_ports=yes were set; on {system.name} add --set allow_open_ports=yes: its GPU "
            "backends need it beyond one node"
        )
    if load_study(name).target is not None:
        before = request
        request, line = _solution_request(name, system, request)
        lines += filter(None, [line])
        for field, value in request.fields.items():
            if value is not None and field not in before.fields:
                missing += [
                    f"--{field}",
                    ",".join(map(str, value)) if isinstance(value, list) else str(value),
                ]
    return request, lines, missing


def _predict(campaign: Campaign, jobs: Sequence[Job], account: str | None, missing: Sequence[str]) -> None:
    """Predict what the study would measure, and write the jobs' scripts and the page."""
    from dlscale.benchmarks.cli.predictions import put_rehearsal
    from dlscale.benchmarks.cli.rehearsal import show_rehearsal

    command = redact(shlex.join(["dlscale", *sys.argv[1:], *missing]))
    campaign.store.refuse_links()
    show_rehearsal(campaign, command)
    rows = submission.write_rehearsal(campaign, jobs, command, account=account)
    store = campaign.store
    say(f"scripts and plan are in {store.folder}")
    put_rehearsal(store.folder, store.figures_folder, command=command, jobs=rows)


def _print_scripts(campaign: Campaign, jobs: Sequence[Job], account: str | None) -> None:
    for job in jobs:
        click.echo(f"# {job.name}")
        click.echo(submission.job_script(campaign, job, account=account))
        click.echo("# its launches, on the first of its nodes:")
        for launch in job.launches:
            click.echo(shlex.join(campaign.command(launch)))
        click.echo()


def _solution_request(name: str, system: System, request: Request) -> tuple[Request, str]:
    """The request with the study's own preset, framework and batch instead of the system's, which train here too.

    Where no sizes are named they are the usual ones that the data have enough samples for, and the text says so.
    Raises UsageError for what cannot be trained on one node.
    """
    study = load_study(name)
    own = {"preset": study.preset, "frameworks": study.frameworks, "batch": study.batch}
    changed = request.changed(fields={key: value for key, value in own.items() if not request.has(key)})
    if request.has("nodes") or request.has("ranks"):
        return changed, ""
    problem, smaller, most = "", changed, DEFAULT_MAX_NODES
    while True:
        try:
            data = data_of(system, smaller)
            plan_on(study_of(name, system, smaller), system, environment="", data=data)
        except UsageError as error:
            if problem and most == 1:
                raise
            problem, most = problem or str(error), most // 2 if problem else most
        else:
            return smaller, f"on up to {most} nodes: {problem}" if problem else ""
        smaller = changed.changed(fields={"nodes": [1 << power for power in range(most.bit_length())]})


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
            why = "the remaining cases are already queued or running" if left else "all cases are done"
            say(f"nothing to submit: {why}")
            return 0
        jobs = _jobs(campaign, todo, limit, first_index=first)
        submission.check_partition(campaign, jobs)
        submission.check_node_hours(jobs, max_node_hours)
        show_job_costs(campaign, jobs)
        for files in submission.submit(campaign, jobs, account=account):
            say(f"submitted {files.name} as job {files.id}")
    say(f"records will be in {campaign.store.folder}; dlscale status shows the progress")
    return 0


def _jobs(
    campaign: Campaign, launches: Sequence[Launch], limit: float | None, *, first_index: int = 0
) -> tuple[Job, ...]:
    """The jobs of those launches; prints what there is to warn of."""
    jobs, warnings = submission.jobs_of(campaign, launches, limit, first_index=first_index)
    for warning in warnings:
        say(f"warning: {warning}")
    return jobs
