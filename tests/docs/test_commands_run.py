"""Every command of the README and of docs/ that takes under a minute runs as it stands; a longer study can be planned.

A command that cannot run here has a line before its block, which a reader does not see:

    <!-- not run: REASON -->                     the whole block
    <!-- not run: REASON: dlscale collectives -->    those of the block that begin so
"""

import json
import os
import re
import shlex
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from dlscale.benchmarks.records.record import Record
from tests.made_records import TARGET, make_record, make_study, solved, write_study

TOP = Path(__file__).parents[2]
PAGES = (TOP / "README.md", *sorted((TOP / "docs").rglob("*.md")))
# Commands that run nowhere here, by their beginning.
ALWAYS = (
    ("checkout", "git clone"),
    ("network", "make collectives"),
    ("network", "dlscale collectives --"),
)
REASONS = {
    "checkout": "makes or installs the checkout, of which this is a copy",
    "cluster": "needs the nodes or the scheduler of a cluster",
    "gpu": "needs GPUs and their libraries",
    "network": "downloads, or needs packages that are not in .venv",
    "root": "needs root and network namespaces",
    "long": "takes over a minute, and no plan says so",
    "files": "reads files that only a reader has",
}
PROGRAM = re.compile(r"(?:\S*/)?(?:dlscale|make|python3?|pip|git|check\.sh)\b|cd ")
UNDER_A_MINUTE = 40  # as planned; start-up and the report come on top
COLLECTIVES = TOP / "tests/golden/records/collectives-20261122T215049Z"


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """The commands of a block of code, and what is said of those that do not run: (reason, their beginning)."""

    commands: tuple[str, ...]
    marks: tuple[tuple[str, str], ...]

    def reason(self, command: str) -> str | None:
        """Why a command does not run here; None if it does."""
        return next((reason for reason, start in (*self.marks, *ALWAYS) if command.startswith(start)), None)


def blocks_of(text: str) -> list[Block]:
    """The blocks of a page that have commands."""
    found = []
    for marks, language, code in re.findall(
        r"((?:^<!-- not run: [^\n]* -->\n)*)^```(\w*)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL
    ):
        if language not in ("", "sh"):
            continue
        lines = code.replace("\\\n", " ").splitlines()
        commands = tuple(line for line in lines if PROGRAM.match(line))
        parts = [mark.partition(": ") for mark in re.findall(r"<!-- not run: (.*) -->", marks)]
        if commands or parts:
            found.append(Block(commands=commands, marks=tuple((reason, start) for reason, _, start in parts)))
    return found


def name_of(page: Path) -> str:
    return str(page.relative_to(TOP))


def test_what_does_not_run_has_a_reason_and_is_still_there():
    every = []
    for page in PAGES:
        text = page.read_text()
        blocks = blocks_of(text)
        assert sum(len(block.marks) for block in blocks) == text.count("<!-- not run"), page
        for block in blocks:
            every += block.commands
            for reason, start in block.marks:
                assert reason in REASONS, f"{page}: {reason}"
                assert any(command.startswith(start) for command in block.commands), f"{page}: {start}"
    for reason, start in ALWAYS:
        assert reason in REASONS
        assert any(command.startswith(start) for command in every), start


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A fresh copy of this checkout with its environment, and what its reader has measured before."""
    copy = tmp_path / "dlscale"
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=TOP, capture_output=True, text=True, check=True)
    older = (TOP / ".venv/.installed").stat().st_mtime - 1  # else make installs it anew
    for name in filter(None, listed.stdout.split("\0")):
        (copy / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(TOP / name, copy / name)
        shutil.copymode(TOP / name, copy / name)
        os.utime(copy / name, (older, older))
    (copy / ".venv").symlink_to(TOP / ".venv")
    shutil.copytree(COLLECTIVES, copy / "results/collectives/20261122T215049Z")
    for name, records in measured().items():
        study, _, _ = name.rpartition("-")
        write_study(copy / "results/local" / name, records, planned=True, schema=1, study={"name": study})
    return copy


def measured() -> dict[str, list[Record]]:
    """Studies that a reader has run before, by the names of the documents."""
    kept = {"none": (1.0, 0.99, 0.95), "ring": (0.99, 0.92, 0.8), "mpi": (0.98, 0.86, 0.7)}
    trainings = [
        solved(
            make_record(backend=backend, num_ranks=num_ranks, block=block, target=TARGET),
            {"step": 5, "seconds": 0.5, "auc": 0.5},
            {"step": 10 + block, "seconds": 1.0 + block / 10, "auc": 0.994},
        )
        for block in range(6)
        for backend, num_ranks in (("none", 1), ("ring", 1), ("ring", 2))
    ]
    speeds = [
        record
        for framework in ("torch", "tensorflow")
        for record in make_study(efficiency=kept, rank_counts=(1, 2, 8), num_blocks=10, framework=framework)
    ]
    return {
        "frameworks-1a2b3c4d": speeds,
        "time-to-solution-1a2b3c4d": trainings,
        "weak-scaling-1a2b3c4d": speeds,
        "weak-scaling-5e6f7a8b": speeds,
    }


class Shell:
    """Runs commands in a checkout, as a reader does."""

    def __init__(self, checkout: Path) -> None:
        self.checkout = checkout
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS"))}
        self.environment = kept | {"PATH": f"{checkout / '.venv/bin'}:{kept['PATH']}"}

    def __call__(self, command: str) -> str:
        """What it prints; an error if it fails or takes much longer than planned."""
        limited = [
            "timeout",
            "--signal=INT",
            "--kill-after=30",
            "600",
            "bash",
            "-ec",
            command,
        ]  # ends ranks as well
        done = subprocess.run(
            limited,
            cwd=self.checkout,
            env=self.environment,
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
            check=False,
        )
        judges = re.search("dlscale (figures --published --check|compare) ", command)
        answers = (0, 2, 4) if judges else (0,)  # 2: they disagree; 4: too little to compare
        assert done.returncode in answers, f"{command}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
        return done.stdout

    def study_of(self, command: str) -> list[str]:
        """The words after `dlscale run` of a study on this machine that a command runs; empty for all else."""
        words = shlex.split(command, comments=True)
        if words[0] == "make":
            printed = self(f"make -n {shlex.join(words[1:])}").splitlines()
            words = next((shlex.split(line) for line in printed if "dlscale run" in line), [""])
        run = Path(words[0]).name == "dlscale" and words[1] == "run" and "--dry-run" not in words
        elsewhere = any(word.startswith(("--system", "system=")) for word in words)
        return words[2:] if run and not elsewhere else []

    def under_a_minute(self, command: str) -> bool:
        """Whether it takes less, by its plan if it runs a study."""
        study = self.study_of(command)
        if not study:
            return True
        lines = self(f"dlscale run {shlex.join(study)} --dry-run --json")
        return sum(cell["seconds_left"] for cell in json.loads(lines)["rows"]) < UNDER_A_MINUTE


@pytest.mark.nightly
@pytest.mark.timeout(3600)
@pytest.mark.requires("ring", "mpiexec", "horovod-torch")
@pytest.mark.parametrize("page", [page for page in PAGES if blocks_of(page.read_text())], ids=name_of)
def test_the_commands_of_a_page_run(page, checkout):
    shell = Shell(checkout)
    failed = []
    for block in blocks_of(page.read_text()):
        for command in block.commands:
            if block.reason(command):
                continue
            try:
                if shell.under_a_minute(command):
                    shell(command)
            except AssertionError as error:
                failed.append(str(error))
    assert not failed, "\n\n".join(failed)
