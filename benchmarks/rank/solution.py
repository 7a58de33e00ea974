"""A training that continues until it reaches its target: windows of steps, and an evaluation after each.

Training time is that of the windows, as everywhere; evaluating is timed apart, on the slowest rank behind a barrier. A
training that is saved resumes with its times and evaluations, which are saved with its state.
"""

from __future__ import annotations

import math
import time
from typing import Literal

from pydantic import NonNegativeFloat

from dlscale.base.definitions import Frozen
from dlscale.benchmarks.rank.case import CaseRun
from dlscale.benchmarks.rank.checkpoints import TrainingRun
from dlscale.benchmarks.rank.evaluations import Evaluator, TargetAudit
from dlscale.benchmarks.rank.gates import training_gates
from dlscale.benchmarks.rank.measure import SHORTEST_STEP, time_window
from dlscale.benchmarks.records.cell import Cell
from dlscale.benchmarks.records.record import End, Ended, Evaluation, Gate
from dlscale.benchmarks.records.spool import Phase
from dlscale.benchmarks.study.rules import STALL_SECONDS
from dlscale.collectives import Trainer
from dlscale.models.workload import Replica

# Seconds of a window at most: it is written when it has ended, and silence looks like a hang.
LONGEST_WINDOW = STALL_SECONDS / 4


def train_to_target(case: CaseRun) -> list[Gate]:
    """Train until the case's target is reached, or time is over, and audit that (`case.Measurement`)."""
    context, cell = case.context, case.cell
    if cell.target is None:
        raise ValueError(f"{cell.id} has no target")
    begin = time.perf_counter()
    with case.trainer() as (trainer, replicas):
        source, facts = context.spec.source(cell), context.spec.facts(cell)
        evaluator = Evaluator(cell, source, case.reference(), world=context.world, facts=facts)
        saving = case.saving(trainer)
        steps = ScheduledTrainer(trainer, replicas[0], cell, begin=saving.step if saving else 0)
        training = case.audited(
            trainer,
            replicas,
            make_reference=lambda: evaluator.replica,
            held_out=cell.target.held_out,
            order=source.order,
            follow=steps.follow,
            step=steps.step,
        )
        audit = TargetAudit(case, training, cell.target, evaluator)
        set_up_seconds = time.perf_counter() - begin
        case.write(Phase(name="set_up", seconds=set_up_seconds))
        target = TargetTraining(case, steps, evaluator, audit, saving=saving)
        end = target.run(set_up_seconds=context.control.maximum(set_up_seconds))
        gates: list[Gate] = []
        if end != "diverged":  # that is a result, and its weights are no numbers
            with case.auditing():
                gates = [*audit.gates(), *training_gates(context.backend, trainer, control=context.world)]
        case.end_training(trainer, replicas, steady=None, skipped=len(evaluator.held_out.bad))
        return gates


class ScheduledTrainer:
    """A trainer whose learning rate follows the cell's target, from step number `begin` on (`Steppable`).

    It is set where it changes, between two steps; a pipelined exchange applies older means with a new rate.
    `replica` is the one that the trainer holds.
    """

    def __init__(self, trainer: Trainer, replica: Replica, cell: Cell, *, begin: int) -> None:
        """Raises ValueError for a cell without a target."""
        if cell.target is None:
            raise ValueError(f"{cell.id} has no target")
        self.trainer, self.target = trainer, cell.target
        self._replica, self._global_batch = replica, cell.global_batch
        self._step = begin
        self._rate: float | None = None  # that was set last

    def step(self) -> None:
        rate = self._rate_of(self._step)
        if rate and rate != self._rate:
            self._replica.set_learning_rate(rate)
            self._rate = rate
        self.trainer.step()
        self._step += 1

    def synchronize(self) -> None:
        self.trainer.synchronize()

    def follow(self, replica: Replica, step: int) -> None:
        """Give a replica the rate of that step."""
        if rate := self._rate_of(step):
            replica.set_learning_rate(rate)

    def _rate_of(self, step: int) -> float | None:
        """None: the optimizer's own, all the time."""
        return self.target.rate(step * self._global_batch) if self.target.schedule else None


class TargetNotes(Frozen):
    """What a training with a target knows besides its state; seconds over all launches."""

    training_seconds: NonNegativeFloat
    evaluating_seconds: NonNegativeFloat
    evaluations: list[Evaluation]


class TargetTraining:
    """One training of a case with a target. Collective.

    Seconds are the slowest rank's, which all of them know, so that all ranks take the same steps.
    """

    def __init__(
        self,
        case: CaseRun,
        steps: ScheduledTrainer,
        evaluator: Evaluator,
        audit: TargetAudit,
        *,
        saving: TrainingRun | None = None,
    ) -> None:
        """`saving` is of the same trainer; None where it is neither saved nor resumed."""
        self._case, self._steps, self._target = case, steps, steps.target
        self._evaluator, self._saving, self._audit = evaluator, saving, audit
        self._step, self._training, self._evaluating = 0, 0.0, 0.0  # steps and seconds over all launches
        self._step_seconds = 0.0  # of the last window
        self._evaluations: list[Evaluation] = []

    def run(self, *, set_up_seconds: float) -> End:
        """Train until the target is reached, the time is over, or the loss is no number; returns which.

        Raises UsageError if what was saved is of another training.
        """
        if self._saving and self._saving.step:
            self._resume(self._saving)
        end = self._train(1, phase="warmup")
        while end is None:
            end = self._train(self._num_to_stop(), phase="steady")
        self._audit.end(end, self._evaluations[-1])
        num_training = self._evaluator.held_out.num_training
        self._case.write(Ended(end=end, set_up_seconds=set_up_seconds, num_training=num_training))
        return end

    def _resume(self, saving: TrainingRun) -> None:
        try:
            notes = TargetNotes.model_validate_json(saving.notes)
        except ValueError as error:  # pydantic's is one
            raise saving.of_another(error) from None
        self._step, self._training = saving.step, notes.training_seconds
        self._evaluating = notes.evaluating_seconds
        for evaluation in notes.evaluations:
            self._report(evaluation)

    def _notes(self) -> str:
        return TargetNotes(
            training_seconds=self._training,
            evaluating_seconds=self._evaluating,
            evaluations=self._evaluations,
        ).model_dump_json()

    def _seconds_left(self) -> float:
        return self._target.max_seconds - self._training - self._evaluating

    def _num_to_stop(self) -> int:
        """Steps to the next evaluation, a state to save, the end of the time or of a long window: the fewest."""
        every, seconds = self._target.evaluate_every, min(self._seconds_left(), LONGEST_WINDOW)
        num_steps = min(every - self._step % every, seconds / self._step_seconds, self._audit.num_to_next())
        if self._saving:
            num_steps = min(num_steps, self._saving.num_to_save())
        return max(1, math.ceil(num_steps))

    def _train(self, num_steps: int, *, phase: Literal["warmup", "steady"]) -> End | None:
        """A window, and what is due after it; returns how the training ends there, None if it continues."""
        self._audit.before()
        control = self._case.context.control
        window = time_window(self._steps, control, phase=phase, num_steps=num_steps)
        seconds = control.maximum(window.seconds)
        self._step += num_steps
        self._training += seconds
        self._step_seconds = max(seconds, SHORTEST_STEP) / num_steps
        self._case.emit(window)
        self._audit.after(num_steps)
        is_due = self._step % self._target.evaluate_every == 0 or self._seconds_left() <= 0
        end = self._evaluate() if is_due else None
        if self._saving and end is None:
            self._saving.passed(num_steps, self._notes)
        return end

    def _report(self, evaluation: Evaluation) -> None:
        self._evaluations.append(evaluation)
        self._case.write(evaluation)

    def _evaluate(self) -> End | None:
        """How the training ends here; None if it continues."""
        context, cell = self._case.context, self._case.cell
        target, trainer = self._target, self._steps.trainer
        context.control.barrier()
        begin = time.perf_counter()
        loss = sum(context.world.allgather(trainer.loss())) / cell.num_ranks
        metrics = self._evaluator.metrics(trainer) if math.isfinite(loss) else {}
        self._evaluating += context.control.maximum(time.perf_counter() - begin)
        samples = self._step * cell.global_batch  # over all ranks
        self._report(
            Evaluation(
                step=self._step,
                samples=samples,
                training_seconds=self._training,
                evaluating_seconds=self._evaluating,
                loss=loss if math.isfinite(loss) else None,
                metrics=metrics,
            )
        )
        if target.metric not in metrics:
            return "diverged"
        measure = cell.facts.quality().METRICS[target.metric]
        if measure.reached(metrics[target.metric], target.threshold):
            return "reached"
        over = self._seconds_left() <= 0 or samples >= (target.max_samples or math.inf)
        return "budget" if over else None
