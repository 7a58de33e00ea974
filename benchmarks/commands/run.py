"""`dlscale plan` and `dlscale run`."""

from __future__ import annotations

import shlex
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from dlscale.benchmarks import definition, parity_gate
from dlscale.benchmarks.cli import FAILED_CASES, NOT_COMPARABLE
from dlscale.benchmarks.commands.options import BackendOptions, Counts, Words, results_option
from dlscale.benchmarks.commands.progress import Display
from dlscale.benchmarks.plan import Launch
from dlscale.benchmarks.runner import Campaign, opened, prepare
from dlscale.benchmarks.study import load_study
from dlscale.benchmarks.supervisor import refuse, run_job
from dlscale.benchmarks.system import System, load_system
from dlscale.benchmarks.units import format_seconds
from dlscale.collectives import with_capability
from dlscale.models.errors import UsageError

F = TypeVar("F", bound=Callable[..., Any])

# A flag that make can also give a value: --skip-bad, --skip-bad yes, --skip-bad no.
YES: dict[str, Any] = {"type": bool, "is_flag": False, "flag_value": True, "default": None}
OPTIONS = (
    click.option("--system", default="local", show_default=True, help="A machine's name, or its .toml file."),
    click.option("--environment", help="One of the system's environments; default: the running one."),
    click.option("--workloads", type=Words(), help="For example hep_cnn,resnet50, or all."),
    click.option("--frameworks", type=Words(), help="torch, tensorflow or all."),
    click.option("--backends", type=Words(), help="For example none,mpi,gloo,ring, or all."),
    click.option(
        "--backend-options",
        type=BackendOptions(),
        help="For example horovod.cycle_time_ms=0.5,grpc_ps.asynchronous=true.",
    ),
    click.option(
        "--servers",
        type=Words(),
        help="Of backends with servers: counts, or ratios to the ranks such as 1/2 (default), several for an axis.",
    ),
    click.option(
        "--allow-open-ports",
        **YES,
        help="Let backends whose sockets ask nobody who connects work across machines; recorded.",
    ),
    click.option(
        "--ranks", type=Counts(), help="1,2,4 or 1:8 or 1:512:x2; default: 1 to the machine's cores."
    ),
    click.option("--nodes", type=int, help="Nodes; more than one needs a system with a scheduler."),
    click.option("--ranks-per-node", type=int, help="For systems with several nodes."),
    click.option("--preset", help="paper, small or tiny; default: the workload's."),
    click.option(
        "--batch",
        type=int,
        help="Samples per step: of each rank in weak scaling, of all together in strong; default: the preset's.",
    ),
    click.option("--precision", help="fp32 or bf16."),
    click.option("--compiled", **YES, help="torch.compile, and XLA in TensorFlow."),
    click.option("--memory-format", help="channels_last (default) or channels_first (torch only)."),
    click.option(
        "--device", help="cpu (default) or gpu, one for each rank; backends none, horovod and nccl."
    ),
    click.option(
        "--data",
        help="Input file or folder, WORKLOAD=PATH,... for several, or the word synthetic; default: the sample "
        "that ships.",
    ),
    click.option("--skip-bad", **YES, help="Leave out and count samples that cannot be read."),
    click.option("--budget", help="Wall time to fit the windows into: 240s, 4min, 1h."),
    click.option("--launches", type=int, help="Launches per cell; fewer than 6 carry no 95 % interval."),
    click.option("--warmup-steps", type=int, help="Steps before the first window, at least."),
    click.option("--max-steps", type=int, help="Steps of a launch at most, warm-up included."),
    click.option("--seed", type=int, help="Of the randomised order and of the initial weights."),
    click.option("--account", help="For systems with a scheduler."),
    click.option("--partition", help="For systems with a scheduler."),
    click.option("--walltime", help="For systems with a scheduler."),
    click.option("--max-node-hours", type=float, help="For systems with a scheduler."),
    results_option,
)
NEEDS_SCHEDULER = ("account", "partition", "walltime", "max_node_hours", "ranks_per_node")


def _study_options(command: F) -> F:
    for option in reversed(OPTIONS):
        command = option(command)
    return command


@click.command()
@click.argument("study")
@_study_options
def plan(study: str, **options: Any) -> int:
    """Print what STUDY would run: cells, launches in order, estimated time. Starts nothing.

    \b
    Example: dlscale plan strong-scaling --ranks 1,2
    """  # noqa: D301
    campaign = _prepare(study, **options)
    _print_plan(campaign, campaign.todo(campaign.store.load()))
    _print_commands(campaign)
    return 0


@click.command()
@click.argument("study")
@_study_options
@click.option("--dry-run", is_flag=True, help="Print the exact commands and start nothing.")
def run(study: str, dry_run: bool, **options: Any) -> int:
    """Run STUDY (weak-scaling, strong-scaling or a .toml file), print its table and draw its figures.

    The same command goes on where an interrupted one stopped. Failed cases are tried again.

    \b
    Examples:
      dlscale run weak-scaling
      dlscale run weak-scaling --backends none,ring --budget 2min --results /scratch/results
      dlscale run weak-scaling --dry-run
    """  # noqa: D301
    campaign = _prepare(study, **options)
    if dry_run:
        _print_plan(campaign, campaign.todo(campaign.store.load()))
        _print_commands(campaign)
        return 0
    # A batch system asks a job to end by SIGTERM: that is a Ctrl-C, and its ranks and records are seen to.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with opened(campaign) as launches:
        _print_plan(campaign, launches)
        _check_parity(campaign)
        _run(campaign, launches)
    from dlscale.benchmarks.commands.report import show_study

    status = show_study(campaign.store)
    done = {record.case.id for record in campaign.store.load() if record.good}
    planned = {case.id for launch in campaign.plan.launches for case in launch.cases}
    if planned - done:
        return FAILED_CASES
    return NOT_COMPARABLE if status == NOT_COMPARABLE else 0


def _prepare(study: str, *, system: str, results: Path, **options: Any) -> Campaign:
    machine = load_system(system)
    _check_placement(machine, options)
    chosen = load_study(
        study,
        **{
            name: options[name]
            for name in ("workloads", "frameworks", "backends", "ranks", "preset", "batch", "precision")
        },
        **{name: options[name] for name in ("compiled", "memory_format", "device", "skip_bad")},
        **{name: options[name] for name in ("budget", "launches", "seed")},
        servers=options["servers"],
        backend_options=_with_open_ports(options),
        rules={name: options[name] for name in ("warmup_steps", "max_steps")},
    )
    return prepare(
        chosen, machine, environment_name=options["environment"], data=options["data"], results=results
    )


def _with_open_ports(options: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The backends' options, and that of every backend which has it if its ports may be open."""
    found: dict[str, dict[str, Any]] = {
        name: dict(own) for name, own in (options["backend_options"] or {}).items()
    }
    if options["allow_open_ports"]:
        for backend in with_capability("open_ports"):
            found.setdefault(backend, {})["allow_open_ports"] = True
    return found


def _check_placement(system: System, options: dict[str, Any]) -> None:
    """What only makes sense with several nodes or a scheduler is an error elsewhere, not ignored."""
    if options["nodes"] not in (None, 1):
        raise UsageError(
            f"--nodes {options['nodes']} on {system.name}, which has 1 node; "
            "leave it out, or name a system with more"
        )
    for name in NEEDS_SCHEDULER:
        if options[name] is not None:
            option = "--" + name.replace("_", "-")
            raise UsageError(
                f"{option} on {system.name}, which has no scheduler; leave it out, or name a system that has one "
                f"(known: {', '.join(definition.names('systems'))})"
            )


def _print_plan(campaign: Campaign, todo: list[Launch]) -> None:
    plan = campaign.plan
    cells = {case.cell.id for launch in plan.launches for case in launch.cases}
    click.echo(
        f"{plan.study.title} on {campaign.system.title} with {campaign.installation.name} "
        f"({campaign.fingerprint.versions.get('mpi', 'MPI')}): {len(cells)} cells, {plan.study.launches} blocks, "
        f"{len(plan.launches)} launches; {plan.launches[0].cell.cores_per_rank} of {plan.num_cores} cores per rank"
    )
    for warning in plan.warnings:
        click.echo(f"warning: {warning}")
    if len(todo) < len(plan.launches):
        click.echo(f"{len(plan.launches) - len(todo)} launches are done already")
    seconds = plan.seconds(todo)
    click.echo(f"{len(todo)} to run, about {format_seconds(seconds)}; records in {campaign.store.folder}")
    if todo and plan.seconds(plan.launches) > 1.05 * plan.study.budget:
        click.echo(
            f"the least that the rules need is more than the budget of {format_seconds(plan.study.budget)}: "
            "every launch gets its shortest windows"
        )


def _check_parity(campaign: Campaign) -> None:
    """Before two frameworks are compared: do they train the same program? The reports say so if not."""
    for request in parity_gate.missing(campaign):
        click.echo(f"comparing {request.workloads[0]} in both frameworks ...")
        found = parity_gate.ask(campaign.installation, request)
        parity_gate.keep(campaign, found)
        for one in found:
            if not one.passed:
                failed = ", ".join(gate.name for gate in one.checks if not gate.passed)
                click.echo(f"warning: {one.workload} is not comparable between frameworks: {failed}")


def _print_commands(campaign: Campaign) -> None:
    for launch in campaign.plan.launches:
        click.echo(shlex.join(campaign.command(launch)))


def _run(campaign: Campaign, launches: list[Launch]) -> None:
    with Display({launch.id: campaign.plan.seconds([launch]) for launch in launches}) as display:
        for launch in launches:
            cell = launch.cell
            display.started(
                f"block {launch.cases[0].block + 1}/{campaign.plan.study.launches}, "
                f"{cell.workload} in {cell.framework} over {cell.backend} on {cell.num_ranks} "
                f"rank{'s' if cell.num_ranks > 1 else ''}"
            )
            reason = campaign.why_not(launch)
            job = campaign.job(launch)
            records = refuse(job, campaign.store, reason) if reason else run_job(job, campaign.store)
            display.finished(launch.id, [record for record in records if not record.good])
