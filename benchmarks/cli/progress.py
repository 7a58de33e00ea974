"""Progress of a running study: one updating line in a terminal, lines elsewhere."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterable
from typing import Self

from rich.markup import escape
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TextColumn
from rich.text import Text

from dlscale.base.quantities import format_seconds
from dlscale.base.strings import visible
from dlscale.benchmarks.cli.streams import live_console

REFRESHES_PER_SECOND = 1.0  # drawing takes time from ranks that use every core: 0.5 ms
AS_PLANNED = [1.0, 1.0]  # paces that the launches' own are added to: one slow launch says little


class _Times(ProgressColumn):
    """What the task's function `times` says at the time of drawing."""

    def render(self, task: Task) -> Text:
        """Drawn again at each refresh."""
        return Text(task.fields["times"]())


class LaunchProgress:
    """The current launch and its time, a bar, how many are done, and the time left, once a second.

    A line per launch where the cursor cannot be moved: in files, pipes and dumb terminals.
    """

    def __init__(self, *, num_launches: int, planned_seconds: float, stderr: bool = False) -> None:
        self._console = live_console(stderr=stderr)
        self._later = planned_seconds  # of the launches that have not begun
        self._planned = 0.0  # of the one that runs
        self._paces = [*AS_PLANNED]  # seconds over planned seconds, of the launches that have ended
        self._begin: float | None = None  # of the one that runs
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=None),
            TextColumn("{task.completed} of {task.total} launches"),
            _Times(),
            console=self._console,
            refresh_per_second=REFRESHES_PER_SECOND,
            expand=True,
            disable=not self._console.is_terminal,
        )
        self._task = self._progress.add_task("starting", total=num_launches, times=self._times)

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def started(self, what: str, planned_seconds: float) -> None:
        """A launch begins that is planned to take so long."""
        self._begin = time.monotonic()
        self._planned = planned_seconds
        self._later -= planned_seconds
        self._progress.update(self._task, description=escape(what), refresh=True)
        if not self._console.is_terminal:
            self._print(f"{what}; {self._left(0.0)}")

    def finished(self, failures: Iterable[str] = ()) -> None:
        """The launch ended; its failures are printed, and do not stop the others."""
        if self._planned > 0 and self._begin is not None:
            self._paces.append((time.monotonic() - self._begin) / self._planned)
        self._begin = None
        self._progress.update(self._task, advance=1)
        for failure in failures:
            self._print(f"failed: {failure}")

    def _times(self) -> str:
        """`12 s, 4 min 10 s left`: since the launch began, and until all have ended; nothing between launches."""
        if self._begin is None:
            return ""
        elapsed = time.monotonic() - self._begin
        return f"{format_seconds(elapsed)}, {self._left(elapsed)}"

    def _left(self, elapsed: float) -> str:
        """What is planned at the median pace so far, of failed launches too; one that takes longer has none left."""
        pace = statistics.median(self._paces)
        own = max(0.0, pace * self._planned - elapsed)
        return f"{format_seconds(own + pace * max(0.0, self._later))} left"

    def _print(self, line: str) -> None:
        self._progress.console.print(visible(line), markup=False, highlight=False, soft_wrap=True)
