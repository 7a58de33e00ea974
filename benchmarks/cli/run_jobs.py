"""`dlscale plan` and `dlscale run` for systems with a scheduler: submission there, rehearsal elsewhere.

The cost of the jobs and the precision that their blocks allow are printed before anything is submitted.
"""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource
from rich.console import Console
from rich.table import Table

from dlscale.analysis.statistics import blocks_needed, half_width
from dlscale.analysis.text import plural
from dlscale.base import definitions
from dlscale.base.errors import UsageError
from dlscale.base.quantities import format_seconds, parse_seconds
from dlscale.benchmarks.cli.options import expanded, say_given_up, study_of
from dlscale.benchmarks.cli.plan_table import axes_text, cases_of, counted, plan_json, show_plan
from dlscale.benchmarks.jobs import submission
from dlscale.benchmarks.jobs.jobs import JobPlan, all_jobs, cut
from dlscale.benchmarks.jobs.scheduler import scheduler
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
from dlscale.benchmarks.study.study import DEVICE_BACKENDS, Study
from dlscale.benchmarks.systems.system import System
from dlscale.collectives import capabilities

if TYPE_CHECKING:
    from dlscale.analysis.predict.solution import SamplesToTarget


def rehearsal_line(system: System) -> str:
    """What every reader of a rehearsal has to know first."""
    return f"rehearsal: this machine is not {system.name}; nothing is submitted and nothing was measured"


def needs_open_ports(system: System, options: dict[str, Any]) -> bool:
    """Whether the usual backends of the study's device exchange nothing across nodes without --allow-open-ports.

    A rehearsal opens no port, so that it goes on with them where the user neither allowed nor forbade it.
    """
    device = options["device"] or system.default_device
    return device in DEVICE_BACKENDS and options["backends"] is None and options["allow_open_ports"] is None


def solution_options(name: str, system: System, options: Mapping[str, Any]) -> tuple[dict[str, Any], str]:
    """The options with the study's own preset, framework and batch instead of the system's, which train here too.

    Where no sizes are named they are the usual ones that the data have enough samples for, and the text says so.
    Raises UsageError for what cannot be trained on one node.
    """
    study = definitions.load(Study, name, folder="study/studies")
    own = {"preset": study.preset, "frameworks": study.frameworks, "batch": study.batch}
    changed = dict(options) | {key: value for key, value in own.items() if options[key] is None}
    if options["nodes"] or options["ranks"]:
        return changed, ""
    problem = ""
    for exponent in reversed(range(DEFAULT_MAX_NODES.bit_length())):
        nodes = [1 << power for power in range(exponent + 1)] if problem else None
        try:
            own_options = changed | {"nodes": nodes}
            expanded(study_of(name, system, own_options), system, own_options)
        except UsageError as error:
            if nodes == [1]:
                raise
            problem = problem or str(error)
        else:
            text = f"on up to {nodes[-1]} nodes: {problem}" if nodes else ""
            return changed | {"nodes": nodes}, text
    return changed, ""


def run_as_jobs(
    study: Study,
    system: System,
    options: dict[str, Any],
    *,
    start: bool,
    commands: bool,
    as_json: bool = False,
    trained: Mapping[str, list[SamplesToTarget]] | None = None,
) -> int:
    """Plan a study's jobs, check --max-node-hours, and submit them if this machine is the system.

    A rehearsal of time to solution predicts it from the samples of `trained` trainings, by workload.
    What is not started is printed: as a table, with `commands` also the scripts, or as JSON alone.
    """
    is_here = system.is_here()
    make = campaign_for_jobs if is_here else campaign_for_rehearsal
    campaign = make(
        study,
        system,
        environment_name=options["environment"],
        data=options["data"],
        results=_results(system, options["results"], is_here=is_here),
    )
    limit = walltime(study, system, options["walltime"])
    if as_json:
        todo = campaign.todo(campaign.store.summaries()) if is_here else campaign.plan.launches
        click.echo(json.dumps(plan_json(campaign.plan, todo)))
        return 0
    if not is_here:
        jobs = _rehearsed_jobs(campaign, limit, asked=options["walltime"] is not None)
        _check_node_hours(jobs, options["max_node_hours"])
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
            write_rehearsal(campaign, jobs, account=options["account"])
            click.echo(f"scripts and plan are in {campaign.store.folder}")
        elif commands:
            _print_scripts(campaign, jobs, options["account"])
        return 0
    if system.needs_account and not options["account"] and start:
        raise UsageError(f"jobs on {system.name} need an account to charge; give --account (make: ACCOUNT=)")
    if not start:
        todo = campaign.todo(campaign.store.summaries())
        jobs = _jobs(campaign, todo, limit)
        _check_node_hours(jobs, options["max_node_hours"])
        if jobs:
            show_job_costs(campaign, jobs)
        show_plan(campaign.plan, todo)
        if commands:
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


def walltime(study: Study, system: System, asked: str | None) -> float | None:
    """Wall-time limit of a job in seconds: --walltime, else the partition's; None if unknown. Raises UsageError."""
    most = chosen_partition(study, system).max_walltime
    if asked is None:
        return most.number if most else None
    try:
        seconds = parse_seconds(asked)
    except ValueError as error:
        raise UsageError(f"--walltime: {error}") from None
    if most and seconds > most.number:
        raise UsageError(
            f"--walltime {asked} exceeds the limit of {most.value} on partition "
            f"{study.partition or system.partition} of {system.name}; ask for less, or choose another --partition"
        )
    return seconds


def _results(system: System, results: Path, *, is_here: bool) -> Path:
    """The system's results folder unless --results names one; a rehearsal stays here. Raises UsageError."""
    source = click.get_current_context().get_parameter_source("results")
    if not is_here or source is not ParameterSource.DEFAULT or not system.filesystem:
        return results
    path = os.path.expandvars(system.filesystem.results)
    if "$" in path:
        raise UsageError(
            f"results on {system.name} belong in {system.filesystem.results}, but that variable is not set; "
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


def _rehearsed_jobs(campaign: Campaign, limit: float | None, *, asked: bool) -> tuple[JobPlan, ...]:
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


def _check_node_hours(jobs: Sequence[JobPlan], most: float | None) -> None:
    billed = sum(job.billed_node_hours for job in jobs)
    if most is not None and billed > most:
        raise UsageError(
            f"these jobs may be billed {billed:.1f} node-hours, more than --max-node-hours {most:g}; use fewer "
            "nodes, launches or backends, or a smaller --budget"
        )


def _print_scripts(campaign: Campaign, jobs: Sequence[JobPlan], account: str | None) -> None:
    for job in jobs:
        click.echo(f"\n# {job.name}")
        click.echo(submission.job_script(campaign, job, account=account, after=None))
        click.echo("# its launches, on the first of its nodes:")
        for launch in job.launches:
            click.echo(shlex.join(campaign.command(launch)))


def show_job_costs(campaign: Campaign, jobs: Sequence[JobPlan]) -> None:
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
