"""What measuring costs beside what is measured: the plan, the timed loop, the work per launch."""

import statistics
import subprocess
import tempfile
import time
from pathlib import Path

from dlscale.benchmarks.launch.supervisor import supervise
from dlscale.benchmarks.rank import measure
from dlscale.benchmarks.records.spool import SpoolWriter
from dlscale.benchmarks.records.store import Store
from dlscale.benchmarks.study.expand import expand
from dlscale.benchmarks.study.sizes import shape
from dlscale.benchmarks.study.study import load_study
from dlscale.benchmarks.systems.system import load_system

from . import made_records

NUM_WINDOWS = 1000


class Plan:
    """About 10,000 cases: everything between what a user asks and the first launch that needs no other program."""

    def time_plan(self) -> None:
        study = load_study(
            "weak-scaling",
            workloads=["all"],
            frameworks=["all"],
            backends=["none", "ring", "mpi", "horovod"],
            ranks=[1, 2, 4, 8, 16, 32],
            launches=53,
        )
        system = load_system("local")
        plan = expand(
            study, environment="default", shape=shape(study, system), data="synthetic", policy=system.policy
        )
        plan.seconds(plan.launches)


class Nothing:
    """A trainer that does nothing."""

    def step(self) -> None: ...

    def synchronize(self) -> None: ...


class TimedLoop:
    """Windows of a trainer that does nothing, with the real barrier and spool; with and without host stamps."""

    params = (False, True)
    param_names = ("host_stamps",)

    def window_microseconds(self, num_steps: int, *, stamps: bool) -> float:
        """Median time of a whole window, emission included."""
        from mpi4py import MPI

        control, timer = (
            measure.MpiBarrierControl(MPI.COMM_WORLD.Dup()),
            measure.HostClock() if stamps else None,
        )
        with tempfile.TemporaryDirectory() as folder:
            spool, seconds = SpoolWriter(Path(folder), 0), []
            for _ in range(NUM_WINDOWS):
                begin = time.perf_counter()
                window = measure.time_window(
                    Nothing(), control, phase="steady", num_steps=num_steps, step_timer=timer
                )
                spool.write(window, case=0)
                seconds.append(time.perf_counter() - begin)
            spool.close()
        return statistics.median(seconds) * 1e6

    def track_step_microseconds(self, host_stamps: bool) -> float:
        one, many = (self.window_microseconds(number, stamps=host_stamps) for number in (1, 101))
        return (many - one) / 100

    track_step_microseconds.unit = "us"

    def track_window_microseconds(self, host_stamps: bool) -> float:
        return self.window_microseconds(1, stamps=host_stamps)

    track_window_microseconds.unit = "us"


class Launches:
    """Launch file, watching, record: the work per case beside its launch."""

    def track_case_milliseconds(self) -> float:
        with tempfile.TemporaryDirectory() as folder:
            store = made_records.open_study(Path(folder) / "local" / "weak-scaling-00000000", [])
            return self.mean(store)

    track_case_milliseconds.unit = "ms"

    def mean(self, store: Store) -> float:
        beside = []
        for job, bare in made_records.made_jobs(store, 50):
            begin = time.perf_counter()
            subprocess.run(bare, check=True)
            middle = time.perf_counter()
            supervise(job, store)
            beside.append(time.perf_counter() - middle - (middle - begin))
        return 1e3 * statistics.mean(beside)
