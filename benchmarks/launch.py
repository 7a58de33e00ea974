"""One launch as a rank sees it, after it is bound to its cores: the straight line from orders to spool."""

from __future__ import annotations

import gc
import hashlib
import os
import resource
import time
from pathlib import Path
from typing import Any

from pydantic import PositiveFloat

from dlscale.benchmarks import gates
from dlscale.benchmarks.affinity import local_rank
from dlscale.benchmarks.launchers import SIZE_VARIABLES
from dlscale.benchmarks.measure import Measured, Rules, measure
from dlscale.benchmarks.record import Case, Cell, Frozen, Gate
from dlscale.benchmarks.spool import SpoolWriter
from dlscale.collectives import Backend, connect
from dlscale.models import load_workload
from dlscale.models.errors import UsageError
from dlscale.models.workload import Execution, Input, Replica, ReplicaFactory, Shard, framework_module


class Orders(Frozen):
    """What a launch is to do. All cases have the same backend and ranks; the first decides them."""

    cases: list[Case]
    rules: Rules
    launched_at: float  # seconds since the epoch
    seconds: PositiveFloat  # wall time that the launch may take
    data: str | None  # path of the input; None where every case is synthetic
    skip_bad: bool = False
    seed: int


class MpiControl:
    """The control plane over mpi4py, on a communicator of its own (`measure.Control`)."""

    def __init__(self, communicator: Any) -> None:
        from mpi4py import MPI

        self._communicator = communicator
        self._max = MPI.MAX

    def barrier(self) -> None:
        """Wait for all ranks."""
        self._communicator.Barrier()

    def maximum(self, value: float) -> float:
        """The largest value of all ranks."""
        largest: float = self._communicator.allreduce(value, op=self._max)
        return largest


class LoaderOnly:
    """The loader-only control: a step fetches a batch and drops it."""

    def __init__(self, replica: Replica) -> None:
        self._replica = replica

    def step(self) -> None:
        """Fetch one local batch."""
        self._replica.next_batch()

    def synchronize(self) -> None:
        """A fetched batch is there."""


def run(orders: Orders, spool: SpoolWriter, *, cores: list[int], process_start: float) -> int:
    """Do what the orders say on this rank; collective. Returns 0 if every gate passed, else 3."""
    from mpi4py import MPI

    world = MPI.COMM_WORLD.Dup()
    cell = orders.cases[0].cell
    _check_size(world.Get_size(), cell)
    shard = Shard(index=world.Get_rank(), count=world.Get_size())
    # Before the framework has started any thread.
    framework_module(cell.framework).prepare(cell.threads_per_rank)
    factories = [_factory(case.cell, orders) for case in orders.cases]
    spool.write(
        "hello",
        rank=shard.index,
        local_rank=local_rank(),
        pid=os.getpid(),
        node=MPI.Get_processor_name(),
        boot_id=boot_id(),
        affinity=cores,
        num_threads=cell.threads_per_rank,
    )
    spool.write("phase", name="start_up", seconds=time.time() - orders.launched_at)

    begin = time.perf_counter()
    backend = connect(cell.backend, control=world, options=cell.backend_options)
    spool.write("phase", name="connect", seconds=time.perf_counter() - begin)
    begin = time.perf_counter()
    passed = gates.gradient_gate(
        backend, factories[0], control=world, shard=shard, seed=orders.seed, precision=cell.precision
    )
    spool.write("gates", gates=[gate.model_dump() for gate in passed])
    spool.write("phase", name="gates", seconds=time.perf_counter() - begin)
    if not all(gate.passed for gate in passed):
        return 3
    gc.enable()
    end = process_start + orders.seconds
    all_passed = True
    for index, (case, factory) in enumerate(zip(orders.cases, factories, strict=True)):
        now = time.perf_counter()
        deadline = now + (end - now) / (len(orders.cases) - index)
        runner = _CaseRun(index, case.cell, backend, factory, world, shard, spool)
        after = runner.run(orders.rules, seed=orders.seed, deadline=deadline)
        spool.write("gates", case=index, gates=[gate.model_dump() for gate in after])
        spool.write("case_end", case=index, peak_rss_bytes=peak_rss_bytes())
        all_passed = all_passed and all(gate.passed for gate in after)
    world.Barrier()
    backend.close()
    return 0 if all_passed else 3


class _CaseRun:
    """One case of a launch on one rank."""

    def __init__(
        self,
        index: int,
        cell: Cell,
        backend: Backend,
        factory: ReplicaFactory,
        world: Any,
        shard: Shard,
        spool: SpoolWriter,
    ) -> None:
        self._index, self._cell, self._backend, self._factory = index, cell, backend, factory
        self._world, self._shard, self._spool = world, shard, spool

    def run(self, rules: Rules, *, seed: int, deadline: float) -> list[Gate]:
        """Warm up and measure; collective. Returns the gates that can only be checked afterwards."""
        control = MpiControl(self._world)
        # Only where no rank waits for another do the host's stamps show who was late.
        stamp_steps = not self._backend.capabilities.exchanges and self._cell.control == "train"
        if self._cell.control == "loader":
            replica = self._factory(shard=self._shard, seed=seed)
            steady = measure(LoaderOnly(replica), control, rules, deadline=deadline, emit=self._emit)
            self._result(steady=steady, loss=None, settings={}, skipped=replica.num_skipped())
            return []
        replicas: list[Replica] = []

        def remembered(*, shard: Shard, seed: int, gate: bool = False) -> Replica:
            replicas.append(self._factory(shard=shard, seed=seed, gate=gate))
            return replicas[-1]

        trainer = self._backend.distribute(remembered, shard=self._shard, seed=seed + self._shard.index)
        try:
            steady = measure(
                trainer, control, rules, deadline=deadline, emit=self._emit, stamp_steps=stamp_steps
            )
            found = [gates.finite_gate(trainer, control=self._world)]
            if self._backend.capabilities.exchanges and self._backend.capabilities.synchronous:
                found.append(gates.identity_gate(trainer.weights(), control=self._world, name="identity"))
            self._result(
                steady=steady,
                loss=trainer.loss(),
                settings=trainer.settings(),
                skipped=sum(replica.num_skipped() for replica in replicas),
            )
            return found
        finally:
            trainer.close()

    def _result(self, **values: Any) -> None:
        self._spool.write("result", case=self._index, **values)

    def _emit(self, window: Measured) -> None:
        self._spool.window(self._index, window)


def _factory(cell: Cell, orders: Orders) -> ReplicaFactory:
    source = Input()
    if "synthetic" not in (cell.control, cell.data):
        source = Input(path=Path(str(orders.data)), skip_bad=orders.skip_bad)
    return load_workload(cell.workload).factory(
        framework=cell.framework,
        preset=cell.preset,
        local_batch=cell.local_batch,
        source=source,
        execution=Execution(
            precision=cell.precision, compiled=cell.compiled, memory_format=cell.memory_format
        ),
    )


def _check_size(size: int, cell: Cell) -> None:
    """Another MPI's mpiexec starts P worlds of one rank each, which would train happily."""
    started = next((os.environ[name] for name in SIZE_VARIABLES if name in os.environ), None)
    if size != cell.num_ranks:
        raise UsageError(
            f"asked for {cell.num_ranks} ranks, but MPI sees {size} (the launcher says {started}): mpiexec and "
            "mpi4py belong to different MPIs; use the mpiexec of the same environment"
        )


def boot_id() -> str:
    """A hash that is equal for processes on the same booted machine."""
    text = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii")
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def peak_rss_bytes() -> int:
    """The largest resident set of this process so far; Linux counts it in KiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
