"""`dlscale run`: a study is planned, and run here, submitted or rehearsed."""

from __future__ import annotations

import click
import rich_click

from dlscale.base.errors import UsageError
from dlscale.benchmarks.cli import loading
from dlscale.benchmarks.cli.completion import completed_study
from dlscale.benchmarks.cli.request import Request, StudyCommand, study_options, system_of


@click.command(cls=StudyCommand)
@click.argument("study", shell_complete=completed_study)
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
    system = system_of(request)
    if in_allocation and system.state == "retired":
        raise UsageError(f"--in-allocation, but {system.elsewhere}; leave it out: the study is rehearsed")
    with loading():  # here, because a shell that completes an option does not wait for it
        from dlscale.benchmarks.cli.run_here import plan_and_run
        from dlscale.benchmarks.cli.run_jobs import run_as_jobs
    if system.has_jobs and not in_allocation:
        return run_as_jobs(study, system, request, dry_run=dry_run, as_json=as_json)
    return plan_and_run(study, system, request, dry_run=dry_run, as_json=as_json, in_allocation=in_allocation)
