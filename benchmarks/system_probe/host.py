"""The machine as the probe sees it: its files and commands. Tests put another one in its place."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from dlscale.benchmarks.environment import redact

COMMAND_SECONDS = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """Files are asked for by their absolute paths. What a command complained of is in `problems`."""

    root: Path = Path("/")
    hostname: str = field(default_factory=platform.node)
    today: str = field(default_factory=lambda: datetime.now(UTC).date().isoformat())
    variables: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))
    num_allowed: int = field(default_factory=lambda: len(os.sched_getaffinity(0)))  # hardware threads
    problems: list[str] = field(default_factory=list)

    def text(self, path: str) -> str | None:
        """What a file holds, without surrounding blanks; None if it is not there, cannot be read or is empty."""
        try:
            return (self.root / path.lstrip("/")).read_text(
                encoding="utf-8", errors="replace"
            ).strip() or None
        except OSError:  # many files of /sys exist and cannot be read
            return None

    def names(self, folder: str) -> list[str]:
        """What is in a folder, sorted; nothing if there is no such folder."""
        try:
            return sorted(os.listdir(self.root / folder.lstrip("/")))
        except OSError:
            return []

    def has(self, path: str) -> bool:
        """Whether there is such a file or folder."""
        return (self.root / path.lstrip("/")).exists()

    def find(self, program: str) -> str | None:
        """The program's absolute path, if it is on PATH."""
        return shutil.which(program, path=self.variables.get("PATH"))

    def run(self, program: str, *arguments: str) -> str | None:
        """What a command printed, to stderr if nothing to stdout, as some do with versions and lists.

        None if there is no such program, which is no problem, or if it failed.
        """
        found = self.find(program)
        if not found:
            return None
        try:
            done = subprocess.run(
                [found, *arguments],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
                check=False,
                timeout=COMMAND_SECONDS,
                env={**self.variables, "LC_ALL": "C"},
            )
            if not done.returncode:
                return done.stdout or done.stderr
            said = (done.stderr.strip() or done.stdout.strip() or "it said nothing").splitlines()[-1]
            why = f"exit status {done.returncode}, {said}"
        except subprocess.TimeoutExpired:
            why = f"no answer within {COMMAND_SECONDS:.0f} s"
        except OSError as error:
            why = error.strerror or "cannot be started"
        self.problems.append(redact(f"{Path(program).name} {' '.join(arguments)}: {why}"))
        return None
