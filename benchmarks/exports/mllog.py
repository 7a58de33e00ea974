"""A record as an MLPerf training log.

`:::MLLOG` lines are written by the package mlperf-logging. They are no submission: what a record does not hold has no
line. Of a training to a target the log has what MLPerf's compliance checker asks for. The checker knows the benchmarks
of MLPerf's rounds only, so `training_rules.yaml` has rules for ours in its own format. Run time is that of the report:
seconds between windows, for writing records and checkpoints, are left out, and a training of several launches begins
with the last of them.
"""

from __future__ import annotations

import importlib
import io
import logging
import re
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib import resources
from pathlib import Path
from typing import Any

from dlscale.base.errors import UsageError
from dlscale.benchmarks.records.record import Record
from dlscale.benchmarks.records.target import Solution, Target
from dlscale.benchmarks.records.windows import Window

PACKAGE = "mlperf_logging"
UNSUBMITTED = "none: this run is no submission"


def training_rules() -> str:
    """The rules for the compliance checker."""
    return resources.files("dlscale.benchmarks.exports").joinpath("training_rules.yaml").read_text("utf-8")


def log_text(record: Record, samples_per_second: Sequence[float] = ()) -> str:
    """The log of one attempt at a case; of a training that ended by itself its evaluations, `success` if it reached.

    `samples_per_second` are those of its steady windows, in order; none if the record gives no number. What was never
    reached has no line: a launch that failed before its first window has a beginning and no run.
    Raises UsageError without mlperf-logging.
    """
    mllog, names = _package()
    output = io.StringIO()
    logger = mllog.MLLogger(logger=_into(output), root_dir=re.escape(str(Path(__file__).parents[2])))
    began = _milliseconds(record)
    target, solution = record.case.cell.target, record.solution
    facts = _run_facts(record, names)
    if target and solution:
        logger.event(key=names.CACHE_CLEAR, value=False, time_ms=began)  # no cache was cleared
        facts |= _training_facts(record, target, solution, names)
    logger.start(key=names.INIT_START, metadata=_what_was_run(record), time_ms=began)
    for key, (value, metadata) in facts.items():
        logger.event(key=key, value=value, metadata=metadata, time_ms=began)
    first = _first_window(record)
    steady = [window for window in record.windows if window.phase == "steady"]
    if first is None or not (solution or steady):
        return output.getvalue()
    # Clocks of other machines count from other boots.
    ranks = record.clocks[0] if record.clocks else range(record.case.cell.num_ranks)
    waited = solution.set_up_seconds if solution else min(steady[0].start_seconds[rank] for rank in ranks)
    start = began + round(1000 * (first + waited))
    logger.end(key=names.INIT_STOP, time_ms=start)
    logger.start(key=names.RUN_START, time_ms=start)
    metadata = {names.STATUS: names.SUCCESS if record.good else names.ABORTED}
    if target and solution:
        ended = _log_evaluations(logger, names, record, target, solution, start)
        if solution.end != "reached":
            metadata[names.STATUS] = names.ABORTED
        metadata |= {names.SAMPLES_COUNT: solution.evaluations[-1].samples, "end": solution.end}
    else:
        num_steps = sum(window.num_steps for window in record.windows if window.phase == "warmup")
        ends = [began + round(1000 * (first + _end(window, ranks))) for window in steady]
        for window, rate, end in zip(steady, samples_per_second, ends, strict=False):
            num_steps += window.num_steps
            _log_rate(logger, rate, step=num_steps, at=end)
        ended = max(ends)
    logger.end(key=names.RUN_STOP, metadata=metadata, time_ms=ended)
    return output.getvalue()


def _package() -> tuple[Any, Any]:
    try:
        modules = [importlib.import_module(f"{PACKAGE}.mllog.{name}") for name in ("mllog", "constants")]
    except ModuleNotFoundError as error:
        if not (error.name or "").startswith(PACKAGE):
            raise
        raise UsageError(
            "MLPerf logs need the package mlperf-logging, which is not installed; "
            "install it with: pip install 'dlscale[mllog]'"
        ) from None
    return modules[0], modules[1]


def _into(output: io.StringIO) -> logging.Logger:
    """A private logger that writes to `output`."""
    logger = logging.Logger("dlscale.mllog")  # not in the registry, where others could add handlers
    logger.addHandler(logging.StreamHandler(output))
    return logger


def _milliseconds(record: Record) -> int:
    began = datetime.fromisoformat(record.started_at)
    return round(1000 * (began if began.tzinfo else began.replace(tzinfo=UTC)).timestamp())


def _first_window(record: Record) -> float | None:
    """Seconds from the launch's beginning to the first window, as the slowest rank's phases say; None if unknown.

    Building the network lies in no phase, and controls that share a launch are taken to come first, so that it
    may have been later.
    """
    phases = record.phases
    per_rank = list(zip(phases.start_up, phases.import_backend, phases.connect, phases.gates, strict=False))
    sums = [
        sum(seconds for seconds in ranks_phases if seconds is not None)
        for ranks_phases in per_rank
        if None not in ranks_phases
    ]
    return max(sums) if sums and len(sums) == record.case.cell.num_ranks else None


def _end(window: Window, ranks: Sequence[int]) -> float:
    """When the last of these ranks, which share a clock, ended it."""
    return max(window.start_seconds[rank] + window.seconds[rank] for rank in ranks)


def _what_was_run(record: Record) -> dict[str, Any]:
    """What was run, and why there is no result if there is none."""
    cell = record.case.cell
    failure = {"failure": record.failure.kind} if record.failure else {}
    return {
        "study": record.study,
        "case": record.case.id,
        "attempt": record.attempt,
        "evidence": record.evidence,
        "system": record.system,
        **{name: getattr(cell, name) for name in ("workload", "preset", "framework", "backend", "precision")},
        "control": cell.control,
        **failure,
    }


Facts = dict[str, tuple[Any, dict[str, Any]]]  # key -> value and metadata


def _run_facts(record: Record, names: Any) -> Facts:
    """What holds for the whole run."""
    cell = record.case.cell
    facts: Facts = {
        names.SEED: (record.order_seed, {}),
        names.GLOBAL_BATCH_SIZE: (cell.global_batch, {}),
        "number_of_nodes": (cell.num_nodes, {}),
        "number_of_ranks": (cell.num_ranks, {"servers": cell.num_servers} if cell.num_servers else {}),
    }
    if cell.device == "cpu":
        facts["accelerators_per_node"] = (0, {})
    elif record.ranks:  # each rank has one of its own
        facts["accelerators_per_node"] = (max(Counter(rank.node for rank in record.ranks).values()), {})
    return facts


def _training_facts(record: Record, target: Target, solution: Solution, names: Any) -> Facts:
    """What the compliance checker asks of a training beside; the samples of an epoch are not in old records."""
    cell, workload = record.case.cell, record.case.cell.facts
    better = workload.quality().METRICS[target.metric].higher_is_better
    facts: Facts = {
        names.SUBMISSION_BENCHMARK: (cell.workload, {"preset": cell.preset}),
        names.SUBMISSION_ORG: (UNSUBMITTED, {}),
        names.SUBMISSION_PLATFORM: (record.system, {}),
        names.SUBMISSION_DIVISION: (names.OPEN, {}),
        names.SUBMISSION_STATUS: (names.RESEARCH, {}),
        names.SEED: (record.order_seed + record.case.block, {}),
        names.EVAL_SAMPLES: (solution.num_held_out, {}),
        names.GRADIENT_ACCUMULATION_STEPS: (1, {}),
        names.OPT_BASE_LR: (target.learning_rate, {"scaling": target.scaling}),
        "quality_target": (target.threshold, {"metric": target.metric, "higher_is_better": better}),
    }
    if solution.num_training:
        facts[names.TRAIN_SAMPLES] = (solution.num_training, {})
    if optimizer := target.optimizer.name if target.optimizer else workload.optimizer:
        facts[names.OPT_NAME] = (optimizer, {})
    return facts


def _log_rate(logger: Any, rate: float, *, step: int, at: int) -> None:
    value = {"throughput": float(rate)}
    logger.event(key="tracked_stats", value=value, metadata={"step": step}, time_ms=at)


def _log_evaluations(
    logger: Any, names: Any, record: Record, target: Target, solution: Solution, start: int
) -> int:
    """Write a block of training and an evaluation for each; returns when the last one ended, in milliseconds."""
    better = record.case.cell.facts.quality().METRICS[target.metric].higher_is_better
    key = names.EVAL_ACCURACY if better else "eval_error"
    samples, before_training, before_evaluating, ended = 0, 0.0, 0.0, start
    for evaluation in solution.evaluations:
        logger.start(key=names.BLOCK_START, metadata={names.SAMPLES_COUNT: samples}, time_ms=ended)
        count = {names.SAMPLES_COUNT: evaluation.samples}
        trained = start + round(1000 * (evaluation.training_seconds + before_evaluating))
        logger.end(key=names.BLOCK_STOP, metadata=count, time_ms=trained)
        if seconds := evaluation.training_seconds - before_training:
            _log_rate(logger, (evaluation.samples - samples) / seconds, step=evaluation.step, at=trained)
        if evaluation.loss is not None:
            logger.event(key="train_loss", value=evaluation.loss, metadata=count, time_ms=trained)
        logger.start(key=names.EVAL_START, metadata=count, time_ms=trained)
        ended = start + round(1000 * (evaluation.training_seconds + evaluation.evaluating_seconds))
        if target.metric in evaluation.metrics:
            more: dict[str, Any] = {"step": evaluation.step, "metrics": evaluation.metrics}
            if solution.num_training:
                more[names.EPOCH_NUM] = evaluation.samples / solution.num_training
            value = evaluation.metrics[target.metric]
            logger.event(key=key, value=value, metadata=count | more, time_ms=ended)
        logger.end(key=names.EVAL_STOP, metadata=count, time_ms=ended)
        samples = evaluation.samples
        before_training, before_evaluating = evaluation.training_seconds, evaluation.evaluating_seconds
    return ended
