"""One case of a launch on one rank: warm up, measure, and the gates that can only be checked afterwards."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any, cast

from dlscale.benchmarks.rank import gates
from dlscale.benchmarks.rank.checkpoints import TrainingRun, check_can_resume
from dlscale.benchmarks.rank.controls import (
    ELEMENT_BYTES,
    ExchangeOnly,
    LoaderOnly,
    bucket_sizes,
    copy_rate,
    shortened_rules,
)
from dlscale.benchmarks.rank.energy import Meter
from dlscale.benchmarks.rank.measure import MpiBarrierControl, measure, step_timer_for
from dlscale.benchmarks.records.record import Cell, Gate
from dlscale.benchmarks.records.spool import MeasuredWindow, SpoolWriter
from dlscale.benchmarks.study.study import Rules
from dlscale.collectives import Backend, CountingTrainer, Trainer
from dlscale.models import load_workload
from dlscale.models.workload import Replica, ReplicaFactory, Shard

STEPS_UNTIL_BUCKETS = 3  # DistributedDataParallel cuts its buckets anew after the first
NUM_COMPARED_LOSSES = 5  # at the begin and at the end, where the loss must fall


class CaseRun:
    """One case on one rank, ready to be run."""

    def __init__(
        self,
        index: int,
        cell: Cell,
        backend: Backend,
        factory: ReplicaFactory,
        control: MpiBarrierControl,
        world: Any,
        shard: Shard,
        spool: SpoolWriter,
        *,
        checkpoints: Path | None = None,
        meter: Meter | None = None,
        sizes: list[int] | None = None,
    ) -> None:
        """`checkpoints` is the folder of this case's, None where it is neither saved nor resumed.

        `meter` is the node's, for the one rank on it that reads it. `sizes` are the launch's, where an
        exchange alone is among its cases: a training leaves there those of its buckets.
        """
        self._index, self._cell, self._backend, self._factory = index, cell, backend, factory
        self._control, self._world, self._shard, self._spool = control, world, shard, spool
        self._checkpoints, self._meter = checkpoints, meter
        self._sizes = sizes

    def run(self, rules: Rules, *, seed: int, deadline: float) -> list[Gate]:
        """Warm up and measure; collective. Returns the gates that can only be checked afterwards."""
        if self._cell.control == "loader":
            replica = self._factory(shard=self._shard, seed=seed)
            steady = measure(LoaderOnly(replica), self._control, rules, deadline=deadline, emit=self._emit)
            self._tell_energy()
            self._result(steady=steady, loss=None, settings={}, skipped=replica.num_skipped())
            return []
        if self._cell.control == "exchange":
            return [self._run_exchange(rules, seed=seed)]
        replicas: list[Replica] = []

        def remembered(*, shard: Shard, seed: int, gate: bool = False) -> Replica:
            replicas.append(self._factory(shard=shard, seed=seed, gate=gate))
            return replicas[-1]

        backend = self._backend
        trainer = backend.distribute(remembered, shard=self._shard, seed=seed + self._shard.index)
        first_losses: list[float] = []

        def emit(window: MeasuredWindow) -> None:
            self._emit(window)
            if window.phase == "warmup" and len(first_losses) < NUM_COMPARED_LOSSES:
                first_losses.append(trainer.loss())

        try:
            course = self._course(trainer, rules)
            together = not backend.asynchronous and backend.num_accepted is None
            steady = measure(
                trainer,
                self._control,
                rules,
                deadline=deadline,
                emit=self._emit if together else emit,
                stamper=step_timer_for(self._cell, exchanges=backend.capabilities.exchanges),
                counting=None if together else cast(CountingTrainer, trainer),
                course=course,
            )
            self._tell_energy()
            found = [gates.finite_gate(trainer, control=self._world)]
            if backend.capabilities.exchanges and not backend.asynchronous:
                found.append(gates.identity_gate(trainer.weights(), control=self._world, name="identity"))
            if backend.asynchronous and self._has_labels():
                last_losses = self._losses_of_further_steps(trainer, len(first_losses))
                found.append(gates.falling_gate(first_losses, last_losses, control=self._world))
            if self._sizes is not None:
                self._sizes[:] = _sizes_of(trainer)
            self._result(
                steady=steady,
                loss=trainer.loss(),
                settings=trainer.settings(),
                skipped=sum(replica.num_skipped() for replica in replicas),
            )
            return found
        finally:
            trainer.close()

    def _run_exchange(self, rules: Rules, *, seed: int) -> Gate:
        """The least that the rules ask for: what an exchange takes varies less than a training."""
        sizes = self._bucket_sizes(seed=seed)
        collective = self._backend.collective()
        try:
            exchange = ExchangeOnly(collective, sizes, self._control.barrier)

            def emit(window: MeasuredWindow) -> None:
                self._spool.window(self._index, window, bucket_seconds=exchange.take_seconds())

            steady = measure(
                exchange, self._control, shortened_rules(rules), deadline=time.perf_counter(), emit=emit
            )
            self._result(
                steady=steady,
                loss=None,
                settings=collective.settings(),
                skipped=None,
                bucket_bytes=sizes,
                copy_rate=copy_rate(self._world),
            )
            return exchange.gate(self._world, wire=self._backend.wire)
        finally:
            collective.close()

    def _bucket_sizes(self, *, seed: int) -> list[int]:
        """Those of the launch's training; of a trainer that takes some steps where it has none; collective."""
        if self._sizes:
            return self._sizes
        trainer = self._backend.distribute(self._factory, shard=self._shard, seed=seed + self._shard.index)
        try:
            for _ in range(STEPS_UNTIL_BUCKETS):
                trainer.step()
            trainer.synchronize()
            return _sizes_of(trainer)
        finally:
            trainer.close()

    def _course(self, trainer: Trainer, rules: Rules) -> TrainingRun | None:
        if self._checkpoints is None:
            return None
        if rules.checkpoint_every:
            check_can_resume(self._backend)
        return TrainingRun(
            trainer,
            rules,
            self._checkpoints,
            case=self._index,
            control=self._control,
            world=self._world,
            spool=self._spool,
        )

    def _has_labels(self) -> bool:
        """Whether the loss is that of a classification: adversaries' losses need not fall."""
        return load_workload(self._cell.workload).preset(self._cell.preset).num_classes > 0

    @staticmethod
    def _losses_of_further_steps(trainer: Trainer, num_steps: int) -> list[float]:
        losses = []
        for _ in range(num_steps):
            trainer.step()
            losses.append(trainer.loss())
        trainer.synchronize()
        return losses

    def _result(self, **values: Any) -> None:
        self._spool.write("result", case=self._index, **values)

    def _emit(self, window: MeasuredWindow) -> None:
        """Between windows: the barrier before the next one holds all ranks until this one is through."""
        self._spool.window(self._index, window)
        if self._meter and window.phase == "warmup":
            self._meter.begin()
        elif self._meter:
            self._meter.passed()

    def _tell_energy(self) -> None:
        if self._meter:
            self._spool.write("energy", case=self._index, readings=self._meter.end())


def _sizes_of(trainer: Trainer) -> list[int]:
    return bucket_sizes(trainer.settings(), sum(weight.size * ELEMENT_BYTES for weight in trainer.weights()))
