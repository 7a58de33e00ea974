"""From files to the screen and the page: many records of windows, and long trainings to a target."""

import math
import random
import resource
import subprocess
import sys
from itertools import product
from pathlib import Path

from dlscale.benchmarks.records.cell import Cell
from dlscale.benchmarks.records.record import Record
from dlscale.benchmarks.records.target import Evaluation, Solution, Target
from tests.made_records import make_record, write_study

DLSCALE = Path(sys.prefix) / "bin" / "dlscale"
KEPT = {"none": 0.99, "ring": 0.97, "mpi": 0.93, "gloo": 0.9, "horovod": 0.94}  # of the speed, per doubling


def run(*words: str) -> resource.struct_rusage:
    """Run dlscale; what this process's children used so far."""
    subprocess.run([str(DLSCALE), *words], check=False, stdout=subprocess.DEVNULL)
    return resource.getrusage(resource.RUSAGE_CHILDREN)


def cpu_seconds(*words: str) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    after = run(*words)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


class Help:
    """What every call pays."""

    def time_help(self) -> None:
        run("--help")


class Records:
    """A study of 10,000 records of 100 windows on 1 to 8 ranks: one million windows. One launch in fifty failed."""

    timeout = 1800

    def setup_cache(self) -> str:
        results = Path("records").absolute()
        numbers = random.Random(1)  # noqa: S311 - numbers, not secrets
        layers = list(product(("hep_cnn", "cosmogan"), ("torch", "tensorflow"), KEPT, (1, 2, 4, 8)))

        def record(index: int) -> Record:
            workload, framework, backend, num_ranks = layers[index % len(layers)]
            return make_record(
                workload=workload,
                framework=framework,
                backend=backend,
                num_ranks=num_ranks,
                block=index // len(layers),
                samples_per_second=500 * num_ranks * KEPT[backend] ** (num_ranks.bit_length() - 1),
                window_factors=[1 + 0.06 * numbers.random() for _ in range(100)],
                rank_delays=[0.001 * numbers.random() for _ in range(num_ranks)],
                failure="killed by signal 9" if index % 50 == 49 else None,
            )

        folder = results / "local" / "weak-scaling-00000000"
        write_study(
            folder, map(record, range(10_000)), planned=True, schema=1, study={"name": "weak-scaling"}
        )
        return str(results)

    def track_report_cpu_seconds(self, results: str) -> float:
        return cpu_seconds("report", "--results", results)

    track_report_cpu_seconds.unit = "s"

    def track_report_gigabytes(self, results: str) -> float:
        return run("report", "--results", results).ru_maxrss / 1e6

    track_report_gigabytes.unit = "GB"

    def track_page_megabytes(self, results: str) -> float:
        run("report", "--results", results)
        return (Path(results) / "local" / "weak-scaling-00000000" / "report.html").stat().st_size / 1e6

    track_page_megabytes.unit = "MB"

    def track_status_cpu_seconds(self, results: str) -> float:
        return cpu_seconds("status", "--results", results)

    track_status_cpu_seconds.unit = "s"


class Trainings:
    """200 trainings to a target, of 1,000 evaluations each, whose AUC goes to 1 with noise."""

    timeout = 1800

    def setup_cache(self) -> str:
        results = Path("trainings").absolute()
        numbers = random.Random(1)  # noqa: S311 - numbers, not secrets
        target = Target(
            metric="auc",
            threshold=0.99,
            held_out=0.125,
            evaluate_every=10,
            max_seconds=600.0,
            learning_rate=1e-3,
        )
        layers = [("none", 1), *product(("ring", "mpi", "gloo"), (2, 4, 8))]
        every = product(range(10), ("torch", "tensorflow"), layers)

        def record(block: int, framework: str, layer: tuple[str, int]) -> Record:
            backend, num_ranks = layer
            made = make_record(
                framework=framework,
                backend=backend,
                num_ranks=num_ranks,
                block=block,
                local_batch=16,
                target=target,
                window_factors=[1 + 0.06 * numbers.random() for _ in range(1000)],
            )
            return made.model_copy(update={"solution": solution(made.case.cell, numbers)})

        folder = results / "local" / "time-to-solution-00000000"
        records = (record(*each) for each in every)
        write_study(folder, records, planned=True, schema=1, study={"name": "time-to-solution"})
        return str(results)

    def track_report_cpu_seconds(self, results: str) -> float:
        return cpu_seconds("report", "--results", results)

    track_report_cpu_seconds.unit = "s"


def solution(cell: Cell, numbers: random.Random) -> Solution:
    """A training that reaches its target in the last of 1,000 evaluations."""
    evaluations, seconds = [], 0.0
    for place in range(1, 1001):
        seconds += 0.05 * (1 + 0.1 * numbers.random())
        auc = 0.985 - 0.4 * math.exp(-place / 200) + 0.004 * numbers.random()
        evaluations.append(
            Evaluation(
                step=10 * place,
                samples=10 * place * cell.global_batch,
                training_seconds=seconds,
                evaluating_seconds=0.003 * place,
                loss=0.3 * numbers.random() + math.exp(-3 * place / 1000),
                metrics={"auc": 0.99 if place == 1000 else auc, "signal_efficiency": 0.9 * auc},
            )
        )
    return Solution(end="reached", set_up_seconds=0.1, num_held_out=503, evaluations=evaluations)


class Prediction:
    """A curve of 1 to 8192 nodes of Cori."""

    def time_predict(self) -> None:
        run("predict", "weak-scaling", "--system", "cori", "--backends", "ring", "--nodes", "1:8192:x2")
