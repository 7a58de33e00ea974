"""One case of a launch on one rank: warm up, measure, and the gates that can only be checked afterwards."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

from dlscale.benchmarks.rank import gates
from dlscale.benchmarks.rank.audit import AuditedTraining, ReplayAudit
from dlscale.benchmarks.rank.checkpoints import TrainingRun, check_can_resume
from dlscale.benchmarks.rank.compressed import compressed_gate
from dlscale.benchmarks.rank.controls import (
    ELEMENT_BYTES,
    ExchangeOnly,
    LoaderOnly,
    bucket_sizes,
    copy_rate,
    shortened_rules,
)
from dlscale.benchmarks.rank.deviation import bounds_for
from dlscale.benchmarks.rank.energy import Meter
from dlscale.benchmarks.rank.measure import BarrierControl, measure, step_timer_for
from dlscale.benchmarks.rank.noise import NoiseMeter, unmeasurable_because
from dlscale.benchmarks.rank.other_programs import OtherPrograms
from dlscale.benchmarks.rank.profile import ROUND, ProfiledSteps, profile_gate, profile_rules
from dlscale.benchmarks.rank.rounds import RoundsAudit, rounds_gate
from dlscale.benchmarks.rank.server_audit import ServerAudit
from dlscale.benchmarks.rank.solution import Evaluator, TargetTraining
from dlscale.benchmarks.rank.turns import are_grouped
from dlscale.benchmarks.records.record import Cell, Gate
from dlscale.benchmarks.records.spool import (
    CaseResult,
    Event,
    GateResult,
    MeasuredWindow,
    Phase,
    SpoolWriter,
)
from dlscale.benchmarks.records.target import Target
from dlscale.benchmarks.study.rules import Rules
from dlscale.collectives import Backend, CountingTrainer, Trainer
from dlscale.collectives.algorithms.registry import round_steps
from dlscale.collectives.backend import BackedUpTrainer, GroupedTrainer, StaleTrainer
from dlscale.collectives.none import NoneBackend
from dlscale.models.frameworks import framework_module
from dlscale.models.workload import Input, Replica, ReplicaFactory, Shard, Workload

STEPS_UNTIL_BUCKETS = 3  # DistributedDataParallel cuts its buckets anew after the first
NUM_COMPARED_LOSSES = 5  # at the begin and at the end, where the loss must fall


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchContext:
    """What the cases of a launch share on this rank."""

    backend: Backend
    control: BarrierControl
    world: Any  # mpi4py's communicator of the workers
    shard: Shard
    rules: Rules
    seed: int
    spool: SpoolWriter
    meter: Meter | None  # the node's, on the one rank of it that reads it
    others: OtherPrograms | None  # likewise
    # Filled by the first training for the communication-only case of the launch; None where there is no such case:
    # counting gradients copies the weights, which would show in the memory of `none`.
    bucket_bytes: list[int] | None

    def check_updates(self, factory: ReplicaFactory, *, precision: str) -> list[Gate]:
        """The launch's gates, before anything is timed; collective."""
        check = gates.update_gates
        if self.backend.rounds is not None:
            check = rounds_gate
        elif self.backend.compressor:
            check = compressed_gate
        return check(
            self.backend,
            factory,
            control=self.world,
            shard=self.shard,
            seed=self.seed,
            precision=precision,
        )

    def write_gates(self, results: list[Gate], *, case: int | None = None) -> bool:
        """Spool the gates of the launch or of a case; returns whether all passed."""
        for gate in results:
            self.spool.write(GateResult(**gate.model_dump()), case=case)
        return all(gate.passed for gate in results)

    def distribute(self, factory: ReplicaFactory) -> Trainer:
        """A trainer with this rank's own initial state; collective."""
        return self.backend.distribute(factory, shard=self.shard, seed=self.seed + self.shard.index)


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseRun:
    """One case on one rank, ready to be run."""

    context: LaunchContext
    index: int  # of the case in its launch
    cell: Cell
    factory: ReplicaFactory
    source: Input  # of the factory's samples
    deadline: float  # on this rank's monotonic clock
    reference_factory: ReplicaFactory | None = None  # not compiled, for audits; None: `factory`
    facts: Workload | None = None  # of its workload, with a user's file; None: as the cell has them
    checkpoints: Path | None = None  # the folder of this case's; None where it is neither saved nor resumed

    def run(self) -> list[Gate]:
        """Warm up and measure; collective. Returns the gates that can only be checked afterwards."""
        if self.cell.control == "loader":
            return self._run_loader()
        if self.cell.control == "exchange":
            return self._run_exchange()
        if self.cell.control == "profile":
            return self._run_profile()
        if self.cell.target:
            return self._run_to_target(self.cell.target)
        return self._run_training()

    def _run_loader(self) -> list[Gate]:
        context = self.context
        replica = self.factory(shard=context.shard, seed=context.seed)
        steady = measure(
            LoaderOnly(replica),
            context.control,
            shortened_rules(context.rules),
            deadline=time.perf_counter(),
            emit=self._emit,
        )
        self._write_energy()
        self._write(CaseResult(steady=steady, settings={}, skipped=replica.num_skipped()))
        return []

    def _run_training(self) -> list[Gate]:
        context, backend = self.context, self.context.backend
        replicas: list[Replica] = []

        framework = framework_module(self.cell.framework)
        numerics = framework.numerics()
        trainer = context.distribute(self._remembering(replicas))
        settings = trainer.settings()
        first_losses: list[float] = []
        in_step, step_samples = backend.in_step, self._step_samples()

        def emit(window: MeasuredWindow) -> None:
            if in_step and backend.num_accepted is not None:
                window = replace(window, num_samples=window.num_steps * step_samples)
            self._emit(window)
            audit.count(window.num_steps)
            if in_step:
                return
            if window.phase == "warmup" and len(first_losses) < NUM_COMPARED_LOSSES:
                first_losses.append(trainer.loss())

        try:
            progress = self._training_run(trainer)
            audit = self._audit(trainer, progress, replicas)
            steady = measure(
                trainer,
                context.control,
                context.rules,
                deadline=self.deadline,
                emit=emit,
                step_timer=step_timer_for(self.cell, exchanges=backend.capabilities.exchanges),
                counting=None if in_step else cast(CountingTrainer, trainer),
                progress=progress,
                audit=audit,
                round_steps=round_steps(self.cell.algorithm, self.cell.algorithm_options),
                carries=bool(settings.get("deferred") or settings.get("pipelined")),
                agree=cast(GroupedTrainer, trainer).agree if are_grouped(backend.served) else None,
            )
            self._write_energy()
            results = [
                *audit.gates(),
                gates.numerics_gate(numerics, framework.numerics(), control=context.world),
                *gates.training_gates(
                    backend,
                    trainer,
                    control=context.world,
                    first_losses=first_losses if self._has_labels() else None,
                ),
            ]
            if context.bucket_bytes is not None:
                context.bucket_bytes[:] = _bucket_bytes(trainer)
            self._write_result(trainer, replicas, steady=steady)
            return results
        finally:
            trainer.close()

    def _run_to_target(self, target: Target) -> list[Gate]:
        """Not audited: what it reaches on held-out samples is the proof that it trains."""
        context = self.context
        begin = time.perf_counter()
        replicas: list[Replica] = []
        trainer = context.distribute(self._remembering(replicas))
        try:
            replica = (self.reference_factory or self.factory)(shard=context.shard, seed=context.seed)
            evaluator = Evaluator(
                self.cell,
                self.source,
                replica,
                world=context.world,
                shard=context.shard,
                facts=self.facts,
            )
            unmeasured = unmeasurable_because(context.backend.capabilities, self.cell.num_ranks)
            set_up_seconds = time.perf_counter() - begin
            self._write(Phase("set_up", set_up_seconds))
            end = TargetTraining(
                cell=self.cell,
                target=target,
                trainer=trainer,
                replica=replicas[0],
                control=context.control,
                world=context.world,
                evaluator=evaluator,
                emit=self._emit,
                write=self._write,
                noise=None if unmeasured else self._noise_meter(replica),
                unmeasured=unmeasured,
                set_up_seconds=set_up_seconds,
                saving=self._training_run(trainer),
                longest_window=context.rules.stall_seconds / 4,
                step_samples=self._step_samples(),
            ).run()
            self._write_energy()
            results: list[Gate] = []
            if end != "diverged":  # that is a result, and its weights are no numbers
                results = gates.training_gates(
                    context.backend, trainer, control=context.world, first_losses=None
                )
            self._write_result(trainer, replicas, steady=None)
            return results
        finally:
            trainer.close()

    def _step_samples(self) -> int:
        """Samples that an update takes up where ranks step together: late ones are thrown away."""
        num_accepted = self.context.backend.num_accepted
        return self.cell.global_batch if num_accepted is None else num_accepted * self.cell.local_batch

    def _noise_meter(self, replica: Replica) -> NoiseMeter:
        """Draws with the replica that evaluates; its energy is not the training's."""
        context = self.context
        return NoiseMeter(
            replica=replica,
            control=context.control,
            world=context.world,
            aside=context.meter.paused if context.meter else nullcontext,
        )

    def _write_result(self, trainer: Trainer, replicas: Sequence[Replica], *, steady: bool | None) -> None:
        backend = self.context.backend
        stale = cast(StaleTrainer, trainer).staleness() if backend.asynchronous else {}
        backed_up = backend.in_step and backend.num_accepted is not None
        self._write(
            CaseResult(
                steady=steady,
                loss=trainer.loss(),
                staleness={str(steps): pushes for steps, pushes in stale.items()},
                dropped=cast(BackedUpTrainer, trainer).num_dropped() if backed_up else None,
                computed=cast(BackedUpTrainer, trainer).num_computed() if backed_up else None,
                settings=trainer.settings(),
                skipped=sum(replica.num_skipped() for replica in replicas),
            )
        )

    def _remembering(self, replicas: list[Replica]) -> ReplicaFactory:
        """The factory; what it makes is kept in `replicas`."""

        def make(*, shard: Shard, seed: int, gate: bool = False) -> Replica:
            replicas.append(self.factory(shard=shard, seed=seed, gate=gate))
            return replicas[-1]

        return make

    def _audit(
        self, trainer: Trainer, progress: TrainingRun | None, replicas: Sequence[Replica]
    ) -> ReplayAudit | ServerAudit:
        """What looks at the trainer, which holds the first of `replicas`, between its windows; collective."""
        context, backend = self.context, self.context.backend

        def make_reference() -> Replica:
            make = self.reference_factory or self.factory
            return make(shard=context.shard, seed=context.seed + context.shard.index)

        training = AuditedTraining(
            trainer=trainer,
            backend=backend,
            make_reference=make_reference,
            control=context.world,
            bounds=bounds_for(
                precision=self.cell.precision, wire=backend.wire, compressed=backend.compressor is not None
            ),
            passed=progress.passed if progress else lambda _: None,
            num_skipped=lambda: sum(replica.num_skipped() for replica in replicas),
            aside=context.meter.paused if context.meter else nullcontext,
        )
        if backend.rounds is not None:
            return RoundsAudit(training)
        if not backend.capabilities.servers:
            return ReplayAudit(training)
        audit = ServerAudit(training, cast(CountingTrainer, trainer), replicas[0])
        audit.opening()
        return audit

    def _run_exchange(self) -> list[Gate]:
        """The least that the rules ask for: communication alone varies less than a training."""
        context = self.context
        sizes = context.bucket_bytes or self._bucket_bytes_of_a_training()
        collective = context.backend.collective()
        try:
            exchange = ExchangeOnly(collective, sizes, context.control.barrier)
            steady = measure(
                exchange,
                context.control,
                shortened_rules(context.rules),
                deadline=time.perf_counter(),
                emit=lambda window: self._write_window(
                    replace(window, bucket_seconds=exchange.take_seconds())
                ),
            )
            self._write(
                CaseResult(
                    steady=steady,
                    settings=collective.settings(),
                    bucket_bytes=sizes,
                    copy_rate=copy_rate(context.world),
                )
            )
            facts = self.cell.facts.preset(self.cell.preset)
            return [
                exchange.gate(
                    context.world,
                    wire=context.backend.wire,
                    compressed=context.backend.compressor is not None,
                ),
                exchange.bytes_gate(ELEMENT_BYTES * facts.num_parameters),
            ]
        finally:
            collective.close()

    def _run_profile(self) -> list[Gate]:
        """A training of one rank alone whose every other step is stamped; its windows have both kinds."""
        context = self.context
        replicas: list[Replica] = []
        trainer = cast(NoneBackend, context.backend).distribute_stamped(
            self._remembering(replicas), shard=context.shard, seed=context.seed
        )
        try:
            steps = ProfiledSteps(trainer)
            steady = measure(
                steps,
                context.control,
                profile_rules(context.rules, trainer),
                deadline=self.deadline,
                emit=self._emit,
                audit=steps,
                round_steps=len(ROUND),
            )
            self._write_energy()
            (replica,) = replicas
            sizes = [weight.size * ELEMENT_BYTES for weight in replica.weights()]
            profile = steps.profile(replica.names(), sizes)
            self._write(
                CaseResult(
                    steady=steady,
                    loss=trainer.loss(),
                    settings=trainer.settings(),
                    skipped=replica.num_skipped(),
                    profile=profile.model_dump(),
                )
            )
            facts = self.cell.facts.preset(self.cell.preset)
            return [
                profile_gate(profile, ELEMENT_BYTES * facts.num_parameters),
                *gates.training_gates(context.backend, trainer, control=context.world, first_losses=None),
            ]
        finally:
            trainer.close()

    def _bucket_bytes_of_a_training(self) -> list[int]:
        """Bucket sizes of a trainer that takes some steps, where the launch trains nothing; collective."""
        trainer = self.context.distribute(self.factory)
        try:
            for _ in range(STEPS_UNTIL_BUCKETS):
                trainer.step()
            trainer.synchronize()
            return _bucket_bytes(trainer)
        finally:
            trainer.close()

    def _training_run(self, trainer: Trainer) -> TrainingRun | None:
        if self.checkpoints is None:
            return None
        context = self.context
        if context.rules.checkpoint_every:
            check_can_resume(context.backend)
        return TrainingRun(
            trainer,
            context.rules,
            self.checkpoints,
            control=context.control,
            world=context.world,
            write=self._write,
        )

    def _has_labels(self) -> bool:
        """Whether the loss is that of a classification: adversaries' losses need not fall, and sleep learns nothing."""
        return self.cell.slept is None and self.cell.facts.preset(self.cell.preset).num_classes > 0

    def _write(self, event: Event) -> None:
        self.context.spool.write(event, case=self.index)

    def _emit(self, window: MeasuredWindow) -> None:
        """Between windows: the barrier before the next one holds all ranks until this one is through."""
        self._write_window(window)
        meter = self.context.meter
        if meter and window.phase == "warmup":
            meter.begin()
        elif meter:
            meter.passed()

    def _write_window(self, window: MeasuredWindow) -> None:
        others = self.context.others
        share = others.share() if others else None  # since the last window: the time between two is short
        self._write(replace(window, foreign_cpu=share) if window.phase == "steady" else window)

    def _write_energy(self) -> None:
        for reading in self.context.meter.end() if self.context.meter else ():
            self._write(reading)


def _bucket_bytes(trainer: Trainer) -> list[int]:
    return bucket_sizes(trainer.settings(), sum(weight.size * ELEMENT_BYTES for weight in trainer.weights()))
