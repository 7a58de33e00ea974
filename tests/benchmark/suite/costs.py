"""The command line, the plan, the timed loop, reports of many records, predictions, steps and exchanges."""

import json
import os
import random
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from itertools import product
from pathlib import Path

BIN = Path(sys.prefix) / "bin"
VARIABLES = {"OMP_NUM_THREADS": "1", "MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": "-1"}
KEPT = {"none": 0.99, "ring": 0.97, "mpi": 0.93, "gloo": 0.9, "horovod": 0.94}  # of the speed, per doubling
NUM_WINDOWS = 1000


def run(*words: str) -> resource.struct_rusage:
    """Run dlscale; what this process's children used so far."""
    subprocess.run([str(BIN / "dlscale"), *words], check=False, stdout=subprocess.DEVNULL)
    return resource.getrusage(resource.RUSAGE_CHILDREN)


class Commands:
    """What every call pays; a predicted curve of 1 to 8192 nodes of Cori."""

    def time_help(self) -> None:
        run("--help")

    def time_predict(self) -> None:
        run("predict", "weak-scaling", "--system", "cori", "--backends", "ring", "--nodes", "1:8192:x2")


class Plan:
    """About 10,000 cases: everything between what a user asks and the first launch that needs no other program."""

    def time_dry_run(self) -> None:
        from dlscale.benchmarks.study.expand import expand
        from dlscale.benchmarks.study.study import load_study
        from dlscale.benchmarks.systems.system import load_system

        study = load_study(
            "weak-scaling",
            workloads=["all"],
            frameworks=["all"],
            backends=["none", "ring", "mpi", "horovod"],
            ranks=[1, 2, 4, 8, 16, 32],
            launches=53,
        )
        plan = expand(study, load_system("local"), environment="default", data="synthetic")
        plan.seconds(plan.launches)


class Nothing:
    """A trainer that does nothing."""

    def step(self) -> None: ...

    def synchronize(self) -> None: ...


class TimedLoop:
    """Windows of a trainer that does nothing, with the real barrier and spool."""

    def window_microseconds(self, num_steps: int) -> float:
        """Median time of a whole window, emission included."""
        from mpi4py import MPI

        from dlscale.benchmarks.rank import measure
        from dlscale.benchmarks.records.spool import SpoolWriter

        control, seconds = measure.CommunicatorControl(MPI.COMM_WORLD.Dup()), []
        with tempfile.TemporaryDirectory() as folder:
            spool = SpoolWriter(Path(folder), 0)
            for _ in range(NUM_WINDOWS):
                begin = time.perf_counter()
                spool.write(
                    measure.time_window(Nothing(), control, phase="steady", num_steps=num_steps), case=0
                )
                seconds.append(time.perf_counter() - begin)
            spool.close()
        return statistics.median(seconds) * 1e6

    def track_step_microseconds(self) -> float:
        return (self.window_microseconds(101) - self.window_microseconds(1)) / 100

    def track_window_microseconds(self) -> float:
        return self.window_microseconds(1)


class Records:
    """A study of 10,000 records of 100 windows on 1 to 8 ranks: one million windows. One launch in fifty failed."""

    timeout = 1800

    def setup_cache(self) -> str:
        from tests.made_records import make_record, write_study

        results, numbers = Path("records").absolute(), random.Random(1)  # noqa: S311 - numbers, not secrets
        layers = list(product(("hep_cnn", "cosmogan"), ("torch", "tensorflow"), KEPT, (1, 2, 4, 8)))
        records = (
            make_record(
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
            for index in range(10_000)
            for workload, framework, backend, num_ranks in (layers[index % len(layers)],)
        )
        folder = results / "local" / "weak-scaling-00000000"
        write_study(folder, records, planned=True, schema=1, study={"name": "weak-scaling"})
        return str(results)

    def track_report_cpu_seconds(self, results: str) -> float:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        after = run("report", "--results", results)
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    def track_report_gigabytes(self, results: str) -> float:
        return run("report", "--results", results).ru_maxrss / 1e6


class Steps:
    """A training step of HEP-CNN `small` on resident tensors, one thread, no exchange."""

    params = ("torch", "tensorflow")
    number, repeat, warmup_time = 1, 20, 2.0

    def setup(self, framework: str) -> None:
        os.environ.update(VARIABLES)
        from dlscale.collectives.registry import connect
        from dlscale.models import load_workload
        from dlscale.models.frameworks import framework_module
        from dlscale.models.workload import Input, Shard

        framework_module(framework).prepare(1)
        facts = load_workload("hep_cnn")
        batch = facts.preset("small").local_batch
        factory = facts.factory(framework=framework, preset="small", local_batch=batch, source=Input())
        backend = connect("none", control=None, framework=framework)
        self.trainer = backend.distribute(factory, shard=Shard(), seed=1)

    def time_step(self, framework: str) -> None:  # noqa: ARG002
        self.trainer.step()
        self.trainer.synchronize()


class Exchange:
    """An allreduce of 25 MiB on 2 ranks, a core each: the median over 40 calls of the slowest rank."""

    params = ("ring", "mpi", "gloo")

    def track_allreduce_milliseconds(self, backend: str) -> float:
        words = [str(BIN / "mpiexec"), "-n", "2", sys.executable, __file__, backend]
        done = subprocess.run(words, env=os.environ | VARIABLES, check=True, capture_output=True, text=True)
        return float(json.loads(done.stdout))


def main() -> None:
    """One rank of `Exchange`."""
    import numpy as np
    from mpi4py import MPI

    from dlscale.collectives.registry import connect

    world = MPI.COMM_WORLD
    backend = connect(sys.argv[1], control=world)
    communicator, buffer, seconds = backend.collective(), np.zeros(25 * 2**18, dtype=np.float32), []
    for _ in range(50):
        world.Barrier()
        begin = MPI.Wtime()
        communicator.allreduce(buffer)
        seconds.append(world.allreduce(MPI.Wtime() - begin, MPI.MAX))
    if world.Get_rank() == 0:
        sys.stdout.write(json.dumps(1e3 * float(np.median(seconds[10:]))))
    backend.close()


if __name__ == "__main__":
    main()
