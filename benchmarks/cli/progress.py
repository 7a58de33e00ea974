"""Progress of a running study: one updating line in a terminal, a line per launch elsewhere."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterable
from contextlib import nullcontext
from typing import Self

from rich.live import Live
from rich.text import Text

from dlscale.base.quantities import format_seconds
from dlscale.base.strings import visible
from dlscale.benchmarks.cli.streams import live_console

REFRESHES_PER_SECOND = 1.0  # drawing takes time from ranks that use every core: 0.5 ms
AS_PLANNED = [1.0, 1.0]  # paces that the launches' own are added to: one slow launch says little
SHORTEST_BAR = 8  # characters


class LaunchProgress:
    """The current launch, a bar, how many are done, its time and the time left, once a second.

    A line per launch where the cursor cannot be moved: in files, pipes and dumb terminals.
    """

    def __init__(self, *, num_launches: int, planned_seconds: float, stderr: bool = False) -> None:
        self._console = live_console(stderr=stderr)
        self._what, self._done, self._total = "starting", 0, num_launches
        self._later = planned_seconds  # of the launches that have not begun
        self._planned = 0.0  # of the one that runs
        self._paces = [*AS_PLANNED]  # seconds over planned seconds, of the launches that have ended
        self._begin: float | None = None  # of the one that runs
        self._live = (
            Live(console=self._console, get_renderable=self._line, refresh_per_second=REFRESHES_PER_SECOND)
            if self._console.is_terminal
            else nullcontext()
        )

    def __enter__(self) -> Self:
        self._live.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.__exit__(None, None, None)

    def started(self, what: str, planned_seconds: float) -> None:
        """A launch begins that is planned to take so long."""
        self._begin = time.monotonic()
        self._what, self._planned = what, planned_seconds
        self._later -= planned_seconds
        if isinstance(self._live, Live):
            self._live.refresh()
        else:
            self._print(f"{what}; {self._left(0.0)}")

    def finished(self, failures: Iterable[str] = ()) -> None:
        """The launch ended; its failures are printed, and do not stop the others."""
        if self._planned > 0 and self._begin is not None:
            self._paces.append((time.monotonic() - self._begin) / self._planned)
        self._begin = None
        self._done += 1
        for failure in failures:
            self._print(f"failed: {failure}")

    def _line(self) -> Text:
        """One line, however narrow the terminal: the bar goes first, then the end of the launch's name."""
        facts = f"{self._done} of {self._total} launches"
        if self._begin is not None:
            elapsed = time.monotonic() - self._begin
            facts += f", {format_seconds(elapsed)}, {self._left(elapsed)}"
        width = self._console.width - 1
        name = Text(visible(self._what))
        name.truncate(max(0, width - len(facts) - 2), overflow="ellipsis")
        bar = width - name.cell_len - len(facts) - 4
        filled = bar * self._done // max(1, self._total)
        drawn = [("━" * filled, "bar.complete"), ("━" * (bar - filled), "bar.back"), "  "]
        line = Text.assemble(name, "  ", *(drawn if bar >= SHORTEST_BAR else ()), facts, no_wrap=True)
        line.truncate(width)
        return line

    def _left(self, elapsed: float) -> str:
        """What is planned at the median pace so far, of failed launches too; one that takes longer has none left."""
        pace = statistics.median(self._paces)
        own = max(0.0, pace * self._planned - elapsed)
        return f"{format_seconds(own + pace * max(0.0, self._later))} left"

    def _print(self, line: str) -> None:
        self._console.print(visible(line), markup=False, highlight=False, soft_wrap=True)
