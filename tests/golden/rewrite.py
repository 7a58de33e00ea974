"""What the analysis says of the records beside this file, as data: `expected`; in words: `expected-text`.

    python tests/golden/rewrite.py

writes both anew. Read the difference before you commit it: the same records must give the same numbers, and a number
that changes is a change of docs/metrics.md, of the rules or of a format that others read. Only the command line is
used, so that code may move freely.

`records` has a folder per study, as `dlscale run` wrote it; upgrade.py beside it follows a new schema.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import shlex
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any
from unittest.mock import patch

import matplotlib.pyplot  # noqa: F401  it cannot be imported once savefig is patched

from dlscale.benchmarks.cli import main as dlscale

FOLDER = Path(__file__).parent
RECORDS, DATA, TEXT = FOLDER / "records", FOLDER / "expected", FOLDER / "expected-text"
WIDTH = "100"  # of terminal tables
PLANS = {
    "cori": "weak-scaling --system cori --nodes 1,2,4 --data synthetic",
    "perlmutter": "strong-scaling --system perlmutter --nodes 1,2 --data synthetic --set allow_open_ports=yes",
    "theta": "weak-scaling --system theta --nodes 1:8:x2 --data synthetic --backends none,mpi --launches 8",
}


class Bench:
    """Copies of golden records in the current folder, and what commands give there."""

    def __init__(self, names: list[str]) -> None:
        self.names = names
        self.data: dict[str, str] = {}
        self.text: dict[str, str] = {}
        self.statuses: dict[str, int] = {}
        for number, name in enumerate(names):
            copy = shutil.copytree(RECORDS / name, Path("results", _place(name), name))
            for path in (copy, *copy.rglob("*")):  # git keeps no times, and studies come in their order
                os.utime(path, (number, number))

    def named(self, start: str) -> str:
        return next(name for name in self.names if name.startswith(start))

    def says(self, words: str, data: str = "", text: str = "") -> str:
        """What a command prints; kept as `data` or `text` of that name."""
        said, status = run(words)
        self.statuses[words] = status
        if data and status != 1:
            self.data[data] = said
        else:
            self.text[text or f"{data}.txt"] = said
        return said

    def writes(self, words: str, pattern: str) -> None:
        """Files that a command writes below `out`."""
        shutil.rmtree("out", ignore_errors=True)
        self.says(f"{words} --out out", text=f"{Path(pattern).parent}.txt")
        self.keep("out", pattern)

    def keep(self, folder: str, pattern: str) -> None:
        for path in sorted(Path(folder).glob(Path(pattern).name)):
            self.data[str(Path(pattern).parent / path.name)] = path.read_text(encoding="utf-8")


def no_picture(_: Any, file: io.IOBase, **_options: Any) -> None:
    """In the place of matplotlib's savefig."""
    file.write("<svg/>" if isinstance(file, io.TextIOBase) else b"<svg/>")


def run(words: str) -> tuple[str, int]:
    """What `dlscale WORDS` prints on both streams, and its exit status."""
    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        try:
            dlscale(shlex.split(words))
        except SystemExit as error:
            return said.getvalue(), int(error.code or 0)
    raise AssertionError("the command line did not exit")


def _place(study: str) -> str:
    return "collectives" if study.startswith("collectives") else "local"


def studies() -> list[str]:
    """The names of all studies' folders."""
    return sorted(path.name for path in RECORDS.iterdir())


def names() -> list[str]:
    """Of the folders in `expected`: what is said of each study, and of several or none."""
    return [*studies(), "together"]


def golden(name: str) -> tuple[dict[str, str], dict[str, str]]:
    """Data and texts of one of the `names`, by the names of their files."""
    wanted = studies() if name == "together" else [name]
    with (
        tempfile.TemporaryDirectory() as folder,
        contextlib.chdir(folder),  # no path of this machine is in what commands say
        patch.dict(os.environ, {"COLUMNS": WIDTH, "NO_COLOR": "1"}),
        patch("matplotlib.figure.Figure.savefig", no_picture),  # which take longest
    ):
        one = Bench(wanted)
        if name == "together":
            _together(one)
        elif name.startswith("collectives"):
            _of_collectives(one, name)
        else:
            _of_study(one, name)
        one.data["statuses.json"] = json.dumps(one.statuses)
        return one.data, one.text


def _together(one: Bench) -> None:
    weak, servers = one.named("weak-scaling"), one.named("servers")
    one.says(f"compare {weak} {servers} --json", data="compare.json")
    one.says("figures --published --check --on local --json", data="published-check.json")
    rows = json.loads(run("system list --json")[0])["rows"]
    one.data["systems.json"] = json.dumps({"rows": [_without(row, "here") for row in rows]})
    for name, words in PLANS.items():
        head, _, rest = run(f"run {words} --dry-run")[0].partition("# job-000\n")
        *jobs, summary = rest.split("\n\n")
        one.data[f"plans/{name}.json"] = json.dumps(re.findall(r"/spool/\w+/(\S+)", "\n\n".join(jobs)))
        one.text[f"plans/{name}.txt"] = head + summary


def _of_study(one: Bench, study: str) -> None:
    report = json.loads(one.says(f"report {study} --json", data="report.json"))
    report["environment"] = []  # says nothing that is computed
    one.data["report.json"] = json.dumps({name: rows for name, rows in report.items() if rows})
    one.says(f"compare {study} --json", data="compare.json")
    one.writes(f"proposal {study} --samples 115305030 --runs 5", "proposal/*.csv")
    one.writes(f"export {study}", "tables/launches.csv")
    screen, _ = run(f"report {study}")
    one.text["screen.txt"] = re.sub(r"open: file://.*\n", "", screen)


def _of_collectives(one: Bench, study: str) -> None:
    one.says("collectives report --json", data="report.json")


def _without(row: dict[str, Any], *names: str) -> dict[str, Any]:
    return {name: value for name, value in row.items() if name not in names}


def _pretty(name: str, content: str) -> str:
    """A file's text; of JSON a line per row."""
    if not name.endswith(".json"):
        return content
    value = json.loads(content)
    if isinstance(value, list):
        return "[\n" + ",\n".join(map(json.dumps, value)) + "\n]\n"
    parts = []
    for key, rows in value.items():
        lines = ",\n".join(f"  {json.dumps(row)}" for row in rows) if isinstance(rows, list) else ""
        parts.append(f'"{key}": ' + (f"[\n{lines}\n ]" if lines else json.dumps(rows)))
    return "{\n " + ",\n ".join(parts) + "\n}\n"


def main() -> None:
    """Write all of them."""
    for folder in (DATA, TEXT):
        shutil.rmtree(folder, ignore_errors=True)
    for name in names():
        found = golden(name)
        for folder, files in zip((DATA, TEXT), found, strict=True):
            for file, content in files.items():
                path = folder / name / file
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(_pretty(file, content), encoding="utf-8")
        sys.stdout.write(f"{name}: {len(found[0])} files of data, {len(found[1])} texts\n")


if __name__ == "__main__":
    main()
