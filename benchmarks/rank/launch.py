"""One launch as a rank sees it, bound to its cores: the straight line from its specification to its spool."""

from __future__ import annotations

import gc
import os
import resource
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from pydantic import PositiveFloat

from dlscale.base.definitions import Frozen
from dlscale.benchmarks.rank.affinity import local_rank
from dlscale.benchmarks.rank.case import CaseRun, LaunchContext, Measurement
from dlscale.benchmarks.rank.checks import update_gates
from dlscale.benchmarks.rank.controls import measure_exchange, measure_loader
from dlscale.benchmarks.rank.energy import node_meter
from dlscale.benchmarks.rank.lifeline import boot_id
from dlscale.benchmarks.rank.measure import MpiBarrierControl, Observer
from dlscale.benchmarks.rank.other_programs import watch_other_programs
from dlscale.benchmarks.rank.profile import measure_profile
from dlscale.benchmarks.rank.solution import train_to_target
from dlscale.benchmarks.rank.training import measure_training
from dlscale.benchmarks.records.provenance import load_average, node_facts
from dlscale.benchmarks.records.record import Case, Cell, Control, num_sharing
from dlscale.benchmarks.records.spool import CaseEnd, Phase, PhaseName, RankInfo, SpoolWriter
from dlscale.benchmarks.study.rules import SHORT_CONTROL_SECONDS, Rules
from dlscale.collectives import ServerSplit
from dlscale.collectives.job import split
from dlscale.collectives.registry import connect, preload, serve
from dlscale.collectives.ring.mpi_match import require_same_world
from dlscale.collectives.training.sleep import sleep_operations
from dlscale.models.frameworks import framework_module, repeatable
from dlscale.models.own import FilePlace, OwnWorkload
from dlscale.models.workload import Execution, Input, ReplicaFactory, Shard, Workload


class LaunchSpec(Frozen):
    """What a launch is to do. All cases have the same backend, ranks and servers; the first decides them.

    `patient`: who waits at a barrier sleeps, because there are more ranks than cores.
    """

    cases: list[Case]
    rules: Rules
    launched_at: float  # of the monotonic clock of the machine `boot_id`, which nobody sets
    boot_id: str = ""
    seconds: PositiveFloat  # wall time that the launch may take
    data: str | None  # path of the input; None where every case is synthetic
    checkpoints: str | None = (
        None  # the study's folder of them; None where trainings are not longer than their windows
    )
    own: FilePlace | None = (
        None  # the study's copy of the user's file; None: the workload is one of dlscale's
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
    spec: LaunchSpec, spool: SpoolWriter, *, cores: list[int], process_start: float
) -> int:
    """Run the launch on this rank; collective. Returns 0 if every gate passed, else 3."""
    from mpi4py import MPI

    everyone = MPI.COMM_WORLD.Dup()
    cell = spec.cases[0].cell
    require_same_world(
        num_ranks=everyone.Get_size(),
        loaded=MPI.get_vendor()[0],
        environment=os.environ,
        asked=cell.num_processes,
    )
    job = split(everyone, num_servers=cell.num_servers) if cell.num_servers else None
    others = watch_other_programs(everyone, cores=cores, reads=not (job and job.is_server))
    if job and job.is_server:
        return _serve(job, spec, spool, cores=cores)
    world = job.workers if job else everyone
    # Before the framework has started any thread.
    framework_module(cell.framework).prepare(
        cell.threads_per_rank,
        device=cell.device,
        local_rank=local_rank(),
        slept=cell.slept is not None,
        deferred=cell.backend_options.get("deferred") == 1,
    )
    factories = [_factory(case.cell, spec) for case in spec.cases]
    _write_rank_info(spool, everyone, cell, cores=cores)
    start_up = seconds_since_launch(spec, world)
    if start_up is not None:
        spool.write(Phase("start_up", start_up))
    _write_node_info(spool, spec)
    observers: list[Observer] = [others] if others else []
    if local_rank() == 0:
        observers.append(node_meter(device=cell.device))
    with _phase(spool, "import_backend"):
        preload(cell.backend, cell.framework)
    with _phase(spool, "connect"):
        backend = connect(
            cell.backend,
            control=world,
            framework=cell.framework,
            options=cell.backend_options,
            job=job,
            algorithm=cell.algorithm,
            algorithm_options=cell.algorithm_options,
        )
    context = LaunchContext(
        backend=backend,
        control=MpiBarrierControl(world, patient=spec.patient),
        world=world,
        shard=Shard(index=world.Get_rank(), count=world.Get_size()),
        rules=spec.rules,
        seed=spec.seed,
        spool=spool,
        observers=observers,
        bucket_bytes=[] if any(case.cell.control == "exchange" for case in spec.cases) else None,
    )
    with _phase(spool, "gates"), repeatable(cell.framework, device=cell.device):
        passed = context.write_gates(
            update_gates(
                backend,
                factories[0],
                control=world,
                shard=context.shard,
                seed=spec.seed,
                precision=cell.precision,
            )
        )
    if not passed:
        backend.close()
        return 3
    gc.enable()
    end = process_start + spec.seconds
    for index, (case, factory) in enumerate(zip(spec.cases, factories, strict=True)):
        now = time.perf_counter()
        run = CaseRun(
            context=context,
            index=index,
            cell=case.cell,
            factory=factory,
            source=_source(case.cell, spec),
            facts=_facts(case.cell, spec),
            reference_factory=_reference_factory(case.cell, spec),
            deadline=now + _share(spec.cases[index:], end - now),
            checkpoints=spec.checkpoints_of(case),
        )
        passed &= context.write_gates(measurement_of(case.cell)(run), case=index)
        _write_case_end(spool, index)
    world.Barrier()
    backend.close()
    return 0 if passed else 3


CONTROLS: dict[Control, Measurement] = {
    "loader": measure_loader,
    "exchange": measure_exchange,
    "profile": measure_profile,
}


def measurement_of(cell: Cell) -> Measurement:
    """How a cell is measured: as its control says, else by training."""
    return CONTROLS.get(cell.control, train_to_target if cell.target else measure_training)


def seconds_since_launch(spec: LaunchSpec, workers: Any) -> float | None:
    """Seconds from the launch to this call; collective over workers. None if none shares the supervisor's machine.

    Ranks elsewhere have another clock. A barrier is the common moment: they take what the first rank on that machine
    reads behind it, less what they waited for the others, exact to the time in which a barrier is left.
    """
    here = boot_id() == spec.boot_id
    if spec.cases[0].cell.num_nodes == 1:
        return time.monotonic() - spec.launched_at if here else None
    begin = time.monotonic()
    workers.Barrier()
    now = time.monotonic()
    readings = workers.allgather(now - spec.launched_at if here else None)
    common = next((reading for reading in readings if reading is not None), None)
    return None if common is None else (now - spec.launched_at if here else common) - (now - begin)


def _share(cases: Sequence[Case], seconds: float) -> float:
    """What the first of those cases may have of the time that is left for all of them."""
    sharing = num_sharing(cases)
    return (seconds - SHORT_CONTROL_SECONDS * (len(cases) - sharing)) / max(1, sharing)


def _serve(job: ServerSplit, spec: LaunchSpec, spool: SpoolWriter, *, cores: list[int]) -> int:
    """On a server rank: serve until the workers have closed. Returns 0."""
    cell = spec.cases[0].cell
    framework_module(cell.framework).prepare(cell.threads_per_rank)
    preload(cell.backend, cell.framework)
    _write_rank_info(spool, job.everyone, cell, cores=cores)
    _write_node_info(spool, spec)
    gc.enable()
    serve(
        cell.backend,
        job=job,
        framework=cell.framework,
        options=cell.backend_options,
        algorithm=cell.algorithm,
        algorithm_options=cell.algorithm_options,
    )
    for index in range(len(spec.cases)):
        _write_case_end(spool, index)
    return 0


@contextmanager
def _phase(spool: SpoolWriter, name: PhaseName) -> Iterator[None]:
    """Spool how long the body took, unless it failed."""
    begin = time.perf_counter()
    yield
    spool.write(Phase(name, time.perf_counter() - begin))


def _write_rank_info(spool: SpoolWriter, everyone: Any, cell: Cell, *, cores: list[int]) -> None:
    from mpi4py import MPI

    spool.write(
        RankInfo(
            rank=everyone.Get_rank(),
            local_rank=local_rank(),
            pid=os.getpid(),
            node=MPI.Get_processor_name(),
            boot_id=boot_id(),
            affinity=cores,
            num_threads=cell.threads_per_rank,
        )
    )


def _write_node_info(spool: SpoolWriter, spec: LaunchSpec) -> None:
    """On the first rank of a node."""
    if local_rank() == 0:
        spool.write(node_facts(results=spool.folder, data=Path(spec.data) if spec.data else None))


def _write_case_end(spool: SpoolWriter, index: int) -> None:
    spool.write(CaseEnd(peak_rss_bytes=peak_rss_bytes(), load=load_average()), case=index)


def _reference_factory(cell: Cell, spec: LaunchSpec) -> ReplicaFactory:
    """Replicas for audits: not compiled, which takes long, but where XLA does it: no eager network rounds alike."""
    by_xla = cell.compiled and cell.framework == "tensorflow"
    return _factory(cell.model_copy(update={"compiled": by_xla}), spec)


def _source(cell: Cell, spec: LaunchSpec) -> Input:
    if "synthetic" in (cell.control, cell.data):
        return Input()
    source = Input(path=Path(cell.own.file if cell.own else str(spec.data)), skip_bad=spec.skip_bad)
    if cell.target is None:
        return source
    return replace(source, held_out=cell.target.held_out, order=spec.seed)


def _facts(cell: Cell, spec: LaunchSpec) -> Workload:
    """The workload of a cell; that of a user's file with the study's copy."""
    facts = cell.facts
    return facts.at(spec.own) if isinstance(facts, OwnWorkload) and spec.own else facts


def _factory(cell: Cell, spec: LaunchSpec) -> ReplicaFactory:
    return _facts(cell, spec).factory(
        framework=cell.framework,
        preset=cell.preset,
        local_batch=cell.local_batch,
        source=_source(cell, spec),
        execution=Execution(
            precision=cell.precision,
            compiled=cell.compiled,
            memory_format=cell.memory_format,
            device=cell.device,
            slept=cell.slept,
            sleep=sleep_operations(cell.framework) if cell.slept else None,
            learning_rate=cell.target.learning_rate if cell.target else None,
            optimizer=cell.target.optimizer if cell.target else None,
        ),
    )


def peak_rss_bytes() -> int:
    """The largest resident set of this process so far; Linux counts it in KiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
