"""What the report of very many records costs: from files to the page.

    python tests/benchmark/report.py                        10,000 records of 100 windows on 1 to 8 ranks
    python tests/benchmark/report.py --records 1000

Prints a line per stage, and exits with 1 if one million windows take more than 30 s or 2 GB (fewer in proportion, on
top of what Python and its libraries need), or the page has more than 8 MB. Times are those of a process of its own.
"""

import argparse
import random
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import TypeVar

import made_records

from dlscale.benchmarks.records.record import Case, Cell
from dlscale.benchmarks.records.store import Store

T = TypeVar("T")
ALLOWED_SECONDS, ALLOWED_GIGABYTES, ALLOWED_PAGE_MEGABYTES = 30.0, 2.0, 8.0
START_SECONDS, START_GIGABYTES = 3.0, 0.3  # of Python with pandas, scipy and matplotlib
NUM_WINDOWS = 100
KEPT = {"none": 0.99, "ring": 0.97, "mpi": 0.93, "gloo": 0.9, "horovod": 0.94}  # of the speed, per doubling
RANK_COUNTS = (1, 2, 4, 8)
WORKLOADS = ("hep_cnn", "cosmogan")
FRAMEWORKS = ("torch", "tensorflow")


def write_study(folder: Path, num_records: int) -> None:
    """A study of two workloads in two frameworks over five backends; one launch in fifty failed."""
    numbers = random.Random(1)  # noqa: S311 - numbers, not secrets
    cells = [
        Cell(
            workload=workload,
            preset="tiny",
            framework=framework,
            backend=backend,
            environment=".venv",
            scaling_mode="weak",
            num_ranks=num_ranks,
            cores_per_rank=1,
            threads_per_rank=1,
            local_batch=2,
            global_batch=2 * num_ranks,
            precision="fp32",
            data="synthetic",
        )
        for workload, framework, backend, num_ranks in product(WORKLOADS, FRAMEWORKS, KEPT, RANK_COUNTS)
    ]
    cases = [
        Case(cell=cells[index % len(cells)], block=index // len(cells), position=index % len(cells))
        for index in range(num_records)
    ]
    store = Store(folder)
    launches = [[case.model_dump(mode="json")] for case in cases]
    store.open({"schema": 1, "study": {"name": "weak-scaling"}, "launches": launches})
    made_records.NUM_WINDOWS = NUM_WINDOWS
    for index, case in enumerate(cases):
        made_records.NUM_RANKS = case.cell.num_ranks
        made = made_records.record(case, numbers, failed=index % 50 == 49)
        slower = KEPT[case.cell.backend] ** -(case.cell.num_ranks.bit_length() - 1)
        windows = [
            window.model_copy(update={"seconds": [slower * one for one in window.seconds]})
            for window in made.windows
        ]
        made = made.model_copy(update={"windows": windows})
        (store.records_folder / f"{case.id}.1.json").write_text(made.model_dump_json() + "\n")


def make_page(folder: Path, path: Path) -> None:
    """What `dlscale report` does for the page, stage by stage."""
    begin = time.perf_counter()
    from dlscale.analysis.finding import collect
    from dlscale.analysis.findings import load_all
    from dlscale.analysis.findings.failures import of_one_fingerprint
    from dlscale.analysis.measured import measure as measured
    from dlscale.analysis.render.html.document import write_page
    from dlscale.analysis.render.html.page import page_of
    from dlscale.benchmarks.records.files import load_records, uncollected

    print(f"imports: {time.perf_counter() - begin:.2f} s")
    with uncollected():
        records, bad = timed("reading", lambda: load_records(folder))
        kept, left_out = timed("fingerprints", lambda: of_one_fingerprint(records))
        planned = timed("the plan", Store(folder).planned)
        study = timed("launches", lambda: measured(kept, planned=planned, bad_files=bad, left_out=left_out))
        found = timed("findings", lambda: collect(load_all(), study))
        page = timed("content", lambda: page_of(study, found))
        timed("file", lambda: write_page(page, path))
    print(f"all: {time.perf_counter() - begin:.2f} s, of a core {time.process_time():.2f} s")


def timed(what: str, work: Callable[[], T]) -> T:
    """The result of `work`, after a line with its time."""
    begin, worked = time.perf_counter(), time.process_time()
    found = work()
    seconds, worked = time.perf_counter() - begin, time.process_time() - worked
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    print(f"{what}: {seconds:.2f} s, of a core {worked:.2f} s (peak memory so far {peak:.2f} GB)", flush=True)
    return found


def measure(results: Path, num_records: int) -> bool:
    folder, path = results / "local" / "weak-scaling-00000000", results / "report.html"
    timed(f"(writing {num_records} records)", lambda: write_study(folder, num_records))
    size = sum(one.stat().st_size for one in (folder / "records").iterdir())
    print(f"(files of {size / 1e6:.0f} MB)", flush=True)
    begin = time.perf_counter()
    subprocess.run([sys.executable, __file__, "--page", str(folder), str(path)], check=True)
    seconds = time.perf_counter() - begin
    gigabytes = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1e6
    megabytes = path.stat().st_size / 1e6
    share = num_records * NUM_WINDOWS / 1e6
    print(f"from files to page: {seconds:.1f} s, {gigabytes:.2f} GB, a page of {megabytes:.1f} MB")
    return (
        seconds <= START_SECONDS + share * (ALLOWED_SECONDS - START_SECONDS)
        and gigabytes <= START_GIGABYTES + share * (ALLOWED_GIGABYTES - START_GIGABYTES)
        and megabytes <= ALLOWED_PAGE_MEGABYTES
    )


def main() -> int:
    parser = argparse.ArgumentParser(description="What the report of very many records costs.")
    parser.add_argument("--records", type=int, default=10_000)
    parser.add_argument(
        "--folder", type=Path, help="Where; default: the system's temporary folder, on a disk."
    )
    parser.add_argument("--page", nargs=2, type=Path, metavar=("STUDY", "FILE"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.page:
        make_page(*options.page)
        return 0
    with tempfile.TemporaryDirectory(dir=options.folder) as name:
        return 0 if measure(Path(name) / "results", options.records) else 1


if __name__ == "__main__":
    sys.exit(main())
