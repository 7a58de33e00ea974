"""One launch as a rank sees it, bound to its cores: the straight line from its specification to its spool."""

from __future__ import annotations

import gc
import hashlib
import os
import resource
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pydantic import PositiveFloat

from dlscale.base.definitions import Frozen
from dlscale.base.errors import UsageError
from dlscale.benchmarks.rank import gates
from dlscale.benchmarks.rank.affinity import SIZE_VARIABLES, local_rank
from dlscale.benchmarks.rank.case import CaseRun
from dlscale.benchmarks.rank.energy import node_meter
from dlscale.benchmarks.rank.measure import MpiBarrierControl
from dlscale.benchmarks.records.provenance import load_average, node_facts
from dlscale.benchmarks.records.record import Case, Cell, num_sharing
from dlscale.benchmarks.records.spool import SpoolWriter
from dlscale.benchmarks.study.plan import EXCHANGE_SECONDS
from dlscale.benchmarks.study.study import Rules
from dlscale.collectives import Job
from dlscale.collectives.job import split
from dlscale.collectives.registry import connect, preload, serve
from dlscale.models import load_workload
from dlscale.models.frameworks import framework_module
from dlscale.models.workload import Execution, Input, ReplicaFactory, Shard


class LaunchSpec(Frozen):
    """What a launch is to do. All cases have the same backend, ranks and servers; the first decides them.

    `patient`: who waits at a barrier sleeps, because there are more ranks than cores.
    """

    cases: list[Case]
    rules: Rules
    launched_at: float  # seconds since the epoch
    seconds: PositiveFloat  # wall time that the launch may take
    data: str | None  # path of the input; None where every case is synthetic
    checkpoints: str | None = (
        None  # the study's folder of them; None where trainings are not longer than their windows
    )
    skip_bad: bool = False
    patient: bool = False
    seed: int

    def checkpoints_of(self, case: Case) -> Path | None:
        """Where that case's are; None where it has none: only what is trained is saved."""
        if self.checkpoints is None or case.cell.control != "train":
            return None
        return Path(self.checkpoints) / case.id


def run_launch_on_rank(
    orders: LaunchSpec, spool: SpoolWriter, *, cores: list[int], process_start: float
) -> int:
    """Do what the orders say on this rank; collective. Returns 0 if every gate passed, else 3."""
    from mpi4py import MPI

    everyone = MPI.COMM_WORLD.Dup()
    cell = orders.cases[0].cell
    _check_size(everyone.Get_size(), cell)
    job = split(everyone, num_servers=cell.num_servers) if cell.num_servers else None
    world = job.workers if job else everyone
    if job and job.is_server:
        return _serve(job, orders, spool, cores=cores)
    shard = Shard(index=world.Get_rank(), count=world.Get_size())
    # Before the framework has started any thread.
    framework_module(cell.framework).prepare(
        cell.threads_per_rank, device=cell.device, local_rank=local_rank()
    )
    factories = [_factory(case.cell, orders) for case in orders.cases]
    _hello(spool, everyone, cell, cores=cores)
    spool.write("phase", name="start_up", seconds=time.time() - orders.launched_at)
    _look_around(spool, everyone, orders)
    meter = node_meter(device=cell.device) if local_rank() == 0 else None

    begin = time.perf_counter()
    preload(cell.backend, cell.framework)
    spool.write("phase", name="import_backend", seconds=time.perf_counter() - begin)
    begin = time.perf_counter()
    backend = connect(
        cell.backend, control=world, framework=cell.framework, options=cell.backend_options, job=job
    )
    spool.write("phase", name="connect", seconds=time.perf_counter() - begin)
    begin = time.perf_counter()
    gate = gates.turns_gate if backend.asynchronous else gates.gradient_gate
    passed = gate(
        backend, factories[0], control=world, shard=shard, seed=orders.seed, precision=cell.precision
    )
    spool.write("gates", gates=[gate.model_dump() for gate in passed])
    spool.write("phase", name="gates", seconds=time.perf_counter() - begin)
    if not all(gate.passed for gate in passed):
        backend.close()
        return 3
    gc.enable()
    end = process_start + orders.seconds
    all_passed = True
    # Elsewhere nobody asks: to count gradients copies the weights, which would show in the memory of `none`.
    sizes: list[int] | None = [] if any(case.cell.control == "exchange" for case in orders.cases) else None
    for index, (case, factory) in enumerate(zip(orders.cases, factories, strict=True)):
        now = time.perf_counter()
        deadline = now + _share(orders.cases[index:], end - now)
        control = MpiBarrierControl(world, patient=orders.patient)
        runner = CaseRun(
            index,
            case.cell,
            backend,
            factory,
            control,
            world,
            shard,
            spool,
            checkpoints=orders.checkpoints_of(case),
            meter=meter,
            sizes=sizes,
        )
        after = runner.run(orders.rules, seed=orders.seed, deadline=deadline)
        spool.write("gates", case=index, gates=[gate.model_dump() for gate in after])
        spool.write("case_end", case=index, peak_rss_bytes=peak_rss_bytes(), load=load_average())
        all_passed = all_passed and all(gate.passed for gate in after)
    world.Barrier()
    backend.close()
    return 0 if all_passed else 3


def _share(cases: Sequence[Case], seconds: float) -> float:
    """What the first of those cases may have of the time that is left for all of them."""
    sharing = num_sharing(cases)
    return (seconds - EXCHANGE_SECONDS * (len(cases) - sharing)) / max(1, sharing)


def _serve(job: Job, orders: LaunchSpec, spool: SpoolWriter, *, cores: list[int]) -> int:
    """On a server rank: serve until the workers have closed. Returns 0."""
    cell = orders.cases[0].cell
    framework_module(cell.framework).prepare(cell.threads_per_rank)
    preload(cell.backend, cell.framework)
    _hello(spool, job.everyone, cell, cores=cores)
    _look_around(spool, job.everyone, orders)
    gc.enable()
    serve(cell.backend, job=job, framework=cell.framework, options=cell.backend_options)
    for index in range(len(orders.cases)):
        spool.write("case_end", case=index, peak_rss_bytes=peak_rss_bytes(), load=load_average())
    return 0


def _hello(spool: SpoolWriter, everyone: Any, cell: Cell, *, cores: list[int]) -> None:
    from mpi4py import MPI

    spool.write(
        "hello",
        rank=everyone.Get_rank(),
        local_rank=local_rank(),
        pid=os.getpid(),
        node=MPI.Get_processor_name(),
        boot_id=boot_id(),
        affinity=cores,
        num_threads=cell.threads_per_rank,
    )


def _look_around(spool: SpoolWriter, everyone: Any, orders: LaunchSpec) -> None:
    """The first rank on a node says what node it is."""
    if local_rank() == 0:
        data = Path(orders.data) if orders.data else None
        spool.write("node", rank=everyone.Get_rank(), **node_facts(results=spool.folder, data=data))


def _factory(cell: Cell, orders: LaunchSpec) -> ReplicaFactory:
    source = Input()
    if "synthetic" not in (cell.control, cell.data):
        source = Input(path=Path(str(orders.data)), skip_bad=orders.skip_bad)
    return load_workload(cell.workload).factory(
        framework=cell.framework,
        preset=cell.preset,
        local_batch=cell.local_batch,
        source=source,
        execution=Execution(
            precision=cell.precision,
            compiled=cell.compiled,
            memory_format=cell.memory_format,
            device=cell.device,
        ),
    )


def _check_size(size: int, cell: Cell) -> None:
    """Another MPI's mpiexec starts P worlds of one rank each, which would train happily."""
    started = next((os.environ[name] for name in SIZE_VARIABLES if name in os.environ), None)
    if size != cell.num_processes:
        raise UsageError(
            f"asked for {cell.num_processes} ranks, but MPI sees {size} (the launcher says {started}): mpiexec and "
            "mpi4py belong to different MPIs; use the mpiexec of the same environment"
        )


def boot_id() -> str:
    """A hash that is equal for processes on the same booted machine."""
    text = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii")
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def peak_rss_bytes() -> int:
    """The largest resident set of this process so far; Linux counts it in KiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
