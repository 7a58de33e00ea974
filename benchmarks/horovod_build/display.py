"""How far a build is, for people: a bar in a terminal, a line now and then elsewhere."""

from __future__ import annotations

import time
from collections.abc import Callable
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, TaskProgressColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Rich

from dlscale.benchmarks.horovod_build.log import Progress

SECONDS_BETWEEN_LINES = 20.0
REFRESHES_PER_SECOND = 1  # drawing takes time from compilers that use every core


class Lines:
    """Each step's line, and how far make is every 20 seconds (`Watch`)."""

    def __init__(self, tell: Callable[[str], None], *, now: Callable[[], float] = time.monotonic) -> None:
        self._tell, self._now = tell, now
        self._told_at = now()

    def tell(self, text: str) -> None:
        """A step begins or has ended."""
        self._told_at = self._now()
        self._tell(text)

    def at(self, progress: Progress) -> None:
        """A line was read."""
        if self._now() - self._told_at >= SECONDS_BETWEEN_LINES:
            self.tell(f"{progress.percent:3d} %  {progress.step}")


class Bar:
    """The bar; nothing but `Lines` where there is no terminal (`Watch`)."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._lines = Lines(self._print)
        self._rich = Rich(
            TextColumn("{task.description}"),
            BarColumn(bar_width=None),
            TaskProgressColumn(),
            TimeElapsedColumn(),
            console=console,
            refresh_per_second=REFRESHES_PER_SECOND,
            disable=not console.is_terminal,
        )
        self._task = self._rich.add_task("", total=100, visible=False)

    def __enter__(self) -> Bar:
        self._rich.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, place: TracebackType | None
    ) -> None:
        self._rich.stop()

    def tell(self, text: str) -> None:
        """A step begins or has ended."""
        self._lines.tell(text)

    def at(self, progress: Progress) -> None:
        """A line was read."""
        if self._console.is_terminal:
            compiling = progress.step not in ("install", "import check")
            self._rich.update(
                self._task, completed=progress.percent, description=progress.step, visible=compiling
            )
        else:
            self._lines.at(progress)

    def _print(self, text: str) -> None:
        self._rich.console.print(text, markup=False, highlight=False, soft_wrap=True)
