"""What the report of many long trainings to a target costs: from files to the screen and the page.

    python tests/benchmark/solutions.py                     200 trainings of 1,000 evaluations each
    python tests/benchmark/solutions.py --evaluations 100

Runs `dlscale report` on made-up records in a process of its own, prints its seconds and the page's size, and exits with
1 if it takes more than 10 s of a core.
"""

import argparse
import math
import random
import resource
import subprocess
import sys
import tempfile
import time
from itertools import product
from pathlib import Path

import made_records

from dlscale.benchmarks.records.record import Case, Cell, Record
from dlscale.benchmarks.records.store import Store
from dlscale.benchmarks.records.target import Evaluation, Solution, Target

ALLOWED_SECONDS = 10.0
NUM_TRAININGS = 200
EVERY = 10  # steps between evaluations
BATCH = 16
STEP_SECONDS, EVALUATION_SECONDS = 5e-3, 3e-3


def cells() -> list[Cell]:
    """None on 1 rank, and three backends on 2, 4 and 8, in both frameworks."""
    layers = [("none", 1), *product(("ring", "mpi", "gloo"), (2, 4, 8))]
    target = Target(
        metric="auc",
        threshold=0.99,
        held_out=0.125,
        evaluate_every=EVERY,
        max_seconds=600.0,
        learning_rate=1e-3,
    )
    return [
        Cell(
            workload="hep_cnn",
            preset="tiny",
            framework=framework,
            backend=backend,
            environment=".venv",
            scaling_mode="weak",
            num_ranks=num_ranks,
            cores_per_rank=1,
            threads_per_rank=1,
            local_batch=BATCH,
            global_batch=BATCH * num_ranks,
            precision="fp32",
            target=target,
            data="sample_64.h5:33d1905d50ad",
        )
        for framework, (backend, num_ranks) in product(("torch", "tensorflow"), layers)
    ]


def training(case: Case, numbers: random.Random, num_evaluations: int) -> Record:
    """A training whose AUC goes to 1 with noise, and ends at its last evaluation."""
    made_records.NUM_RANKS, made_records.NUM_WINDOWS = case.cell.num_ranks, num_evaluations
    made = made_records.record(case, numbers)
    evaluations, seconds = [], 0.0
    for place in range(1, num_evaluations + 1):
        seconds += EVERY * STEP_SECONDS * (1 + 0.1 * numbers.random())
        auc = 0.985 - 0.4 * math.exp(-5 * place / num_evaluations) + 0.004 * numbers.random()
        evaluations.append(
            Evaluation(
                step=EVERY * place,
                samples=EVERY * place * case.cell.global_batch,
                training_seconds=seconds,
                evaluating_seconds=place * EVALUATION_SECONDS,
                loss=0.3 * numbers.random() + math.exp(-3 * place / num_evaluations),
                metrics={"auc": 0.99 if place == num_evaluations else auc, "signal_efficiency": 0.9 * auc},
            )
        )
    solution = Solution(end="reached", set_up_seconds=0.1, num_held_out=503, evaluations=evaluations)
    return made.model_copy(update={"solution": solution})


def write_study(folder: Path, num_evaluations: int) -> None:
    """The study, with ten seeds of each cell."""
    numbers = random.Random(1)  # noqa: S311 - numbers, not secrets
    members = cells()
    cases = [
        Case(cell=cell, block=block, position=position)
        for block in range(NUM_TRAININGS // len(members))
        for position, cell in enumerate(members)
    ]
    store = Store(folder)
    launches = [[case.model_dump(mode="json")] for case in cases]
    store.open({"schema": 1, "study": {"name": "time-to-solution"}, "launches": launches})
    for case in cases:
        made = training(case, numbers, num_evaluations)
        (store.records_folder / f"{case.id}.1.json").write_text(made.model_dump_json() + "\n")


def main() -> int:
    parser = argparse.ArgumentParser(description="What the report of many long trainings costs.")
    parser.add_argument("--evaluations", type=int, default=1000, help="Of each of the 200 trainings.")
    parser.add_argument("--folder", type=Path, help="Where the study stays; default: it does not.")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        results = (options.folder or Path(name)) / "results"
        folder = results / "local" / "time-to-solution-00000000"
        if not folder.exists():
            write_study(folder, options.evaluations)
        size = sum(file.stat().st_size for file in (folder / "records").iterdir())
        print(f"{NUM_TRAININGS} trainings of {options.evaluations} evaluations, files of {size / 1e6:.0f} MB")
        begin = time.perf_counter()
        dlscale = Path(sys.executable).with_name("dlscale")
        subprocess.run([dlscale, "report", "--results", str(results)], check=True, stdout=subprocess.DEVNULL)
        wall, used = time.perf_counter() - begin, resource.getrusage(resource.RUSAGE_CHILDREN)
        seconds = used.ru_utime + used.ru_stime
        page = (folder / "report.html").stat().st_size / 1e6
        print(
            f"dlscale report: {wall:.1f} s, of a core {seconds:.1f} s, {used.ru_maxrss / 1e6:.2f} GB, "
            f"a page of {page:.1f} MB"
        )
        return 0 if seconds <= ALLOWED_SECONDS else 1


if __name__ == "__main__":
    sys.exit(main())
