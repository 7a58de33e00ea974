"""Progress of a running study: one updating line in a terminal, lines elsewhere."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterable
from typing import Self

from rich.markup import escape
from rich.progress import BarColumn, Progress, TextColumn

from dlscale.base.quantities import format_seconds
from dlscale.base.strings import visible
from dlscale.benchmarks.cli.streams import live_console

REFRESHES_PER_SECOND = 0.5  # drawing takes time from ranks that use every core
AS_PLANNED = [1.0, 1.0]  # paces that the launches' own are added to: one slow launch says little


class LaunchProgress:
    """The current launch, a bar, how many are done, and the time left; a line per launch where that is no terminal."""

    def __init__(self, *, num_launches: int, planned_seconds: float, stderr: bool = False) -> None:
        self._console = live_console(stderr=stderr)
        self._left = planned_seconds
        self._paces = [*AS_PLANNED]  # seconds over planned seconds, of the launches that have ended
        self._begin = time.monotonic()  # of the latest launch
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=None),
            TextColumn("{task.completed} of {task.total} launches"),
            TextColumn("{task.fields[left]}"),
            console=self._console,
            refresh_per_second=REFRESHES_PER_SECOND,
            expand=True,
            disable=not self._console.is_terminal,
        )
        self._task = self._progress.add_task("starting", total=num_launches, left="")

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def more(self, num_launches: int, planned_seconds: float) -> None:
        """There is more to do than was said at first."""
        self._left += planned_seconds
        total = (self._progress.tasks[0].total or 0) + num_launches
        self._progress.update(self._task, total=total)

    def started(self, what: str) -> None:
        """A launch begins."""
        self._begin = time.monotonic()
        left = f"{format_seconds(statistics.median(self._paces) * max(0.0, self._left))} left"
        self._progress.update(self._task, description=escape(what), left=left, refresh=True)
        if not self._console.is_terminal:
            self._print(f"{what}; {left}")

    def finished(self, planned_seconds: float, failures: Iterable[str] = ()) -> None:
        """A launch that was planned to take so long ended; its failures are printed, and do not stop the others.

        The time left is what is planned at the median pace so far, of failed launches too.
        """
        if planned_seconds > 0:
            self._paces.append((time.monotonic() - self._begin) / planned_seconds)
        self._left -= planned_seconds
        self._progress.update(self._task, advance=1, left="")
        for failure in failures:
            self._print(f"failed: {failure}")

    def _print(self, line: str) -> None:
        self._progress.console.print(visible(line), markup=False, highlight=False, soft_wrap=True)
