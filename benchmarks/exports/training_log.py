"""A training to a target as an MLPerf training log, with what MLPerf's compliance checker asks for.

The checker knows the benchmarks of MLPerf's rounds only, so `training_rules.yaml` has rules for ours in its own format.
Nothing is submitted: `submission_org` says so. Run time is that of the report: training and evaluating, as the record
has them; seconds between windows, for writing records and checkpoints, are left out. A training of several launches is
told as one that began with the last of them.
"""

from __future__ import annotations

import io
from importlib import resources
from typing import Any

from dlscale.benchmarks.exports.formats import first_window, make_logger, run_facts, what_was_run
from dlscale.benchmarks.records.record import Record
from dlscale.benchmarks.records.target import Solution, Target

UNSUBMITTED = "none: this run is no submission"


def training_rules() -> str:
    """The rules for the compliance checker."""
    return resources.files("dlscale.benchmarks.exports").joinpath("training_rules.yaml").read_text("utf-8")


def training_log_text(record: Record, target: Target, solution: Solution) -> str:
    """The log of a training that ended by itself: reached is `success`, all else `aborted`.

    `cache_clear` is false, for no cache was cleared. What the record does not have has no line, which the checker
    complains of: the samples of an epoch in old records. Without the start of a rank there is no run.
    Raises UsageError without mlperf-logging.
    """
    output = io.StringIO()
    logger, names, began = make_logger(output, record)
    cell, workload = record.case.cell, record.case.cell.facts
    metric = workload.quality().METRICS[target.metric]
    logger.event(key=names.CACHE_CLEAR, value=False, time_ms=began)
    logger.start(key=names.INIT_START, metadata=what_was_run(record), time_ms=began)
    facts = run_facts(record, names) | {
        names.SUBMISSION_BENCHMARK: (cell.workload, {"preset": cell.preset}),
        names.SUBMISSION_ORG: (UNSUBMITTED, {}),
        names.SUBMISSION_PLATFORM: (record.system, {}),
        names.SUBMISSION_DIVISION: (names.OPEN, {}),
        names.SUBMISSION_STATUS: (names.RESEARCH, {}),
        names.SEED: (record.order_seed + record.case.block, {}),
        names.EVAL_SAMPLES: (solution.num_held_out, {}),
        names.GRADIENT_ACCUMULATION_STEPS: (1, {}),
        names.OPT_BASE_LR: (target.learning_rate, {"scaling": target.scaling}),
        "quality_target": (
            target.threshold,
            {"metric": target.metric, "higher_is_better": metric.higher_is_better},
        ),
    }
    if solution.num_training:
        facts[names.TRAIN_SAMPLES] = (solution.num_training, {})
    if optimizer := target.optimizer.name if target.optimizer else workload.optimizer:
        facts[names.OPT_NAME] = (optimizer, {})
    for key, (value, metadata) in facts.items():
        logger.event(key=key, value=value, metadata=metadata, time_ms=began)
    first = first_window(record)
    if first is None:
        return output.getvalue()
    start = began + round(1000 * (first + solution.set_up_seconds))
    logger.end(key=names.INIT_STOP, time_ms=start)
    logger.start(key=names.RUN_START, time_ms=start)
    key = names.EVAL_ACCURACY if metric.higher_is_better else "eval_error"
    ended = _log_evaluations(logger, names, target, solution, key=key, start=start)
    status = names.SUCCESS if record.good and solution.end == "reached" else names.ABORTED
    metadata = {names.STATUS: status, names.SAMPLES_COUNT: solution.evaluations[-1].samples}
    logger.end(key=names.RUN_STOP, metadata=metadata | {"end": solution.end}, time_ms=ended)
    return output.getvalue()


def _log_evaluations(
    logger: Any, names: Any, target: Target, solution: Solution, *, key: str, start: int
) -> int:
    """Write a block of training and an evaluation for each; returns when the last one ended, in milliseconds."""
    samples, before_training, before_evaluating, ended = 0, 0.0, 0.0, start
    for evaluation in solution.evaluations:
        count = {names.SAMPLES_COUNT: samples}
        logger.start(key=names.BLOCK_START, metadata=count, time_ms=ended)
        count = {names.SAMPLES_COUNT: evaluation.samples}
        trained = start + round(1000 * (evaluation.training_seconds + before_evaluating))
        logger.end(key=names.BLOCK_STOP, metadata=count, time_ms=trained)
        if seconds := evaluation.training_seconds - before_training:
            rate = (evaluation.samples - samples) / seconds
            at_step = {"step": evaluation.step}
            logger.event(key="tracked_stats", value={"throughput": rate}, metadata=at_step, time_ms=trained)
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
