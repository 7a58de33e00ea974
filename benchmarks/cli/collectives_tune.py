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

if TYPE_CHECKING:
    from dlscale.collectives.ring.plan import NetworkPlan, Timing, TuningPlan


@click.command("tune")
@click.argument("path", type=click.Path(path_type=Path))
@click.option("--max-bytes", default="64MiB", show_default=True, help="Largest message that is tried.")
@click.option("--budget", default="1min", show_default=True, help="Time to try for: 30s, 1min.")
@click.option(
    "--ranks-per-node", type=click.IntRange(min=0), default=0, help="Cut nodes into smaller ones; for trials."
)
def tune(path: Path, max_bytes: str, budget: str, ranks_per_node: int) -> int:
    """Try the ring's ways of moving messages on the ranks of this launch, and write the best into the plan PATH.

    Start it as the training will be started: on the same nodes, with as many ranks, bound to the same cores. Training
    then takes the plan by the ring's option `plan`; a plan for another machine or number of ranks is refused.

    \b
    Examples:
      mpiexec -n 4 dlscale collectives tune plan.json
      mpiexec -n 64 dlscale collectives tune plan.json --max-bytes 256MiB --budget 5min
    """  # noqa: D301
    largest, seconds = _bytes(max_bytes), _seconds(budget)
    from mpi4py import MPI

    control = MPI.COMM_WORLD
    first = control.Get_rank() == 0
    try:
        from dlscale.collectives.ring.tuner import tune as find

        with _Display(shown=first) as display:
            plan = find(
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
        sys.exit(1)  # all ranks were refused alike; one of them says why
    if first:
        _show(plan, path)
    return 0


class _Display:
    """A bar of the questions asked, on one rank."""

    def __init__(self, *, shown: bool) -> None:
        console = Console(stderr=True)
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
        """So many questions of all are answered; this one is next."""
        self._bar.update(self._task, completed=done, total=total, description=question, refresh=True)


def _show(plan: TuningPlan, path: Path) -> None:
    if plan.timings:
        console = Console()
        console.print(f"tried on {_place(plan)}", highlight=False)
        for question, timings in groupby(plan.timings, key=lambda timing: timing.question):
            grid = Table(box=None, pad_edge=False, title=question, title_justify="left")
            for column in ("message", "fastest", "takes", "default", "takes", "saves"):
                grid.add_column(column, justify="right", no_wrap=True)
            for timing in timings:
                grid.add_row(*_row(timing))
            console.print(grid)
    else:
        click.echo("one rank talks to nobody: there was nothing to try, and the plan holds the defaults")
    click.echo("the plan says:")
    for line in describe(plan):
        click.echo(f"  {line}")
    click.echo(f'written: {path}; take it with ring.Settings(plan="{path}") or backend option plan')


def describe(plan: TuningPlan) -> list[str]:
    """The plan in plain words."""
    node, network = plan.node, plan.network
    lines = []
    if plan.key.node_size > 1:
        at_once = format_size(node.one_shot_bytes) if node.one_shot_bytes else "a size by the number of ranks"
        lines.append(f"inside a node messages up to {at_once} go at once, larger ones in slices")
        manners = "; ".join(
            format_size(m.chunk_bytes)
            + (", fetched ahead" if m.ahead else "")
            + (", streamed" if m.streaming else "")
            for m in node.manners
        )
        lines.append(
            f"slices move in chunks, of which the fastest is found while running: {manners or 'the usual'}"
        )
    if plan.key.num_nodes > 1:
        lines += _between_nodes(network)
        if plan.key.node_size > 1:
            block = format_size(node.block_bytes)
            lines.append(f"buffers go through nodes and network in blocks of {block}, by turns")
    return lines or ["the defaults"]


def _between_nodes(network: NetworkPlan) -> list[str]:
    limits = {
        "one-shot": network.one_shot_bytes,
        "recursive doubling": network.recursive_doubling_bytes,
        "halving and doubling": network.halving_doubling_bytes,
    }
    spans, below = [], 0
    for way, limit in limits.items():
        if limit > below:
            spans.append(f"{way} up to {format_size(limit)}")
            below = limit
    segments = "; ".join(f"{format_size(s.segment_bytes)} {_up_to(s.up_to_bytes)}" for s in network.segments)
    return [
        f"between nodes: {', '.join([*spans, 'above that the ring' if spans else 'the ring'])}",
        f"messages between nodes are at most {segments}; {network.window} under way at a time",
    ]


def _row(timing: Timing) -> list[str]:
    fastest = min(timing.seconds, key=timing.seconds.__getitem__)
    best, usual = timing.seconds[fastest], timing.seconds[timing.default]
    saved = f"{1 - best / usual:.0%}" if usual > best else ""
    return [
        format_size(timing.message_bytes),
        fastest,
        _microseconds(best),
        timing.default,
        _microseconds(usual),
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


def _bytes(text: str) -> int:
    try:
        return parse_size(text)
    except ValueError as error:
        raise UsageError(f"--max-bytes: {error}") from None


def _seconds(text: str) -> float:
    try:
        return parse_seconds(text)
    except ValueError as error:
        raise UsageError(f"--budget: {error}") from None
