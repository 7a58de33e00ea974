"""Studies of every workload on one GPU: each precision of the device, not compiled and compiled.

studies.py LOGS [--device gpu] [--preset paper] [--seconds 480]

What matters comes first: all workloads as they are, then compiled. A study that takes longer than its limit is ended,
and none begins after `--seconds`. Records and pages go into LOGS/records.zip, which is never larger than 64 MiB. Ends
with a list of what passed, and with 1 if anything did not.

Estimates come from one H100 on 27 November 2026: 16 s per launch of the check's tiny study. How long compiling takes
there is not known yet: 30 s more per launch are guessed.
"""

from __future__ import annotations

import subprocess
import sys
import time
import zipfile
from pathlib import Path
from typing import get_args

import click

from dlscale.base.errors import UsageError
from dlscale.benchmarks.study.study import Study
from dlscale.models import NAMES
from dlscale.models.frameworks import check_execution, check_tf32, gpu_module

LAUNCH_SECONDS = {"no": 16, "yes": 46}  # by `compiled`
WINDOW_SECONDS = 4  # of budget per launch
MOST_BYTES = 64 << 20
KEPT = (".json", ".jsonl", ".csv", ".html", ".toml", ".txt", ".log")


def precisions(device: str) -> list[str]:
    """Those that torch has on the device."""
    found = []
    for precision in get_args(Study.model_fields["precision"].annotation):
        try:
            check_execution("torch", device=device, precision=precision)
            check_tf32("torch", gpu_module("torch").without_tf32() if precision == "tf32" else ())
        except UsageError:
            continue
        found.append(precision)
    return found


def command(workload: str, compiled: str, logs: Path, *, device: str, preset: str) -> list[str]:
    """The study of a workload in all precisions, one launch each."""
    budget = WINDOW_SECONDS * len(precisions(device)) + LAUNCH_SECONDS[compiled]
    return [
        *(
            str(Path(sys.prefix) / "bin" / "dlscale"),
            "run",
            "weak-scaling",
            "--device",
            device,
            "--ranks",
            "1",
        ),
        *("--backends", "none", "--frameworks", "torch", "--workloads", workload, "--preset", preset),
        *(
            "--precision",
            "|".join(precisions(device)),
            "--set",
            f"compiled={compiled}",
            "--data",
            "synthetic",
        ),
        *(
            "--launches",
            "1",
            "--budget",
            f"{budget}s",
            "--results",
            str(logs / "studies" / f"{workload}-{compiled}"),
        ),
    ]


def run(words: list[str], log: Path, *, seconds: float) -> str:
    """What came of it: "passed", or why not. An ended study has records of the launches until then."""
    with log.open("wb") as output:
        process = subprocess.Popen(words, stdout=output, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL)
        try:
            status = process.wait(seconds)
        except subprocess.TimeoutExpired:
            process.terminate()  # which dlscale hands on to its ranks
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
            return f"ended after {seconds:.0f} s"
    last = log.read_text(errors="replace").strip().rpartition("\n")[2]
    return "passed" if status == 0 else f"failed with status {status}: {last[:200]}"


def pack(logs: Path) -> str:
    """Put what is worth carrying into LOGS/records.zip; says how much, and what had no room."""
    left_out, size = [], 0
    with zipfile.ZipFile(logs / "records.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        for path in sorted((p for p in logs.rglob("*") if p.is_file()), key=lambda path: path.stat().st_size):
            if path.suffix not in KEPT or path.is_symlink():
                continue
            size += path.stat().st_size  # before it is compressed: the archive is smaller in any case
            if size > MOST_BYTES:
                left_out.append(path.name)
            else:
                archive.write(path, path.relative_to(logs))
    said = f"records.zip has {(logs / 'records.zip').stat().st_size / 2**20:.1f} MiB"
    return said + f"; {len(left_out)} files had no room: {', '.join(left_out[:5])}" * bool(left_out)


@click.command()
@click.argument("logs", type=click.Path(path_type=Path))
@click.option("--device", default="gpu")
@click.option("--preset", default="paper")
@click.option("--seconds", default=480.0, help="No study begins later than that.")
def main(logs: Path, device: str, preset: str, seconds: float) -> None:
    """Run all studies, pack their records, and list what passed."""
    logs = logs.resolve()
    logs.mkdir(parents=True, exist_ok=True)
    begin, outcomes = time.monotonic(), {}
    for compiled in LAUNCH_SECONDS:
        for workload in NAMES:
            title = f"{workload}{', compiled' * (compiled == 'yes')}"
            estimate = LAUNCH_SECONDS[compiled] * len(precisions(device))
            left = seconds - (time.monotonic() - begin)
            if left < LAUNCH_SECONDS[compiled]:
                outcomes[title] = f"not begun: {max(left, 0.0):.0f} s were left"
                continue
            click.echo(f"study of {title} in {', '.join(precisions(device))}: about {estimate} s ...")
            outcomes[title] = run(
                command(workload, compiled, logs, device=device, preset=preset),
                logs / f"study-{workload}-{compiled}.txt",
                seconds=min(2.0 * estimate, left),
            )
    click.echo(pack(logs))
    for title, outcome in outcomes.items():
        click.echo(f"study of {title}: {outcome}")
    sys.exit(any(outcome != "passed" for outcome in outcomes.values()))


if __name__ == "__main__":
    main()
