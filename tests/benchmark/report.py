"""What `dlscale report` of very many records costs: from files to the screen and the page.

    python tests/benchmark/report.py                        10,000 records of 100 windows on 1 to 8 ranks
    python tests/benchmark/report.py --records 1000

Exits with 1 if one million windows take more than 10 s of processor time or 1 GB (fewer in proportion, on top of what
Python and its libraries need), or the page has more than 8 MB. Processor time counts, as machines are shared.
"""

import argparse
import random
import resource
import subprocess
import sys
import tempfile
import time
from itertools import product
from pathlib import Path

import made_records

from dlscale.benchmarks.cli import FAILED_CASES
from dlscale.benchmarks.records.record import Case, Cell
from dlscale.benchmarks.records.store import Store

DLSCALE = str(Path(sys.prefix) / "bin" / "dlscale")
ALLOWED_SECONDS, ALLOWED_GIGABYTES, ALLOWED_PAGE_MEGABYTES = 10.0, 1.0, 8.0
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


def measure(results: Path, num_records: int) -> bool:
    """Whether the report of that many records stays within the limits; prints what it costs."""
    folder = results / "local" / "weak-scaling-00000000"
    write_study(folder, num_records)
    size = sum(path.stat().st_size for path in (folder / "records").iterdir())
    begin = time.perf_counter()
    command = [DLSCALE, "report", "--results", str(results)]
    status = subprocess.run(command, stdout=subprocess.DEVNULL, check=False).returncode
    wall, used = time.perf_counter() - begin, resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds, gigabytes = used.ru_utime + used.ru_stime, used.ru_maxrss / 1e6
    megabytes = (folder / "report.html").stat().st_size / 1e6
    print(
        f"{num_records} records, {size / 1e6:.0f} MB: {seconds:.1f} s of a processor ({wall:.1f} s), "
        f"{gigabytes:.2f} GB, a page of {megabytes:.1f} MB"
    )
    share = num_records * NUM_WINDOWS / 1e6
    return (
        status == FAILED_CASES  # one in fifty
        and seconds <= START_SECONDS + share * (ALLOWED_SECONDS - START_SECONDS)
        and gigabytes <= START_GIGABYTES + share * (ALLOWED_GIGABYTES - START_GIGABYTES)
        and megabytes <= ALLOWED_PAGE_MEGABYTES
    )


def main() -> int:
    parser = argparse.ArgumentParser(description="What the report of very many records costs.")
    parser.add_argument("--records", type=int, default=10_000)
    parser.add_argument(
        "--folder", type=Path, help="Where; default: the system's temporary folder, on a disk."
    )
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.folder) as name:
        return 0 if measure(Path(name) / "results", options.records) else 1


if __name__ == "__main__":
    sys.exit(main())
