"""What measuring costs beside what is measured: the plan, the timed loop, the work per launch."""

import os
import random
import shlex
import statistics
import subprocess
import tempfile
import time
from pathlib import Path
from typing import get_args

from dlscale.benchmarks.launch.supervisor import PreparedLaunch, supervise
from dlscale.benchmarks.rank import measure
from dlscale.benchmarks.rank.spec import LaunchSpec
from dlscale.benchmarks.records.assemble import LaunchMetadata
from dlscale.benchmarks.records.spool import (
    CaseEnd,
    CaseResult,
    MeasuredWindow,
    Phase,
    PhaseName,
    RankInfo,
    SpoolWriter,
)
from dlscale.benchmarks.records.store import Store
from dlscale.benchmarks.study.expand import expand
from dlscale.benchmarks.study.rules import Rules
from dlscale.benchmarks.study.sizes import shape
from dlscale.benchmarks.study.study import load_study
from dlscale.benchmarks.systems.system import load_system
from tests.made_records import make_record

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
            measure.CommunicatorControl(MPI.COMM_WORLD.Dup()),
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
            store = Store(Path(folder) / "local" / "weak-scaling-00000000")
            store.open({"schema": 1, "study": {"name": "weak-scaling"}, "launches": []})
            return self.mean(store)

    track_case_milliseconds.unit = "ms"

    def mean(self, store: Store) -> float:
        beside = []
        for job, bare in made_jobs(store, 50):
            begin = time.perf_counter()
            subprocess.run(bare, check=True)
            middle = time.perf_counter()
            supervise(job, store)
            beside.append(time.perf_counter() - middle - (middle - begin))
        return 1e3 * statistics.mean(beside)


def made_jobs(store: Store, number: int) -> list[tuple[PreparedLaunch, list[str]]]:
    """Launches of further attempts whose ranks write all at once, each beside a command that does no less by itself."""
    numbers = random.Random(2)  # noqa: S311 - numbers, not secrets
    made = make_record(backend="ring", num_ranks=2, study="weak-scaling-00000000")
    metadata = LaunchMetadata(**{name: getattr(made, name) for name in LaunchMetadata.model_fields})
    jobs = []
    spools = store.folder / "spools"
    elsewhere = store.folder / "elsewhere"
    spools.mkdir()
    elsewhere.mkdir()
    for rank in range(2):
        _write_spool(spools, rank, numbers)
    for block in range(number):
        case = made.case.model_copy(update={"block": block})
        spool = store.spool_folder / case.id
        spec = LaunchSpec(cases=[case], rules=Rules(), launched_at=0.0, seconds=1.0, data=None, seed=1)
        copy, wait = f"cp {shlex.quote(str(spools))}/*", f"sleep 0.1{numbers.randrange(1000):03d}"
        command = ["sh", "-c", f"{copy} {shlex.quote(str(spool))}; {wait}"]
        job = PreparedLaunch(
            spec=spec, command=command, spool=spool, metadata=metadata, environment=os.environ
        )
        jobs.append((job, ["sh", "-c", f"{copy} {shlex.quote(str(elsewhere))}; {wait}"]))
    return jobs


def _write_spool(folder: Path, rank: int, numbers: random.Random) -> None:
    spool = SpoolWriter(folder, rank)
    spool.write(
        RankInfo(rank=rank, local_rank=rank, pid=1, node="node", boot_id="b", affinity=[rank], num_threads=1)
    )
    for name in get_args(PhaseName):
        spool.write(Phase(name, 1.0))
    for index in range(11):
        phase = "steady" if index else "warmup"
        spool.write(MeasuredWindow(phase, 20, 0.2 * index, 0.15 + numbers.random()), case=0)
    spool.write(CaseResult(steady=True, loss=0.5, skipped=0, settings={"overlap": True}), case=0)
    spool.write(CaseEnd(peak_rss_bytes=1 << 28, load=None), case=0)
    spool.close()
