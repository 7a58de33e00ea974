"""The progress bar of a running study."""

from __future__ import annotations

import time
from types import TracebackType

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from dlscale.benchmarks.record import Record
from dlscale.benchmarks.units import format_seconds

REFRESHES_PER_SECOND = 0.5  # drawing takes time from ranks that use every core


class Display:
    """A bar with the time left in a terminal, a line per launch elsewhere (a batch job's log).

    `weights` says how many cases each launch has: that is what its time is proportional to.
    """

    def __init__(self, weights: dict[str, int], *, planned_seconds: float) -> None:
        self._weights = dict(weights)
        self._planned_seconds = planned_seconds
        self._console = Console()
        self._done_weight = 0
        self._begin = time.monotonic()
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=None),
            MofNCompleteColumn(),
            TextColumn("{task.fields[left]}"),
            console=self._console,
            refresh_per_second=REFRESHES_PER_SECOND,
            disable=not self._console.is_terminal,
        )
        self._task = self._progress.add_task("starting", total=len(weights), left="")

    def __enter__(self) -> Display:
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, place: TracebackType | None
    ) -> None:
        self._progress.stop()

    def started(self, what: str) -> None:
        """A launch begins."""
        left = f"{format_seconds(self._seconds_left())} left"
        self._progress.update(self._task, description=escape(what), left=left)
        if not self._console.is_terminal:
            self._console.print(f"{what}; {left}", markup=False, highlight=False)

    def finished(self, launch: str, failures: list[Record]) -> None:
        """A launch ended; its failures are told at once and do not stop the study."""
        self._done_weight += self._weights.pop(launch)
        self._progress.advance(self._task)
        for record in failures:
            if record.failure:
                text = f"failed: {record.case.id}: {record.failure.message}"
                self._progress.console.print(text, markup=False, highlight=False)

    def _seconds_left(self) -> float:
        """From the pace so far, and from the plan until there is one."""
        pace = (
            (time.monotonic() - self._begin) / self._done_weight
            if self._done_weight
            else self._planned_seconds
        )
        return pace * sum(self._weights.values())
