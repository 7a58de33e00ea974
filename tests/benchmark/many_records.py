"""What very many cases and records cost: planning, recording, `status`, `report`'s reading.

    python tests/benchmark/many_records.py                        100,000 records in a temporary folder (1.2 GB)
    python tests/benchmark/many_records.py --records 2000

Prints a line per measurement, and exits with 1 if planning 10,000 cases takes more than 2 s, a case more than 50 ms
beside its launch, or listing 100,000 records with `status` more than 5 s (fewer records in proportion, and the start of
Python on top). Records are those of 10 windows on 2 ranks, with times that are all different.
"""

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from made_records import made_jobs, write_study

from dlscale.benchmarks.launch.supervisor import supervise
from dlscale.benchmarks.records.files import load_records
from dlscale.benchmarks.records.store import Store
from dlscale.benchmarks.study.expand import expand
from dlscale.benchmarks.study.sizes import shape
from dlscale.benchmarks.study.study import load_study
from dlscale.benchmarks.systems.system import load_system

DLSCALE = str(Path(sys.prefix) / "bin" / "dlscale")
ALLOWED_PLAN_SECONDS, ALLOWED_CASE_SECONDS, ALLOWED_STATUS_SECONDS = 2.0, 0.05, 5.0
START_SECONDS = 1.5  # of Python and of what `status` imports, on a busy machine
NUM_LAUNCHES = 100


def planning() -> bool:
    """About 10,000 cases: everything between what a user asks and the first launch that needs no other program."""
    study = load_study(
        "weak-scaling",
        workloads=["all"],
        frameworks=["all"],
        backends=["none", "ring", "mpi", "horovod"],
        ranks=[1, 2, 4, 8, 16, 32],
        launches=53,
    )
    system = load_system("local")
    begin = time.perf_counter()
    plan = expand(
        study, environment="default", shape=shape(study, system), data="synthetic", policy=system.policy
    )
    digest, cost = plan.digest, plan.seconds(plan.launches)
    each = {launch.id: plan.seconds([launch]) for launch in plan.launches}
    seconds = time.perf_counter() - begin
    num_cases = sum(len(launch.cases) for launch in plan.launches)
    print(
        f"planning {num_cases} cases: {seconds:.2f} s ({digest[:8]}, {len(each)} launches, {cost / 3600:.0f} h)"
    )
    return seconds <= ALLOWED_PLAN_SECONDS


def recording(folder: Path) -> bool:
    """The work per case beside the launch itself, among the records that are there."""
    store = Store(folder)
    jobs = made_jobs(store, NUM_LAUNCHES)
    store.next_attempt(jobs[0][0].spec.cases[0])  # looks through the folder, once per run
    beside = []
    for job, bare in jobs:
        begin = time.perf_counter()
        subprocess.run(bare, check=True)
        middle = time.perf_counter()
        supervise(job, store)
        beside.append(time.perf_counter() - middle - (middle - begin))
    mean, worst = sum(beside) / len(beside), max(beside)
    print(
        f"recording a case: {mean * 1e3:.0f} ms beside its launch, the worst of {len(beside)} {worst * 1e3:.0f} ms"
    )
    return mean <= ALLOWED_CASE_SECONDS


def listing(results: Path, what: str, allowed: float) -> bool:
    """`dlscale status` as a user calls it."""
    begin = time.perf_counter()
    said = subprocess.run(
        [DLSCALE, "status", "--results", str(results)], capture_output=True, text=True, check=False
    )
    seconds = time.perf_counter() - begin
    print(f"status, {what}: {seconds:.2f} s ({said.stdout.splitlines()[0].rpartition(': ')[2]}){said.stderr}")
    return seconds <= allowed


def timed(what: str, work: Callable[[], Any]) -> Any:
    """The result of `work`, after a line with its time."""
    begin = time.perf_counter()
    found = work()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    print(f"{what}: {time.perf_counter() - begin:.2f} s (peak memory so far {peak:.1f} GB)")
    return found


def forget(folder: Path) -> None:
    """The contents of the files under `folder` leave memory; their names and times may stay in it."""
    os.sync()
    for path in folder.rglob("*"):
        if path.is_file():
            with path.open("rb") as file:
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def measure(results: Path, num_records: int) -> bool:
    folder = results / "local" / "weak-scaling-00000000"
    allowed = ALLOWED_STATUS_SECONDS * max(num_records / 100_000, 0.0) + START_SECONDS
    good = planning()
    timed(f"(writing {num_records} records)", lambda: write_study(folder, num_records))
    size = sum(path.stat().st_size for path in (folder / "records").iterdir())
    print(f"(files of {size / 1e6:.0f} MB)")
    good &= listing(results, "contents not in memory", allowed) if not forget(folder) else False
    good &= listing(results, "again", allowed)
    good &= recording(folder)
    from dlscale.analysis.efficiency import (
        scaling_table,  # not before: what starts launches is smaller without
    )

    records, _ = timed("reading all records, files", lambda: load_records(folder))
    timed(
        "analysis of all records",
        lambda: scaling_table(records, planned=Store(folder).planned(), parities=[]),
    )
    return good


def main() -> int:
    parser = argparse.ArgumentParser(description="What very many records cost.")
    parser.add_argument("--records", type=int, default=100_000)
    parser.add_argument(
        "--folder", type=Path, help="Where; default: the system's temporary folder, on a disk."
    )
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.folder) as name:
        return 0 if measure(Path(name) / "results", options.records) else 1


if __name__ == "__main__":
    sys.exit(main())
