"""The progress of `dlscale collectives`: a bar in a terminal, a line per launch elsewhere."""

from __future__ import annotations

import time
from collections.abc import Sequence

import click
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn
from rich.progress import Progress as Bar

from dlscale.benchmarks.collectives import plan
from dlscale.benchmarks.collectives.command import Order
from dlscale.benchmarks.collectives.record import Launch
from dlscale.benchmarks.collectives.run import Display
from dlscale.benchmarks.commands.progress import REFRESHES_PER_SECOND
from dlscale.benchmarks.units import format_seconds


class Progress(Display):
    """Of one part of a run. On standard error: standard output may be JSON."""

    def __init__(self, title: str, orders: Sequence[Order]) -> None:
        console = Console(stderr=True)
        self._title = title
        self._left = sum(map(plan.expected_seconds, orders))
        self._done, self._begin = 0.0, time.monotonic()
        self._is_terminal = console.is_terminal
        self._bar = Bar(
            TextColumn("{task.description}"),
            BarColumn(bar_width=None),
            MofNCompleteColumn(),
            TextColumn("{task.fields[left]}"),
            console=console,
            refresh_per_second=REFRESHES_PER_SECOND,
            disable=not self._is_terminal,
        )
        self._task = self._bar.add_task(title, total=len(orders), left="")

    def __enter__(self) -> Progress:
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def started(self, order: Order) -> None:
        """A launch begins."""
        pace = (time.monotonic() - self._begin) / self._done if self._done else 1.0
        left = f"{format_seconds(pace * self._left)} left"
        self._bar.update(self._task, description=escape(f"{self._title}: {order.name}"), left=left)
        if not self._is_terminal:
            click.echo(f"{self._title}: {order.name}; {left}", err=True)

    def finished(self, order: Order, record: Launch) -> None:
        """It has ended; why it failed is told at once and stops nothing."""
        expected = plan.expected_seconds(order)
        self._done, self._left = self._done + expected, self._left - expected
        self._bar.advance(self._task)
        if record.failure:
            self._bar.console.print(f"failed: {order.name}: {record.failure}", markup=False, highlight=False)
