"""Studies of every workload on one GPU in each precision of the device: not compiled, then compiled.

studies.py LOGS [--device gpu] [--preset paper] [--seconds 480]

One launch of the shortest windows each. A study that has not ended by `--seconds` is interrupted, and its page drawn of
what there is; the same command with the same LOGS goes on from there. Records and pages go into LOGS/records.zip, which
is never larger than 64 MiB. Ends with a list of what passed, and with 1 if anything did not.
"""

from __future__ import annotations

import json
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
from dlscale.models.frameworks import check_precision, check_tf32, gpu_module

LEAST_SECONDS = {"no": 40, "yes": 70}  # by `compiled`: for a study's start, a launch, and its page on an H100
PAGE_SECONDS = 15
# A rehearsal on cores is no measurement: as few steps as audits and gates need.
SETTINGS = {"cpu": ("warmup_steps=5", "min_windows=2", "min_steps=10"), "gpu": ()}
MOST_BYTES = 64 << 20
KEPT = (".json", ".jsonl", ".csv", ".html", ".toml", ".txt", ".log")


def precisions(device: str) -> list[str]:
    """Those that torch has on the device."""
    found = []
    for precision in get_args(Study.model_fields["precision"].annotation):
        try:
            check_precision(precision, device=device)
            check_tf32("torch", gpu_module("torch").without_tf32() if precision == "tf32" else ())
        except UsageError:
            continue
        found.append(precision)
    return found


def workloads(compiled: str, device: str) -> tuple[str, ...]:
    """All; of the compiled ones on cores only the first, as the largest takes more than five minutes of two cores."""
    return NAMES[:1] if (compiled, device) == ("yes", "cpu") else NAMES


def run(compiled: str, logs: Path, *, device: str, preset: str, seconds: float) -> str:
    """Run the study of all workloads and precisions, or go on with it; says what came of it."""
    if seconds < LEAST_SECONDS[compiled]:
        return f"not begun: {max(seconds, 0.0):.0f} s were left"
    results, dlscale = str(logs / f"studies-{compiled}"), str(Path(sys.prefix) / "bin" / "dlscale")
    words = [
        *(dlscale, "run", "weak-scaling", "--device", device, "--ranks", "1", "--backends", "none"),
        *("--frameworks", "torch", "--workloads", ",".join(workloads(compiled, device))),
        *("--preset", preset, "--data", "synthetic"),
        *("--precision", "|".join(precisions(device)), "--set", f"compiled={compiled}"),
        *("--launches", "1", "--set", "reference_launches=0", "--results", results),
        *(word for setting in SETTINGS[device] for word in ("--set", setting)),
    ]
    with (logs / f"study-{compiled}.txt").open("ab") as output:
        process = subprocess.Popen(words, stdout=output, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL)
        try:
            return f"ended with status {process.wait(seconds - PAGE_SECONDS)}"
        except subprocess.TimeoutExpired:
            process.terminate()  # which dlscale hands on to its ranks
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
        subprocess.run(
            [dlscale, "report", "--results", results], stdout=output, stderr=subprocess.STDOUT, check=False
        )
    return f"interrupted after {seconds - PAGE_SECONDS:.0f} s"


def outcomes(logs: Path, device: str) -> dict[str, str]:
    """What came of each workload, precision and way to run: "passed", the failure, or that there is no record."""
    found = {
        f"{workload}, {precision}{', compiled' * (compiled == 'yes')}": "not measured"
        for compiled in LEAST_SECONDS
        for workload in workloads(compiled, device)
        for precision in precisions(device)
    }
    for path in sorted(logs.glob("studies-*/*/*/records/*.json")):
        record = json.loads(path.read_text())
        cell, failure = record["case"]["cell"], record["failure"]
        title = f"{cell['workload']}, {cell['precision']}{', compiled' * cell['compiled']}"
        found[title] = f"failed: {failure['message'][:200]}" if failure else "passed"
    return found


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
@click.option("--seconds", default=480.0, help="Seconds until the last study is interrupted.")
def main(logs: Path, device: str, preset: str, seconds: float) -> None:
    """Run both studies, pack their records, and list what passed."""
    logs = logs.resolve()
    logs.mkdir(parents=True, exist_ok=True)
    end = time.monotonic() + seconds
    for compiled in LEAST_SECONDS:
        title = f"study{', compiled' * (compiled == 'yes')}"
        click.echo(
            f"{title}, of {', '.join(workloads(compiled, device))} in {', '.join(precisions(device))} ..."
        )
        left = end - time.monotonic()
        click.echo(f"{title}: {run(compiled, logs, device=device, preset=preset, seconds=left)}")
    click.echo(pack(logs))
    found = outcomes(logs, device)
    for title, outcome in found.items():
        click.echo(f"study of {title}: {outcome}")
    sys.exit(any(outcome != "passed" for outcome in found.values()))


if __name__ == "__main__":
    main()
