"""One launch as a rank sees it, bound to its cores: the straight line from its specification to its spool."""

from __future__ import annotations

import gc
import os
import platform
import resource
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from dlscale.benchmarks.rank.case import CaseRun, LaunchContext, Measurement, measure_training
from dlscale.benchmarks.rank.gates import NUM_SAMPLES, control_gate, split_gate, update_gates
from dlscale.benchmarks.rank.measure import CommunicatorControl
from dlscale.benchmarks.rank.observers import (
    EnergyMeter,
    GpuMemoryMeter,
    HaloMeter,
    Observer,
    StepMeter,
    watch_other_programs,
)
from dlscale.benchmarks.rank.process import local_rank, require_local_rank
from dlscale.benchmarks.rank.spec import LaunchSpec
from dlscale.benchmarks.records.cell import Cell
from dlscale.benchmarks.records.spool import (
    CaseEnd,
    Phase,
    PhaseName,
    RankInfo,
    SpoolWriter,
    boot_id,
    node_facts,
)
from dlscale.benchmarks.systems.limits import cpu_quota
from dlscale.collectives.control import ControlPlane
from dlscale.collectives.job import ServerSplit, split
from dlscale.collectives.neighbours import (
    CarriedNeighbours,
    absent_neighbours,
    carrier_of,
    connect_neighbours,
    over_control,
)
from dlscale.collectives.registry import connect, preload, serve
from dlscale.collectives.sharding import NONE
from dlscale.models.frameworks import framework_module, gpu_module, repeatable, taken_gpu
from dlscale.models.parallel import Neighbours
from dlscale.models.workload import ReplicaFactory, Shard


def run_launch_on_rank(
    spec: LaunchSpec, spool: SpoolWriter, plane: ControlPlane, *, cores: list[int], process_start: float
) -> int:
    """Run the launch on this rank; collective. Returns 0 if every gate passed on every rank, else 3."""
    cell = spec.cases[0].cell
    everyone = plane.meet(cell.num_processes)
    require_local_rank(-(-cell.num_processes // cell.num_nodes))
    job = split(everyone, num_servers=cell.num_servers) if cell.num_servers else None
    others = watch_other_programs(everyone, cores=cores, reads=not (job and job.is_server))
    if job and job.is_server:
        _serve(job, spec, spool, cores=cores)
        return 0
    world = job.workers if job else everyone
    # Before the framework has started any thread.
    framework_module(cell.framework).prepare(
        cell.threads_per_rank,
        device=cell.device,
        local_rank=local_rank(),
        precision=cell.precision,
        compiles=any(case.cell.compiled for case in spec.cases),
    )
    gpu = taken_gpu(cell.framework, world, machine=boot_id()) if cell.device == "gpu" else None
    factories = [spec.factory(case.cell) for case in spec.cases]
    _write_place(spool, everyone.Get_rank(), cores=cores, gpu=gpu)
    start_up = time.monotonic() - spec.launched_at if boot_id() == spec.boot_id else None
    if cell.num_nodes > 1:
        # Ranks elsewhere have another clock: they take what the machine's own read when all have started.
        world.Barrier()
        readings = world.allgather(start_up and time.monotonic() - spec.launched_at)
        start_up = start_up or next((reading for reading in readings if reading), None)
    if start_up is not None:
        spool.write(Phase(name="start_up", seconds=start_up))
    with _phase(spool, "import_backend"):
        preload(cell.backend, cell.framework)
    with _phase(spool, "connect"):
        # One rank of a machine watches other programs, and one of a node energy.
        observers: list[Observer] = [others] if others else []
        if local_rank() == 0:
            observers += [EnergyMeter("rapl")] + [EnergyMeter("nvml")] * (cell.device == "gpu")
        if cell.device == "gpu":
            observers.append(GpuMemoryMeter(gpu_module(cell.framework)))
        context = _connect(spec, spool, world, job=job, observers=observers)
    gc.freeze()  # what was imported stays, and no collection need visit it
    passed = _pass_gates(context, factories[0])
    gc.enable()
    end = process_start + spec.seconds
    for index, factory in enumerate(factories if passed else ()):
        now = time.perf_counter()
        deadline = now + spec.share(index, end - now)
        case = CaseRun(
            context=context, index=index, cell=spec.cases[index].cell, factory=factory, deadline=deadline
        )
        passed &= context.write_gates(_measurement_of(case.cell)(case), case=index)
        _write_case_end(spool, index)
    world.Barrier()
    if context.carried:
        context.carried.close()
    context.backend.close()
    return 0 if passed else 3


def _connect(
    spec: LaunchSpec, spool: SpoolWriter, world: Any, *, job: ServerSplit | None, observers: list[Observer]
) -> LaunchContext:
    """Join the backend, and the ranks of a replica; collective.

    Raises UsageError where nothing carries what a cell asks for.
    """
    cell = spec.cases[0].cell
    backend = connect(
        cell.backend,
        control=world,
        framework=cell.framework,
        options=cell.backend_options,
        job=job,
        algorithm=cell.algorithm,
        algorithm_options=cell.algorithm_options,
        shard=cell.shard,
    )
    carried: CarriedNeighbours | None = None
    asked: Neighbours | None = None
    beside: Neighbours | None = None
    replica, index = divmod(world.Get_rank(), cell.split)
    if cell.split > 1 and not backend.capabilities.exchanges:
        tensors = cell.device == "gpu" and cell.framework == "torch"
        asked = beside = absent_neighbours(index=index, split=cell.split, takes_tensors=tensors)
    elif cell.split > 1:
        carrier = carrier_of(cell.backend, framework=cell.framework)
        asked = carried = connect_neighbours(carrier, control=world, split=cell.split)
        beside = over_control(world, split=cell.split)
        observers.append(HaloMeter(carried))
    if cell.shard != NONE:
        observers.append(StepMeter(["gather_seconds"], lambda: [backend.gather_seconds()]))
    return LaunchContext(
        spec=spec,
        backend=backend,
        control=CommunicatorControl(world, patient=spec.patient),
        world=world,
        shard=Shard(index=replica, count=max(1, world.Get_size() // cell.split), neighbours=asked),
        spool=spool,
        observers=observers,
        carried=carried,
        beside=beside,
        bucket_bytes=[] if any(case.cell.control == "exchange" for case in spec.cases) else None,
    )


def _pass_gates(context: LaunchContext, factory: ReplicaFactory) -> bool:
    """The gates before any timing; collective. Returns whether all passed."""
    spec, world, shard = context.spec, context.world, context.shard
    cell = spec.cases[0].cell
    with (
        _phase(context.spool, "gates"),
        context.aside(),
        repeatable(cell.framework, device=cell.device),
    ):
        if not context.write_gates([control_gate(world)]):
            return False
        gates = update_gates(
            context.backend, factory, control=world, shard=shard, seed=spec.seed, precision=cell.precision
        )
        passed = context.write_gates(gates)
        if context.carried:
            few = {"local_batch": min(cell.local_batch, NUM_SAMPLES), "precision": "fp64", "compiled": False}
            factory = spec.factory(cell.model_copy(update=few))
            passed &= context.write_gates([split_gate(factory, control=world, shard=shard, seed=spec.seed)])
        return passed


def _measurement_of(cell: Cell) -> Measurement:
    """How a cell is measured: as its control says, else by training. What others need is not imported."""
    if cell.control == "profile":
        from dlscale.benchmarks.rank.profile import measure_profile

        return measure_profile
    if cell.control in ("loader", "exchange", "halos"):
        from dlscale.benchmarks.rank.controls import measure_exchange, measure_halos, measure_loader

        return {"loader": measure_loader, "exchange": measure_exchange, "halos": measure_halos}[cell.control]
    if cell.target:
        from dlscale.benchmarks.rank.solution import train_to_target

        return train_to_target
    return measure_training


def _serve(job: ServerSplit, spec: LaunchSpec, spool: SpoolWriter, *, cores: list[int]) -> None:
    """On a server rank: serve until the workers have closed."""
    cell = spec.cases[0].cell
    framework_module(cell.framework).prepare(cell.threads_per_rank, compiles=False)
    preload(cell.backend, cell.framework)
    _write_place(spool, job.everyone.Get_rank(), cores=cores)
    gc.freeze()
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


@contextmanager
def _phase(spool: SpoolWriter, name: PhaseName) -> Iterator[None]:
    """Spool how long the body took, unless it failed."""
    begin = time.perf_counter()
    yield
    spool.write(Phase(name=name, seconds=time.perf_counter() - begin))


def _write_place(spool: SpoolWriter, rank: int, *, cores: list[int], gpu: str | None = None) -> None:
    """Where this rank is and, on the first one of a node, what the node is."""
    own = RankInfo(
        rank=rank,
        local_rank=local_rank(),
        pid=os.getpid(),
        node=platform.node(),
        boot_id=boot_id(),
        affinity=cores,
        gpu=gpu,
    )
    spool.write(own)
    if own.local_rank == 0:
        spool.write(node_facts())


def _write_case_end(spool: SpoolWriter, index: int) -> None:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    num_throttled = cpu_quota()[1]
    load, _, _ = os.getloadavg()
    spool.write(CaseEnd(peak_rss_bytes=peak, load=load, num_throttled=num_throttled), case=index)
