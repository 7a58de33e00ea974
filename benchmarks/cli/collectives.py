"""`dlscale collectives`: how fast collective operations are over message sizes, by the ring and by other libraries."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.console import Console
from rich.text import Text

from dlscale.base.errors import UsageError, unknown
from dlscale.base.files import make_folder
from dlscale.base.quantities import format_seconds, parse_sizes
from dlscale.benchmarks.cli import FAILED_CASES, SubVerbs, interrupted_status
from dlscale.benchmarks.cli.option_kinds import Counts, Read, Time, Words
from dlscale.benchmarks.cli.options import YES, json_option, results_option
from dlscale.benchmarks.records.collective_operations import COLLECTIVES, OPERATIONS
from dlscale.collectives import capabilities, with_capability

if TYPE_CHECKING:
    from dlscale.benchmarks.message_sizes.machine import Machine
    from dlscale.benchmarks.records.message_sizes import Collective


DEFAULT_SIZES = "4KiB:256MiB:x4,25MiB,32MiB"
ON_GPUS = (capabilities(name) for name in with_capability("between_gpus"))
EVERY_PEER = "ring, mpi (mpich, openmpi, intelmpi), gloo, horovod; on GPUs " + ", ".join(
    f"{row.name} ({row.untried})" if row.untried else row.name for row in ON_GPUS
)


Sizes = partial(Read, "sizes", parse_sizes)  # a list or a range, in bytes


environments_option = click.option(
    "--environments",
    type=click.Path(path_type=Path),
    default=Path(".peers"),
    show_default=True,
    help="Folder with the libraries' environments.",
)
backends_option = click.option(
    "--backends",
    type=Words(),
    default="all",
    show_default=True,
    help=f"Libraries to measure: {EVERY_PEER}.",
)


def _messages() -> str:
    """What a message of S bytes on P ranks is, a line for each operation."""
    lines = [f"  {operation.name:16}{operation.message}" for operation in OPERATIONS]
    return "\b\nA message of S bytes on P ranks:\n" + "\n".join(lines)


@click.group(cls=SubVerbs, invoke_without_command=True, epilog=_messages())
@click.option(
    "--operations",
    type=Words(),
    default="allreduce",
    show_default=True,
    help=f"Operations to time: {', '.join(COLLECTIVES)}, or all.",
)
@click.option("--sizes", type=Sizes(), default=DEFAULT_SIZES, show_default=True, help="Message sizes.")
@click.option(
    "--ranks", type=Counts(), default="2", show_default=True, help="Rank counts, all on one node: 2, or 2,4."
)
@click.option(
    "--system", help="System whose nodes to span: a known name or a .toml file; inside a job of its."
)
@click.option("--nodes", type=Counts(), help="Numbers of the job's nodes, instead of --ranks: 2, or 2,4.")
@click.option("--ranks-per-node", type=click.IntRange(min=1), help="Ranks per node; default: the system's.")
@click.option("--environment", help="Environment of the system; default: its first.")
@click.option("--allow-open-ports", **YES, help="Allow libraries with unauthenticated sockets to span nodes.")
@backends_option
@click.option(
    "--launches", type=click.IntRange(min=1), default=3, show_default=True, help="Launches per setting."
)
@click.option(
    "--budget", type=Time(), default="14min", show_default=True, help="Wall time of the run: 90s, 14min, 1h."
)
@environments_option
@results_option
@json_option
@click.pass_context
def collectives(ctx: click.Context, /, *, results: Path, as_json: bool, **options: Any) -> int:
    """Time collective operations (fp32, the ranks of a node or of several) over message sizes: the ring, MPICH,
    Open MPI, Intel MPI, Gloo and Horovod, each at its default and at its best settings.

    Prints a table and writes raw samples, a CSV and a figure into a folder of its own below RESULTS. Exit status 2 if
    a backend could not be measured.

    \b
    Examples:
      dlscale collectives setup                      installs the backends; needs the network
      dlscale collectives                            everything, in about a quarter of an hour
      dlscale collectives --sizes 25MiB --ranks 2,4 --backends ring,openmpi --budget 2min
      dlscale collectives --system perlmutter --nodes 2,4          in a job of 4 nodes: its MPI, the ring, Horovod
      dlscale collectives --operations all --sizes 1MiB:64MiB:x4
      dlscale collectives report                     the table of the latest run
    """  # noqa: D301
    if ctx.invoked_subcommand:
        return 0
    from dlscale.benchmarks.launch import signals
    from dlscale.benchmarks.message_sizes.run import Run, RunRequest

    if not options["budget"]:
        raise UsageError("--budget 0 leaves no time to measure; give for example 2min")
    machine, counts = _machine(options, results)
    if min(counts) < 2:
        raise UsageError("--ranks 1: allreduce needs several ranks; give 2 or more")
    request = RunRequest(
        sizes=options["sizes"],
        collectives=_collectives(options["operations"]),
        rank_counts=counts,
        backends=options["backends"],
        num_blocks=options["launches"],
        budget_seconds=options["budget"],
        machine=machine,
    )
    console = Console(stderr=True)
    with console.status("preparing", refresh_per_second=0.5) as status:
        show = (lambda text: status.update(_one_line(text))) if console.is_terminal else _tell
        run = Run(request, tell=_tell, progress=show)
        for state in run.prepare(results).peers:
            if state.unusable:
                _tell(f"{state.title} is left out: {state.unusable}")
        _tell(f"measuring for {format_seconds(request.budget_seconds)} at most into {run.folder}")
        try:
            with signals.deferred():
                run.measure()
        except KeyboardInterrupt as error:
            _tell(
                f"\ndlscale: interrupted; finished launches are saved: dlscale collectives report {run.folder}"
            )
            return interrupted_status(error)
    return _show(run.folder, as_json=as_json)


@collectives.command("setup")
@backends_option
@environments_option
def setup(backends: list[str], environments: Path) -> int:
    """Install each backend into an environment of its own.

    Existing environments are left alone. Exit status 2 if a backend could not be installed.

    \b
    Example: dlscale collectives setup --backends mpich,openmpi
    """  # noqa: D301
    from dlscale.benchmarks.message_sizes.peers import choose_peers, place_of, set_up

    peers = choose_peers(backends)
    missing = [
        peer.title for peer in peers if set_up(peer, place_of(peer.name, environments), tell=click.echo)
    ]
    if missing:
        click.echo(f"not installed: {', '.join(missing)} (see the errors above)")
    return FAILED_CASES if missing else 0


@collectives.command("report")
@click.argument("folder", required=False, type=click.Path(path_type=Path))
@results_option
@json_option
def report(folder: Path | None, results: Path, as_json: bool) -> int:
    """Print the table of a run again and draw its figure, from its records alone (default: the latest run).

    \b
    Example: dlscale collectives report --json
    """  # noqa: D301
    from dlscale.benchmarks.records.message_sizes import latest_run

    return _show(folder or latest_run(results), as_json=as_json)


def _show(folder: Path, *, as_json: bool) -> int:
    from dlscale.analysis import message_sizes_report as shown
    from dlscale.analysis.message_sizes import message_sizes
    from dlscale.benchmarks.records.message_sizes import load_run

    run, launches = load_run(folder)
    rows = message_sizes(run, launches)
    written = shown.write_files(run, launches, rows, folder)
    failures = shown.failures(run, launches)
    if as_json:
        click.echo(json.dumps(shown.as_json(rows)))
    else:
        Console().print(*shown.blocks(run, launches, rows), sep="\n")
        click.echo(f"written: {', '.join(path.name for path in written) or 'nothing'} in {folder}")
    return FAILED_CASES if failures else 0


def _one_line(text: str) -> Text:
    return Text(text, no_wrap=True, overflow="ellipsis")


def _tell(text: str) -> None:
    click.echo(text, err=True)


def _machine(options: Mapping[str, Any], results: Path) -> tuple[Machine, list[int]]:
    """This node or those of a job, and the numbers of ranks. Raises UsageError."""
    from dlscale.benchmarks.message_sizes.machine import ThisNode, cluster_here, usable_cpus

    if not options["system"]:
        for option in ("nodes", "ranks_per_node", "environment"):
            if options[option]:
                raise UsageError(
                    f"--{option.replace('_', '-')} without a --system; name one, or give --ranks"
                )
        return ThisNode(environments=options["environments"], cpus=usable_cpus()), options["ranks"]
    cluster = cluster_here(
        options["system"],
        nodes=options["nodes"],
        environment_name=options["environment"],
        ranks_per_node=options["ranks_per_node"],
        folder=make_folder(results).absolute(),
        allow_open_ports=bool(options["allow_open_ports"]),
    )
    return cluster, [cluster.ranks_per_node * number for number in options["nodes"]]


def _collectives(words: list[str]) -> list[Collective]:
    for word in words or [""]:
        if word not in (*COLLECTIVES, "all"):
            raise UsageError(unknown("operation", word, [*COLLECTIVES, "all"]))
    return [name for name in COLLECTIVES if name in words or "all" in words]
