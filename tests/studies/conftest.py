"""Whole studies as a user runs them: the installed command, real ranks, tiny network, resident data."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from dlscale.benchmarks.records.record import Record

DLSCALE = str(Path(sys.prefix) / "bin" / "dlscale")
# Few and short windows: these studies are about what happens, not how fast.
STUDY = """
name = "tiny"
title = "Tiny study"
scaling_mode = "weak"
workloads = ["hep_cnn"]
frameworks = ["torch"]
backends = ["none", "mpi", "gloo", "ring"]
preset = "tiny"
precision = "fp32"
ranks = [1, 2]
base = "smallest"
launches = 1
budget = 1
controls = ["synthetic", "loader"]
[rules]
warmup_steps = 10
min_windows = 3
min_window_seconds = 0.01
min_steps = 3
"""


@dataclass(frozen=True)
class Bench:
    """A folder to run studies in."""

    folder: Path

    @property
    def study(self) -> Path:
        path = self.folder / "tiny.toml"
        if not path.exists():
            path.write_text(STUDY)
        return path

    def command(self, *options: str, study: Path | str | None = None) -> list[str]:
        """A study's command."""
        results = str(self.folder / "results")
        return [DLSCALE, "run", str(study or self.study), "--results", results, *options]

    def run(
        self,
        *options: str,
        study: Path | str | None = None,
        limit: int = 240,
        cwd: Path | None = None,
        **environment: str,
    ):
        return subprocess.run(
            self.command(*options, study=study),
            capture_output=True,
            text=True,
            timeout=limit,
            check=False,
            cwd=cwd,
            env={**os.environ, **environment},
        )

    def ask(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Another command about the study's results."""
        command = [DLSCALE, *words, "--results", str(self.folder / "results")]
        return subprocess.run(command, capture_output=True, text=True, check=False, timeout=240)

    @contextmanager
    def start(self, *options: str, study: Path | str | None = None) -> Iterator[subprocess.Popen[str]]:
        """A study that runs until it ends, or the test does."""
        command = self.command(*options, study=study)
        with (self.folder / "said.txt").open("a") as said:
            process = subprocess.Popen(
                command, stdout=said, stderr=subprocess.STDOUT, text=True, preexec_fn=hear_interrupts
            )
            try:
                yield process
            finally:
                process.kill()
                process.wait()

    def said(self) -> str:
        return (self.folder / "said.txt").read_text()

    def record_files(self) -> list[Path]:
        return sorted(self.folder.glob("results/*/*/records/*.json"))

    def records(self) -> list[Record]:
        return [Record.model_validate_json(path.read_text()) for path in self.record_files()]

    def running_ranks(self) -> dict[int, int]:
        """Process ids of the ranks of the launch that runs now, by rank; those that train already."""
        found = {}
        for events in self.spooled():
            info = [event for event in events if event["event"] == "RankInfo"]
            if info and any(
                event["event"] == "MeasuredWindow" and event["phase"] == "steady" for event in events
            ):
                found[info[0]["rank"]] = info[0]["pid"]
        return found

    def spooled(self, rank: str = "*") -> Iterator[list[dict[str, Any]]]:
        """What each rank of the launch that runs now has written in whole lines."""
        for path in self.folder.glob(f"results/*/*/spool/*/rank-{rank}.jsonl"):
            try:
                text = path.read_text()
            except FileNotFoundError:  # its launch ended since the listing and took its spool along
                continue
            yield [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]


def hear_interrupts() -> None:
    """A shell's background jobs ignore SIGINT, and so would everything that the tests start from one."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)
