"""Seeded mutations: how many small faults in the arithmetic that numbers rest on do the tests notice?

    python tests/mutation/mutations.py                     # 200 mutations, into docs/measurements
    python tests/mutation/mutations.py --seed 2 --count 60 --out /tmp/some.csv
    python tests/mutation/mutations.py --module benchmarks/rank/gates.py --count 60   # its rows of the table anew

Mutations (`places`) of the modules of mutations.toml are drawn at random, from each in proportion to its places. One is
killed if the tests named there fail or hang. What survives is a fault that no test would notice, or code that does
nothing. No file of the checkout changes but the tables: a mutated module exists only in the memory of the process that
runs its tests.
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import math
import multiprocessing
import os
import resource
import signal
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

TOP = Path(__file__).parents[2]
sys.path.insert(0, str(TOP))  # as a script this sees its own folder only

from tests.mutation.places import Mutation, draw  # noqa: E402

TARGETS = Path(__file__).with_name("mutations.toml")
TABLE, PAGE = TOP / "docs" / "measurements" / "mutations.csv", TOP / "docs" / "measurements" / "mutations.md"
COLUMNS = ("module", "line", "was", "became", "result", "reason")
KILLED, SURVIVED, EQUIVALENT = "killed", "survived", "equivalent"
NEEDED_SHARE = 0.9
NOT_IMPORTED, BROKEN = 99, 98  # exit statuses: tests did not import the module; pytest itself did not run
PATIENCE = 5  # tests hang if they need that many times their own seconds,
LEAST_LIMIT_SECONDS = 20  # and at least these
MEMORY_BYTES = 6 << 30  # a loop that no longer ends must not take the machine with it


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """Stages of tests that are to notice a mutation of a module, the quickest first; without a mutation, to pass."""

    modules: tuple[str, ...]  # that every stage must import; a mutation is of the first
    mutation: Mutation | None
    stages: tuple[str, ...]  # each some paths
    limits_seconds: tuple[float, ...]

    def status(self) -> tuple[int, float]:
        """(pytest's exit status in the first stage that fails, < 0 if it hung, else 0; seconds)."""
        begin, status = time.perf_counter(), 0
        for stage, limit_seconds in zip(self.stages, self.limits_seconds, strict=True):
            status = status or self._forked(stage, limit_seconds)
        return status, time.perf_counter() - begin

    def _forked(self, stage: str, limit_seconds: float) -> int:
        """In a fork, so that libraries are imported once for all mutations."""
        child = os.fork()
        if child == 0:
            try:
                os._exit(self._run(stage, limit_seconds))
            finally:
                os._exit(BROKEN)
        _, wait_status = os.waitpid(child, 0)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child, signal.SIGKILL)  # what it started and left
        return os.waitstatus_to_exitcode(wait_status)

    def _run(self, stage: str, limit_seconds: float) -> int:
        import pytest

        os.setsid()
        signal.alarm(math.ceil(limit_seconds))  # nothing handles it: the kernel ends the process
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
        nowhere = os.open(os.devnull, os.O_RDWR)
        for descriptor in (0, 1, 2):
            os.dup2(nowhere, descriptor)
        sources = {(TOP / module).resolve(): (TOP / module).read_bytes() for module in self.modules}
        if self.mutation:
            sources = {path: self.mutation.applied_to(source) for path, source in sources.items()}
        imported = _serve(sources)
        with tempfile.TemporaryDirectory() as folder:
            # A timeout of pytest's would take the alarm for itself.
            options = ["-x", "-q", "--timeout=0", "-p", "no:cacheprovider", "-p", "no:xdist"]
            options.append(f"--basetemp={folder}/t")
            status = int(pytest.main([*options, *stage.split()], plugins=[_SameExamples()]))
        return status if status or imported == sources.keys() else NOT_IMPORTED


class _SameExamples:
    """A plug-in of pytest: always the same examples, and no search for the smallest that fails."""

    def pytest_configure(self) -> None:
        from hypothesis import Phase, settings

        phases = [Phase.explicit, Phase.generate]
        settings.register_profile(
            "mutations", max_examples=100, derandomize=True, database=None, phases=phases
        )
        settings.load_profile("mutations")


def _serve(sources: Mapping[Path, bytes]) -> set[Path]:
    """Let the import system find these texts where files are asked for; returns those that were, as it goes."""
    from importlib.machinery import SourceFileLoader

    original = SourceFileLoader.get_code
    imported: set[Path] = set()

    def get_code(self: SourceFileLoader, fullname: str) -> object:
        path = Path(self.path).resolve()
        if path not in sources:
            return original(self, fullname)
        imported.add(path)
        return compile(sources[path], self.path, "exec")

    SourceFileLoader.get_code = get_code  # type: ignore[assignment]
    return imported


def _preload() -> None:
    """What takes long to import and is not mutated."""
    import click
    import matplotlib.pyplot
    import numpy
    import pandas
    import pyarrow
    import pydantic
    import pytest
    import rich.console
    import scipy.stats

    del click, matplotlib, numpy, pandas, pyarrow, pydantic, pytest, rich, scipy


def main() -> int:
    """Write the table; the exit status is 1 if fewer than nine in ten were killed."""
    parser = argparse.ArgumentParser(description="How many seeded faults do the tests notice?")
    parser.add_argument("--count", type=int, default=200, help="Number of mutations of all modules together.")
    parser.add_argument("--seed", type=int, default=1, help="Seed of the drawing.")
    parser.add_argument(
        "--module",
        action="append",
        help="Only mutations of this module (repeatable); in the table they replace those of the module.",
    )
    parser.add_argument("--workers", type=int, default=os.cpu_count(), help="Number of processes.")
    parser.add_argument(
        "--out", type=Path, help="Table to write instead of docs/measurements/mutations.csv and its summary."
    )
    options = parser.parse_args()
    os.chdir(TOP)
    targets: dict[str, list[str]] = settings()["tests"]
    modules = options.module or list(targets)
    if unknown := set(modules) - targets.keys():
        parser.error(f"mutations.toml names no tests of {', '.join(sorted(unknown))}")
    drawn = draw(modules, options.count, options.seed)
    _preload()
    begin = time.perf_counter()
    rows = []
    with multiprocessing.get_context("fork").Pool(options.workers) as pool:
        limits = {}
        for stage, status, seconds in pool.imap(_unmutated, _stages(targets, modules)):
            if status:
                why = {NOT_IMPORTED: "do not import every module", BROKEN: "do not start"}.get(status, "fail")
                print(f"{stage}: without any mutation these tests {why}", file=sys.stderr)
                return 1
            limits[stage] = max(LEAST_LIMIT_SECONDS, PATIENCE * seconds)
            print(f"{seconds:3.0f} s unmutated | {stage}", flush=True)
        trials = [
            Trial(
                modules=(module,),
                mutation=mutation,
                stages=tuple(targets[module]),
                limits_seconds=tuple(limits[stage] for stage in targets[module]),
            )
            for module in modules
            for mutation in drawn[module]
        ]
        for mutation, status, seconds in pool.imap(_mutated, trials):
            rows.append(_row(mutation, dead=status != 0))
            words = " | ".join(filter(None, rows[-1].values()))
            print(f"{len(rows)}/{len(trials)} {seconds:3.0f} s {words}", flush=True)
    if not options.out:
        kept = [row for row in table_rows() if row["module"] not in modules]
        rows = sorted([*kept, *rows], key=lambda row: list(targets).index(row["module"]))
    with (options.out or TABLE).open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    if not options.out:
        PAGE.write_text(with_summary(PAGE.read_text(encoding="utf-8"), rows), encoding="utf-8")
    print(f"{summary(rows)}\n{time.perf_counter() - begin:.0f} s; table in {options.out or TABLE}")
    return 0 if killed_share(rows) >= NEEDED_SHARE else 1


def table_rows() -> list[dict[str, str]]:
    """The rows of the table in docs/measurements, of the modules that there are."""
    with TABLE.open(encoding="utf-8", newline="") as file:
        return [row for row in csv.DictReader(file) if (TOP / row["module"]).exists()]


def _stages(targets: Mapping[str, Sequence[str]], modules: Sequence[str]) -> Iterator[tuple[str, list[str]]]:
    """Each stage, and the modules for which it is one."""
    for stage in dict.fromkeys(stage for module in modules for stage in targets[module]):
        yield stage, [module for module in modules if stage in targets[module]]


def _unmutated(item: tuple[str, list[str]]) -> tuple[str, int, float]:
    stage, modules = item
    trial = Trial(modules=tuple(modules), mutation=None, stages=(stage,), limits_seconds=(600,))
    return stage, *trial.status()


def _mutated(trial: Trial) -> tuple[Mutation, int, float]:
    assert trial.mutation
    return trial.mutation, *trial.status()


def settings() -> dict[str, Any]:
    """Which tests notice what, and which mutations change nothing: mutations.toml."""
    return tomllib.loads(TARGETS.read_text(encoding="utf-8"))


def _row(mutation: Mutation, *, dead: bool) -> dict[str, str]:
    reasons = {
        (entry["module"], entry["was"], entry["became"]): entry["reason"]
        for entry in settings().get("equivalent", [])
    }
    reason = reasons.get((mutation.module, mutation.was, mutation.became), "")
    if dead and reason:
        print(f"mutations.toml says that this changes nothing, and a test failed: {mutation.became}")
    return {
        "module": mutation.module,
        "line": str(mutation.line),
        "was": mutation.was,
        "became": mutation.became,
        "result": KILLED if dead else EQUIVALENT if reason else SURVIVED,
        "reason": "" if dead else reason,
    }


def killed_share(rows: Sequence[dict[str, str]]) -> float:
    """The killed of all that were drawn: an equivalent mutation counts as a survivor."""
    return sum(row["result"] == KILLED for row in rows) / len(rows)


def summary(rows: Sequence[dict[str, str]]) -> str:
    """Counts by module as a Markdown table."""

    def line(name: str, group: Sequence[dict[str, str]]) -> str:
        counts = [sum(row["result"] == result for row in group) for result in (KILLED, SURVIVED, EQUIVALENT)]
        cells = [name, str(len(group)), *map(str, counts), f"{100 * killed_share(group):.0f} %"]
        return f"| {' | '.join(cells)} |"

    modules = list(dict.fromkeys(row["module"] for row in rows))
    return "\n".join(
        [
            "| Module | Drawn | Killed | Survived | Equivalent | Killed of drawn |",
            "| --- | ---: | ---: | ---: | ---: | ---: |",
            *(line(f"`{module}`", [row for row in rows if row["module"] == module]) for module in modules),
            line("All", rows),
        ]
    )


def with_summary(page: str, rows: Sequence[dict[str, str]]) -> str:
    """The page with these counts between its two marks."""
    before, _, rest = page.partition("<!-- summary -->\n")
    _, _, after = rest.partition("<!-- end of summary -->")
    return f"{before}<!-- summary -->\n{summary(rows)}\n<!-- end of summary -->{after}"


if __name__ == "__main__":
    sys.exit(main())
