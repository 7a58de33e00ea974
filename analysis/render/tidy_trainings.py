"""Tidy tables of trainings with a target: what each took, its evaluations, and the metrics of each evaluation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dlscale.analysis.findings.trainings import launch_seconds, seconds_outside
from dlscale.benchmarks.records.record import Record
from dlscale.benchmarks.records.target import Evaluation, Solution, Target

Arrays = dict[str, NDArray[Any]]


def training_row(record: Record, target: Target, solution: Solution) -> dict[str, object]:
    """A training's columns beside its key. `seconds` are from the launch to its end, as in the report."""
    cell, last = record.case.cell, solution.evaluations[-1]
    outside = _outside(record, solution, last)
    own = last.training_seconds + last.evaluating_seconds
    return {
        **{name: getattr(cell, name) for name in ("workload", "preset", "framework", "backend", "num_ranks")},
        "global_batch": cell.global_batch,
        "block": record.case.block,
        "seed": record.order_seed + record.case.block,
        "metric": target.metric,
        "threshold": target.threshold,
        "learning_rate": target.learning_rate,
        "learning_rate_scaling": target.scaling,
        "evaluate_every": target.evaluate_every,
        "evaluate_seconds": target.evaluate_seconds,
        "end": solution.end,
        "reached": solution.end == "reached",
        "num_steps": last.step,
        "num_samples": last.samples,
        "num_epochs": last.samples / solution.num_training if solution.num_training else None,
        "num_training_samples": solution.num_training,
        "num_held_out_samples": solution.num_held_out,
        "num_evaluations": len(solution.evaluations),
        "seconds": None if outside is None else outside + own,
        "launch_seconds": launch_seconds(record),
        "set_up_seconds": solution.set_up_seconds,
        "training_seconds": last.training_seconds,
        "evaluating_seconds": last.evaluating_seconds,
        "value": last.metrics.get(target.metric),
    }


def evaluation_arrays(record: Record, solution: Solution, *, counts: bool) -> Arrays:
    """The columns of a training's evaluations, [E], beside its key; NaN is an unknown value."""
    cell, evaluations = record.case.cell, solution.evaluations

    def column(value: Callable[[Any], float | None]) -> NDArray[np.float64]:
        return np.array([value(evaluation) for evaluation in evaluations], dtype=np.float64)

    training, evaluating = column(lambda e: e.training_seconds), column(lambda e: e.evaluating_seconds)
    outside, samples = column(lambda e: _outside(record, solution, e)), column(lambda e: e.samples)
    return {
        **{
            name: np.array(getattr(cell, name), dtype=object) for name in ("workload", "framework", "backend")
        },
        "counts": np.array(counts),
        "num_ranks": np.array(cell.num_ranks),
        "block": np.array(record.case.block),
        "evaluation": np.arange(len(evaluations)),
        "num_steps": column(lambda e: e.step),
        "num_samples": samples,
        "num_epochs": samples / (solution.num_training or np.nan),
        "seconds": outside + training + evaluating,
        "training_seconds": training,
        "evaluating_seconds": evaluating,
        "loss": column(lambda e: e.loss),
    }


def _outside(record: Record, solution: Solution, evaluation: Evaluation) -> float | None:
    before = launch_seconds(record)
    start = None if before is None else before + solution.set_up_seconds
    return seconds_outside(record.launches, start, evaluation)


def metric_arrays(solution: Solution) -> Arrays:
    """The columns of the metrics of a training's evaluations, a row per evaluation and metric, beside its key."""
    rows: Sequence[tuple[int, str, float]] = [
        (place, name, value)
        for place, evaluation in enumerate(solution.evaluations)
        for name, value in evaluation.metrics.items()
    ]
    return {
        "evaluation": np.array([place for place, _, _ in rows], dtype=np.int64),
        "metric": np.array([name for _, name, _ in rows], dtype=object),
        "value": np.array([value for _, _, value in rows], dtype=np.float64),
    }
