"""`dlscale run`: a study is planned, and run here, submitted, rehearsed, or printed."""

from __future__ import annotations

import json
import shlex
import statistics
import sys
import time
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click
import rich_click

from dlscale.base.quantities import format_seconds
from dlscale.base.schedulers import job_nodes
from dlscale.base.strings import plural, redact
from dlscale.benchmarks.cli import FAILED_CASES, INSUFFICIENT_DATA, say
from dlscale.benchmarks.cli.options import Request, field_options, study_of, system_of

if TYPE_CHECKING:
    from dlscale.benchmarks.launch.campaign import Campaign


@rich_click.command()
@click.argument("study")
@field_options()
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
@rich_click.option(
    "--json", "as_json", panel="Output", is_flag=True, help="Print the cells of --dry-run as JSON."
)
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
    # Here, because the help does not wait for them.
    from dlscale.benchmarks.cli import plan_table, run_jobs
    from dlscale.benchmarks.jobs import submission
    from dlscale.benchmarks.launch.campaign import Where, prepare_campaign

    system = system_of(request)
    here = in_allocation or not system.has_jobs
    rehearsed = not here and not system.is_here()
    if rehearsed:
        say(f"rehearsal: {system.elsewhere}; nothing is submitted and nothing was measured", err=as_json)
        device = request.fields.get("device") or system.default_device
        if device == "gpu" and request.allow_open_ports is None:  # a rehearsal opens none
            request = request.model_copy(update={"allow_open_ports": True})
            say(
                "rehearsed with --set allow_open_ports=yes, which GPU backends need across nodes", err=as_json
            )
    (planned, data), results = study_of(study, system, request), request.results
    where: Where = "here" if here else "rehearsal" if rehearsed else "jobs"
    if where == "jobs":
        results = submission.results_folder(system, results, named="results" in request.model_fields_set)
    campaign = prepare_campaign(
        planned, system, where=where, environment_name=request.environment, data=data, results=results
    )
    if in_allocation:
        fewest = max(launch.cell.num_nodes for launch in campaign.plan.launches)
        remedy = "leave --in-allocation out to submit jobs instead"
        campaign = replace(campaign, nodes=job_nodes(system.scheduler, fewest=fewest, remedy=remedy))
    dry_run = dry_run or as_json
    facts: dict[str, Any] = {"data": data}
    if here and not dry_run:
        return run_here(campaign, facts)
    limit, account, most = request.walltime, request.account, request.max_node_hours
    if not (dry_run or rehearsed):
        facts |= {"account": account, "walltime": limit}
        return run_jobs.submit(campaign, facts, max_node_hours=most)
    todo = campaign.todo()
    if as_json:
        click.echo(json.dumps({"schema": 1, "rows": plan_table.planned_rows(campaign.plan, todo)}))
        return 0
    if here:
        run_jobs.show_commands(campaign, todo)
        plan_table.say_plan(campaign, todo)
        plan_table.show_plan(campaign, todo)
        return 0
    jobs = run_jobs.jobs_of(campaign, todo, limit, max_node_hours=most)
    if dry_run:
        run_jobs.show_scripts(campaign, jobs, account=account)
    run_jobs.show_costs(campaign, jobs)
    plan_table.show_plan(campaign, todo)
    if not dry_run:
        from dlscale.benchmarks.cli.rehearsal import rehearse  # with figures, which take long to import

        command = redact(shlex.join(["dlscale", *sys.argv[1:]]))
        rehearse(campaign, jobs, command, account=account)
    return 0


def run_here(campaign: Campaign, facts: Mapping[str, Any]) -> int:
    """Run what is left of a campaign, print one screen about the study and draw figures; study.json has the `facts`.

    A line says which launch runs, and the time left; each launch has a line where none can be drawn again.
    """
    # Here, because the help does not wait for them.
    from rich.console import Console
    from rich.text import Text

    from dlscale.benchmarks.cli.plan_table import say_plan
    from dlscale.benchmarks.launch.campaign import open_campaign

    plan, console = campaign.plan, Console()
    paces: list[float] = []  # seconds over planned seconds of what has ended
    with open_campaign(campaign, facts) as launches:
        say_plan(campaign, launches)
        say(f"records: {campaign.store.folder}")
        planned = [plan.seconds([launch]) for launch in launches]
        drawn = console.is_terminal and not console.is_dumb_terminal
        # Drawing takes time from ranks that use every core: 0.5 ms.
        with console.status("", refresh_per_second=1.0) if drawn else nullcontext() as status:
            for number, launch in enumerate(launches):
                cell = launch.cell
                left = statistics.median(paces or [1.0]) * sum(planned[number:])
                settings = cell.backend_options | cell.algorithm_options
                options = (f"{name}={value}" for name, value in settings.items())
                label = ", ".join([cell.workload, cell.framework, cell.method, *options])
                line = Text(
                    f"{number} of {len(launches)} launches, {format_seconds(left)} left; block "
                    # Each tier of sizes has blocks of its own.
                    f"{launch.cases[0].block % plan.num_launches + 1}/{plan.num_launches}: {label}, "
                    f"{plural(cell.num_ranks, 'rank')}",
                    no_wrap=True,
                    overflow="ellipsis",
                )
                status.update(line) if status else console.print(line, soft_wrap=True)
                begin = time.monotonic()
                failures = {record.case.id: record.failure for record in campaign.run(launch)}
                paces.append((time.monotonic() - begin) / planned[number])
                for case, failure in failures.items():
                    if failure:
                        console.print(Text(f"failed: {case}: {failure.message}"), soft_wrap=True)
    from dlscale.benchmarks.cli.report import show_study

    ended = show_study(campaign.store)
    if campaign.todo() or ended == FAILED_CASES:
        return FAILED_CASES
    # No training reached its target; a short study without intervals is no failure of `run`.
    return INSUFFICIENT_DATA if ended == INSUFFICIENT_DATA and plan.study.target else 0
