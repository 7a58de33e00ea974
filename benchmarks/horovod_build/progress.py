"""How far a build is, and which step it failed in, by the lines that pip, CMake and make print.

Shown as a bar in a terminal, as a line now and then elsewhere.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from types import TracebackType
from typing import Literal

from rich.console import Console
from rich.progress import BarColumn, TaskProgressColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Rich

Step = Literal[
    "source package",
    "configure",
    "compile torch",
    "compile TensorFlow",
    "link",
    "install",
    "import check",
]
_PERCENT = re.compile(r"\[ *(\d+)%\] (Building|Linking|Built)\b(.*)")
_MAKE_FAILED = re.compile(r"\*\*\* \[[^\]]*?([^\s:\]]+)\] Error \d+")
_CONFIGURE_FAILED = re.compile(r"CMake Error|-- Configuring incomplete")
# A compiler's own words, else CMake's, else pip's: what is said first is the cause, what follows its consequences.
_REASONS = (
    re.compile(r"(?:fatal )?error: .*"),
    re.compile(r"(?<=ld: ).*(?:cannot find|undefined reference).*"),
    re.compile(r"(?<=CMake Error at ).*"),
    re.compile(r"(?<=ERROR: ).*"),
)
_NO_NETWORK = re.compile(
    r"NewConnectionError|NameResolutionError|ConnectTimeout|ProxyError|Max retries exceeded"
)
_MOST_CHARACTERS = 200


class BuildProgress:
    """The state of a build after the lines that were read so far."""

    def __init__(self) -> None:
        self.step: Step = "source package"
        self.percent = 0  # of what make does
        self._blamed: Step | None = None
        self._reasons: list[str | None] = [None] * len(_REASONS)
        self._no_network = self._make_failed = False

    def read(self, line: str) -> None:
        """One line of output."""
        line = line.strip()
        self._no_network |= bool(_NO_NETWORK.search(line))
        if line == "running build_ext":
            self.step = "configure"
        elif found := _PERCENT.match(line):
            self.percent = int(found[1])
            if found[2] != "Built":
                self.step = _step_of(found[3], linking=found[2] == "Linking")
        elif self._blamed is None and (found := _MAKE_FAILED.search(line)):
            # Compilers run side by side: the last one that was started need not be the one that failed.
            if "/" in found[1]:
                self._blamed = _step_of(found[1], linking=".so" in found[1])
                self._make_failed = True
        elif self._blamed is None and self.step == "configure" and _CONFIGURE_FAILED.search(line):
            self._blamed = "configure"
        for place, pattern in enumerate(_REASONS):
            if self._reasons[place] is None and (found := pattern.search(line)):
                self._reasons[place] = found[0][:_MOST_CHARACTERS]

    @property
    def failed(self) -> bool:
        """Whether the build cannot succeed any more, though make goes on with the other framework for minutes."""
        return self._make_failed

    @property
    def failed_step(self) -> Step:
        """The step to blame, given that the build failed."""
        return self._blamed or self.step

    @property
    def reason(self) -> str:
        """The first complaint, given that the build failed."""
        if self._no_network and self.failed_step == "source package":
            return "the package registry cannot be reached; a build needs the network, a kept wheel does not"
        return next((reason for reason in self._reasons if reason), "it printed no error")


def _step_of(file: str, *, linking: bool) -> Step:
    if linking:
        return "link"
    return "compile TensorFlow" if "horovod/tensorflow/" in file else "compile torch"


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

    def at(self, progress: BuildProgress) -> None:
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

    def at(self, progress: BuildProgress) -> None:
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
