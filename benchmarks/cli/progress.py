"""Progress of a running study: a bar in a terminal, lines elsewhere."""

from __future__ import annotations

import time
from types import TracebackType

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from dlscale.base.quantities import format_seconds
from dlscale.benchmarks.records.record import Record

REFRESHES_PER_SECOND = 0.5  # drawing takes time from ranks that use every core


class StudyProgress:
    """A bar with the time left in a terminal, a line per launch elsewhere (a batch job's log).

    `planned` has the planned seconds of each launch, by id.
    """

    def __init__(self, planned: dict[str, float]) -> None:
        self._planned = dict(planned)
        self._console = Console()
        self._done = 0.0  # planned seconds of the launches that have ended
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
        self._task = self._progress.add_task("starting", total=len(planned), left="")

    def __enter__(self) -> StudyProgress:
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
        self._done += self._planned.pop(launch)
        self._progress.advance(self._task)
        for record in failures:
            if record.failure:
                text = f"failed: {record.case.id}: {record.failure.message}"
                self._progress.console.print(text, markup=False, highlight=False)

    def _seconds_left(self) -> float:
        """What is planned, at the pace so far."""
        pace = (time.monotonic() - self._begin) / self._done if self._done else 1.0
        return pace * sum(self._planned.values())
