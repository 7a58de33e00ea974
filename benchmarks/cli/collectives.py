"""`dlscale collectives`: how fast collective operations are over message sizes, by the ring and by other libraries."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.text import Text

from dlscale.base.definitions import one_of
from dlscale.base.errors import UsageError
from dlscale.base.quantities import format_seconds, parse_counts, split_list
from dlscale.benchmarks.cli import FAILED_CASES
from dlscale.benchmarks.cli.options import Counts, Read, Time, Words, json_option, results_option
from dlscale.benchmarks.records.collective_operations import COLLECTIVES, OPERATIONS, Collective
from dlscale.collectives import capabilities, with_capability


def _operations(text: str) -> list[Collective]:
    words = [one_of("operation", word, (*COLLECTIVES, "all")) for word in split_list(text) or [""]]
    return [name for name in COLLECTIVES if name in words or "all" in words]


ON_GPUS = [capabilities(name) for name in with_capability("between_gpus")]
backends_option = click.option(
    "--backends",
    type=Words(),
    default="all",
    show_default=True,
    help="Libraries to measure: ring, mpi (mpich, openmpi, intelmpi), gloo, horovod; on GPUs "
    + ", ".join(f"{row.name} ({row.untried})" if row.untried else row.name for row in ON_GPUS),
)
MESSAGES = "\n".join(f"  {operation.name:16}{operation.message}" for operation in OPERATIONS)


@click.group(invoke_without_command=True, epilog=f"\b\nA message of S bytes on P ranks:\n{MESSAGES}")
@click.option(
    "--operations",
    type=Read("operations", _operations),
    default="allreduce",
    show_default=True,
    help=f"Operations to time: {', '.join(COLLECTIVES)}, or all.",
)
@click.option(
    "--sizes",
    type=Read("sizes", partial(parse_counts, sizes=True)),
    default="4KiB:256MiB:x4,25MiB,32MiB",
    show_default=True,
    help="Message sizes.",
)
@click.option(
    "--ranks", type=Counts(), default="2", show_default=True, help="Rank counts, all on one node: 2, or 2,4."
)
@click.option(
    "--system", help="System whose nodes to span: a known name or a .toml file; inside a job of its."
)
@click.option("--nodes", type=Counts(), help="Numbers of the job's nodes, instead of --ranks: 2, or 2,4.")
@backends_option
@click.option(
    "--launches", type=click.IntRange(min=1), default=3, show_default=True, help="Launches per setting."
)
@click.option(
    "--budget", type=Time(), default="14min", show_default=True, help="Wall time of the run: 90s, 14min, 1h."
)
@results_option
@json_option
@click.pass_context
def collectives(ctx: click.Context, /, *, results: Path, as_json: bool, **options: Any) -> int:
    """Time collective operations (fp32, the ranks of a node or of several) over message sizes: the ring, MPICH,
    Open MPI, Intel MPI, Gloo and Horovod, each at its default and at up to three other settings.

    Prints a table and writes raw samples, a CSV and a figure into a folder of its own below RESULTS. Exit status 2 if
    a backend could not be measured.

    \b
    Examples:
      dlscale collectives setup                      installs the backends; needs the network
      dlscale collectives                            everything, in about a quarter of an hour
      dlscale collectives --sizes 25MiB --ranks 2,4 --backends ring,openmpi --budget 2min
      dlscale collectives --system perlmutter --nodes 2,4          in a job of 4 nodes: its MPI, the ring, Horovod
      dlscale collectives report                     the table of the latest run
    """  # noqa: D301
    if ctx.invoked_subcommand:
        return 0
    from dlscale.benchmarks.launch import signals
    from dlscale.benchmarks.message_sizes.machine import nodes_of_job, this_node
    from dlscale.benchmarks.message_sizes.run import Run

    system, nodes, counts = options["system"], options["nodes"] or [], options["ranks"]
    if nodes and not system:
        raise UsageError("--nodes without a --system; name one, or give --ranks")
    if min(counts) < 2:
        raise UsageError(f"--ranks {min(counts)}: one rank exchanges nothing; give 2 or more")
    if system:
        machine = nodes_of_job(system, counts=nodes, names=options["backends"])
        counts = [(machine.ranks_per_node or 1) * number for number in nodes]
    else:
        machine = this_node(options["backends"])

    tell, console = partial(click.echo, err=True), Console(stderr=True)
    with console.status("preparing", refresh_per_second=0.5) as status:

        def progress(text: str) -> None:
            line = Text(text, no_wrap=True, overflow="ellipsis")
            status.update(line) if console.is_terminal else tell(text)

        run = Run(
            machine=machine,
            sizes=options["sizes"],
            collectives=options["operations"],
            rank_counts=counts,
            num_blocks=options["launches"],
            budget_seconds=options["budget"],
            tell=tell,
            progress=progress,
        )
        run.prepare(results)
        for found in machine.libraries.values():
            if found.state.unusable:
                tell(f"{found.state.title} is left out: {found.state.unusable}")
        tell(f"measuring for {format_seconds(run.budget_seconds)} at most into {run.folder}")
        with signals.deferred():
            run.measure()
    return _show(run.folder, as_json=as_json)


@collectives.command("setup")
@backends_option
def setup(backends: list[str]) -> int:
    """Install each backend into an environment of its own.

    Existing environments are left alone. Exit status 2 if a backend could not be installed.
    """
    from dlscale.benchmarks.message_sizes.peers import choose_peers, set_up

    peers = [peer for peer in choose_peers(backends) if peer.packages]
    missing = [peer.title for peer in peers if set_up(peer, tell=click.echo)]
    if missing:
        click.echo(f"not installed: {', '.join(missing)} (see the errors above)")
    return FAILED_CASES if missing else 0


@collectives.command("report")
@click.argument("folder", required=False, type=click.Path(path_type=Path))
@results_option
@json_option
def report(folder: Path | None, results: Path, as_json: bool) -> int:
    """Print the table of a run again and draw its figure, from its records alone (default: the latest run)."""
    from dlscale.benchmarks.records.message_sizes import latest_run

    return _show(folder or latest_run(results), as_json=as_json)


def _show(folder: Path, *, as_json: bool) -> int:
    from dlscale.analysis import message_sizes_report as shown
    from dlscale.analysis.message_sizes import message_sizes
    from dlscale.benchmarks.records.message_sizes import load_run

    run, launches = load_run(folder)
    rows = message_sizes(run, launches)
    written = shown.write_files(run, launches, rows, folder)
    if as_json:
        click.echo(json.dumps(shown.as_json(rows)))
    else:
        Console().print(*shown.blocks(run, launches, rows), sep="\n")
        click.echo(f"written: {', '.join(path.name for path in written) or 'nothing'} in {folder}")
    return FAILED_CASES if shown.failures(run, launches) else 0
