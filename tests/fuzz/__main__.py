"""Damaged inputs for everything that reads what others hand over: `make fuzz`.

    python -m tests.fuzz [--seed N] [--inputs 20000] [--seconds S] [--target NAME ...]

An input is refused in one line or accepted; an error of any other kind, a signal and a hang are faults. The first input
of each fault is kept in a folder; its seed with `--inputs 1` and `--target` makes it again.
"""

from __future__ import annotations

import itertools
import os
import random
import shutil
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path

import click

from .target import Input, Target
from .targets import TARGETS
from .workers import Batch, Result, run_all

KEPT = Path("build/fuzz")
BATCH = 20  # inputs


def spread(targets: Mapping[str, Target], num_inputs: int) -> dict[str, int]:
    """Inputs of each target, by their shares, at least one each."""
    total = sum(target.share for target in targets.values())
    return {name: max(1, round(num_inputs * target.share / total)) for name, target in targets.items()}


def batches(numbers: Mapping[str, int], seed: int) -> Iterator[Batch]:
    """All inputs in small parts, the targets mixed."""
    parts = [
        Batch(name, range(begin, min(begin + BATCH, number)))
        for name, number in numbers.items()
        for begin in range(0, number, BATCH)
    ]
    random.Random(seed).shuffle(parts)  # noqa: S311
    for name, places in parts:
        yield Batch(name, [seed + place for place in places])


class Report:
    """What was found, by target."""

    def __init__(self, targets: Mapping[str, Target]) -> None:
        self.kinds: dict[str, Counter[str]] = {name: Counter() for name in targets}
        self.slowest: dict[str, float] = defaultdict(float)
        self.faults: dict[tuple[str, str, str], list[Result]] = {}

    def add(self, result: Result) -> bool:
        """Count a result; whether it is a fault that was not seen before."""
        name, outcome = result.name, result.outcome
        self.kinds[name][outcome.kind] += 1
        self.slowest[name] = max(self.slowest[name], outcome.seconds)
        if outcome.kind != "fault":
            return False
        found = self.faults.setdefault((name, outcome.place, outcome.text.partition(":")[0]), [])
        found.append(result)
        return len(found) == 1

    def lines(self) -> Iterator[str]:
        """A table, and the faults."""
        yield f"{'target':<26}{'inputs':>8}{'refused':>9}{'accepted':>10}{'faults':>8}{'slowest':>10}"
        for name, kinds in self.kinds.items():
            slowest = f"{self.slowest[name]:.2f} s"
            yield (
                f"{name:<26}{kinds.total():>8}{kinds['refused']:>9}{kinds['accepted']:>10}{kinds['fault']:>8}{slowest:>10}"
            )
        for (name, place, _), found in self.faults.items():
            yield f"\n{name}: {len(found)} times at {place or '?'}, first with seed {found[0].seed}"
            yield f"  {found[0].outcome.text}"
            yield f"  kept in {kept_folder(found[0])}"


def kept_folder(result: Result) -> Path:
    """Where the input of a fault is kept."""
    return KEPT / f"{result.name.replace(' ', '-').replace('/', '-')}-{result.seed}"


def keep(target: Target, result: Result) -> None:
    """Make the input of a fault again, and keep it."""
    inputs = Input(target)
    folder = kept_folder(result)
    shutil.rmtree(folder, ignore_errors=True)
    folder.parent.mkdir(parents=True, exist_ok=True)
    shutil.move(inputs.make(result.seed), folder)
    inputs.close()


@click.command()
@click.option("--seed", type=click.IntRange(0), help="Seed of the first input; default: a new one.")
@click.option("--inputs", type=click.IntRange(1), default=20_000, show_default=True, help="Inputs in all.")
@click.option("--seconds", type=float, default=None, help="Wall time after which no more inputs are begun.")
@click.option(
    "--target", "names", multiple=True, type=click.Choice(list(TARGETS)), help="Only these targets."
)
@click.option(
    "--workers", type=click.IntRange(1), default=os.cpu_count(), show_default=True, help="Processes."
)
def fuzz(seed: int | None, inputs: int, seconds: float | None, names: tuple[str, ...], workers: int) -> None:
    """Hand damaged inputs to everything that reads what others hand over; exit status 1 where one was a fault."""
    seed = random.SystemRandom().randrange(10**9) * 10**6 if seed is None else seed
    targets = {name: target for name, target in TARGETS.items() if not names or name in names}
    numbers = spread(targets, inputs)
    click.echo(f"seed {seed}: {sum(numbers.values())} inputs for {len(targets)} readers on {workers} workers")
    report, begin = Report(targets), time.monotonic()
    limited = itertools.takewhile(
        lambda _: seconds is None or time.monotonic() - begin < seconds, batches(numbers, seed)
    )
    with tempfile.TemporaryDirectory(prefix="dlscale-fuzz-") as place:
        tempfile.tempdir = place
        for result in run_all(targets, limited, num_workers=workers, logs=Path(place)):
            if report.add(result):
                click.echo(f"fault: {result.name}, seed {result.seed}: {result.outcome.text}")
                keep(targets[result.name], result)
        tempfile.tempdir = None
    click.echo("\n".join(report.lines()))
    num_faults = sum(map(len, report.faults.values()))
    click.echo(f"seed {seed}: {num_faults} faults, {time.monotonic() - begin:.0f} s")
    sys.exit(1 if num_faults else 0)


if __name__ == "__main__":
    fuzz()
