"""`dlscale run`: a study is planned, and printed, run here, submitted or rehearsed."""

from __future__ import annotations

import json
from dataclasses import replace

import click
import rich_click

from dlscale.base.errors import UsageError
from dlscale.benchmarks.cli import run_jobs
from dlscale.benchmarks.cli.plan_table import plan_json
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
from dlscale.benchmarks.cli.run_here import campaign_of, run_here, show_campaign
from dlscale.benchmarks.jobs.submission import own_nodes
from dlscale.benchmarks.study.study import Study, load_study
from dlscale.benchmarks.systems.system import System


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
    help="Print the exact commands and scripts, then cells, launches, time and node-hours; start nothing.",
)
@rich_click.option("--json", "as_json", panel="Output", is_flag=True, help="The cells of --dry-run as JSON.")
def run(study: str, request: Request, dry_run: bool, as_json: bool, in_allocation: bool) -> int:
    """Run STUDY (a name or a .toml file), print one screen about it, and draw its figures and page.

    On a system with a scheduler its jobs are submitted; anywhere else that system is rehearsed. The same command
    resumes an interrupted study. Failed cases are tried again.

    \b
    Examples:
      dlscale run weak-scaling --backends none,ring --budget 2min
      dlscale run weak-scaling --system cori --nodes 1:64:x2 --dry-run
      dlscale run weak-scaling --system cori --nodes 1,2,4 --account m1234 --set max_node_hours=20
      dlscale run time-to-solution --target auc=0.98 --set momentum=0.9
    """  # noqa: D301
    if as_json and not dry_run:
        raise UsageError(
            "--json without --dry-run, whose cells it prints; add --dry-run, or see: dlscale report --json"
        )
    return plan_and_run(
        study, request, Start(start=not dry_run, as_json=as_json, in_allocation=in_allocation)
    )


def plan_and_run(name: str, request: Request, how: Start) -> int:
    """Plan a study and run it if it is to start; returns the exit status. Raises UsageError."""
    system = system_of(request)
    if how.in_allocation and system.state == "retired":
        raise UsageError(f"--in-allocation, but {system.elsewhere}; leave it out: the study is rehearsed")
    if system.has_jobs and not how.in_allocation:
        return _as_jobs(name, system, request, how)
    study = study_of(name, system, request)
    request = _introduced(study, system, request, how)
    campaign = campaign_of(study, system, request)
    if how.in_allocation:
        campaign = replace(campaign, nodes=own_nodes(campaign))
    if how.start:
        return run_here(campaign, request)
    todo = campaign.todo()
    if how.as_json:
        click.echo(json.dumps(plan_json(campaign.plan, todo)))
    else:
        show_campaign(campaign, todo)
    return 0


def _as_jobs(name: str, system: System, request: Request, how: Start) -> int:
    """Submit the study's jobs on their system, or rehearse them elsewhere."""
    rehearsed = not system.is_here()
    open_ports = rehearsed and run_jobs.needs_open_ports(system, request)
    if open_ports:
        request = request.changed(allow_open_ports=True)
    smaller = ""
    if rehearsed and load_study(name).target is not None:
        request, smaller = run_jobs.solution_request(name, system, request)
    study = study_of(name, system, request)
    if rehearsed and not how.as_json:
        click.echo(run_jobs.rehearsal_line(system))
        if smaller:
            click.echo(smaller)
        if open_ports:
            click.echo(
                f"rehearsed as if allow_open_ports=yes were set; on {system.name} add --set allow_open_ports=yes: its "
                "GPU backends need it beyond one node"
            )
    request = _introduced(study, system, request, how)
    return run_jobs.run_as_jobs(study, system, request, how)


def _introduced(study: Study, system: System, request: Request, how: Start) -> Request:
    """Print what the system adds to what was asked for; gives back the request with its data."""
    if not how.as_json and (line := own_defaults(study, system, request)):
        click.echo(line)
    return request.changed(data=data_of(system, request))
