"""`dlscale collectives tune`: finds the ring's switch points on this machine and writes them into a plan."""

from __future__ import annotations

import sys
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from dlscale.base.errors import UsageError
from dlscale.base.quantities import format_size, parse_seconds, parse_size
from dlscale.benchmarks.cli.streams import live_console

if TYPE_CHECKING:
    from dlscale.collectives.ring.plan import Timing, TuningPlan


@click.command("tune")
@click.argument("path", type=click.Path(path_type=Path))
@click.option("--max-bytes", default="64MiB", show_default=True, help="Largest message to try.")
@click.option("--budget", default="1min", show_default=True, help="Time for the trials, e.g. 30s or 1min.")
@click.option(
    "--ranks-per-node",
    type=click.IntRange(min=0),
    default=0,
    help="Ranks per emulated node; 0 uses real nodes.",
)
def tune(path: Path, max_bytes: str, budget: str, ranks_per_node: int) -> int:
    """Time the ring's algorithms on the ranks of this launch, and write their switch points into the plan PATH.

    Start it like the training: on the same nodes, with as many ranks, bound to the same cores. Training then takes the
    plan by the ring's option `plan`; a plan for another machine or number of ranks is refused.

    \b
    Examples:
      mpiexec -n 4 dlscale collectives tune plan.json
      mpiexec -n 64 dlscale collectives tune plan.json --max-bytes 256MiB --budget 5min
    """  # noqa: D301
    try:
        largest, seconds = parse_size(max_bytes), parse_seconds(budget)
    except ValueError as error:
        raise UsageError(f"--max-bytes {max_bytes} --budget {budget}: {error}") from None
    from mpi4py import MPI

    control = MPI.COMM_WORLD
    first = control.Get_rank() == 0
    try:
        from dlscale.collectives.ring.tuner import tune as run_tuner

        with _Display(shown=first) as display:
            plan = run_tuner(
                control,
                path,
                max_bytes=largest,
                seconds=seconds,
                ranks_per_node=ranks_per_node,
                progress=display.update,
            )
    except UsageError:
        if first:
            raise
        sys.exit(1)  # all ranks were refused alike; rank 0 says why
    if first:
        _show(plan, path)
    return 0


class _Display:
    """The progress bar, on one rank."""

    def __init__(self, *, shown: bool) -> None:
        console = live_console(stderr=True)
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=30),
            TimeElapsedColumn(),
            console=console,
            disable=not (shown and console.is_terminal),
            auto_refresh=False,  # a thread that draws would take time from what is timed
        )
        self._task = self._bar.add_task("starting", total=None)

    def __enter__(self) -> _Display:
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def update(self, done: int, total: int, question: str) -> None:
        """Show that `done` of `total` questions are answered and which is next."""
        self._bar.update(self._task, completed=done, total=total, description=question, refresh=True)


def _show(plan: TuningPlan, path: Path) -> None:
    console = Console()
    if plan.timings:
        console.print(f"measured on {_place(plan)}", highlight=False)
    else:
        click.echo("one rank exchanges nothing: the plan holds the defaults")
    for question, timings in groupby(plan.timings, key=lambda timing: timing.question):
        grid = Table(box=None, pad_edge=False, title=question, title_justify="left")
        for column in ("message", "fastest", "takes", "default", "takes", "saves"):
            grid.add_column(column, justify="right", no_wrap=True)
        for timing in timings:
            grid.add_row(*_row(timing))
        console.print(grid)
    for line in describe(plan):
        click.echo(line)
    click.echo(f'written: {path}; use it with ring.Settings(plan="{path}") or backend option plan')


def describe(plan: TuningPlan) -> list[str]:
    """The plan, a line per question."""
    lines = []
    if plan.key.node_size > 1:
        limit = plan.node.one_shot_bytes
        lines.append(f"inside a node: one-shot up to {format_size(limit) if limit else 'the default size'}")
    if plan.key.num_nodes > 1:
        network = plan.network
        limits = {
            "one-shot": network.one_shot_bytes,
            "recursive doubling": network.recursive_doubling_bytes,
            "halving and doubling": network.halving_doubling_bytes,
        }
        spans, below = [], 0
        for algorithm, limit in limits.items():
            if limit > below:
                spans.append(f"{algorithm} up to {format_size(limit)}")
                below = limit
        lines.append(f"between nodes: {', '.join([*spans, 'ring above' if spans else 'ring'])}")
        lengths = [f"{format_size(s.segment_bytes)} {_up_to(s.up_to_bytes)}" for s in network.segments]
        lines.append(f"longest messages between nodes: {'; '.join(lengths)}")
        if plan.key.node_size > 1:
            lines.append(f"blocks: {format_size(plan.node.block_bytes)}")
    return lines


def _row(timing: Timing) -> list[str]:
    fastest = min(timing.seconds, key=timing.seconds.__getitem__)
    best, default = timing.seconds[fastest], timing.seconds[timing.default]
    saved = f"{1 - best / default:.0%}" if default > best else ""
    return [
        format_size(timing.message_bytes),
        fastest,
        _microseconds(best),
        timing.default,
        _microseconds(default),
        saved,
    ]


def _place(plan: TuningPlan) -> str:
    key = plan.key
    nodes = "1 node" if key.num_nodes == 1 else f"{key.num_nodes} nodes"
    return f"{key.num_ranks} ranks on {nodes}, {key.cpu}, {key.mpi}"


def _microseconds(seconds: float) -> str:
    return f"{seconds * 1e6:.1f} us" if seconds < 1e-3 else f"{seconds * 1e3:.2f} ms"


def _up_to(limit: int) -> str:
    return "in larger buffers" if limit >= 2**62 else f"in buffers up to {format_size(limit)}"
