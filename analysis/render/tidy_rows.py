"""The rows of the tidy tables: each function gives what one record has in one of them, by column.

A value is that of one row, or of all rows of a record; an array has a value per row. NaN and None are unknown.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dlscale.analysis.families import environment_text, tokens_per_sample
from dlscale.analysis.findings.energy import Reading, reading
from dlscale.analysis.findings.solutions import goal_text
from dlscale.analysis.findings.trainings import launch_seconds, seconds_outside
from dlscale.analysis.records import (
    algorithm_text,
    attributes,
    equal_steps,
    exchange_mode,
    num_samples,
    options_text,
    slowest_in_phase,
    start_skews,
    why_unusable,
    world_step_seconds,
)
from dlscale.benchmarks.records.cell import WITHOUT_SAMPLES
from dlscale.benchmarks.records.record import Phases, Record
from dlscale.benchmarks.records.target import Evaluation, Solution

Columns = dict[str, Any]
Matrix = NDArray[np.float64]  # [W][P]


def launch(record: Record) -> Columns:
    """The only row of an attempt."""
    cell, reason, windows, energy = record.case.cell, why_unusable(record), record.counted, reading(record)
    columns: Columns = {
        "system": record.system,
        "cell_id": cell.id,
        **cell.model_dump(exclude={"variables", "own"}),
        "backend_options": options_text(cell),
        "algorithm": cell.algorithm,
        "algorithm_options": algorithm_text(cell),
        **attributes(cell, "shard split"),
        "environment": environment_text(cell),
        "target": goal_text(cell.target) if cell.target else "",
        "learning_rate": cell.target.learning_rate if cell.target else None,
        "unchecked": cell.unchecked,
        "position": record.case.position,
        "evidence": record.evidence,
        "started_at": record.started_at,
        "fingerprint": record.fingerprint.digest,
        "commit": record.fingerprint.commit,
        "failure_kind": record.failure.kind if record.failure else "",
        "reason": reason or "",
        "oversubscribed": record.oversubscribed,
        "steady": record.steady,
        "exchange": exchange_mode(record),
        "num_windows": len(windows),
        "num_steps": int(windows.num_steps.sum()),
        "num_samples": int(num_samples(windows, cell).sum()),
        "peak_rss_bytes": max((rank.peak_rss_bytes for rank in record.ranks), default=0) or None,
        "window_rss_bytes": max(filter(None, (rank.window_rss_bytes for rank in record.ranks)), default=None),
        "gpu_allocated_bytes": max(
            (rank.gpu_memory.allocated_bytes for rank in record.ranks if rank.gpu_memory), default=None
        ),
        "num_skipped_samples": sum(count for count in record.skipped_samples if count),
        "energy_sources": "",
        **{f"{name}_seconds": slowest_in_phase(record.phases, name) for name in Phases.model_fields},
    }
    if reason is None:
        seconds = float(np.median(world_step_seconds(record)))
        columns["seconds_per_step"] = seconds
        if cell.control not in WITHOUT_SAMPLES:
            columns["samples_per_second"] = cell.global_batch / seconds
            tokens = tokens_per_sample(cell)
            columns["tokens_per_second"] = tokens * cell.global_batch / seconds if tokens else None
        columns["start_skew_of_window"] = start_skews([record])[0]
    if isinstance(energy, Reading):
        columns["energy_joules"] = energy.joules
        columns["joules_per_sample"] = energy.joules_per_sample
        columns["energy_sources"] = ", ".join(energy.sources)
    return columns


def windows(record: Record) -> Columns:
    """A row per window, those of the warm-up too; only steady ones count."""
    cell, windows = record.case.cell, record.columns
    starts, seconds = _whole(windows.start_seconds, cell.num_ranks), _whole(windows.seconds, cell.num_ranks)
    # Without the times of all ranks a window has no world time, as the missing rank may be the slowest.
    unsound = ~np.all((seconds > 0) & np.isfinite(seconds), axis=1)
    seconds[unsound] = np.nan
    world, unknown = seconds.max(axis=1), np.full(len(windows), np.nan)
    steps, samples = equal_steps(windows, cell), num_samples(windows, cell)
    own = record.clocks[0] if record.clocks else []  # other machines' clocks count from other boots
    skews = [np.ptp(starts[:, ranks], axis=1) for ranks in record.clocks if len(ranks) > 1]
    return {
        "counts": windows.steady,
        "window": np.arange(len(windows)),
        "phase": np.where(windows.steady, "steady", "warmup").astype(object),
        "num_steps": windows.num_steps,
        "num_applied": windows.num_applied,
        "num_samples": samples,
        "start_seconds": starts[:, own].min(axis=1) if own else unknown,
        "start_skew_seconds": np.max(skews, axis=0) if skews else 0.0 if cell.num_ranks == 1 else unknown,
        "slowest_rank": np.where(unsound, np.nan, seconds.argmax(axis=1)),
        "slowest_rank_seconds": world,
        "mean_rank_seconds": seconds.mean(axis=1),
        "fastest_rank_seconds": seconds.min(axis=1),
        "seconds_per_step": np.divide(world, steps, out=unknown.copy(), where=steps > 0),
        "samples_per_second": unknown if cell.control in WITHOUT_SAMPLES else samples / world,
    }


def ranks(record: Record) -> Columns:
    """A row per window and rank."""
    windows, num_ranks = record.columns, record.case.cell.num_ranks
    steps = np.repeat(windows.num_steps[:, np.newaxis], num_ranks, axis=1)
    if windows.rank_steps is not None:
        steps = windows.rank_steps
    return {
        "window": np.repeat(np.arange(len(windows)), num_ranks),
        "rank": np.tile(np.arange(num_ranks), len(windows)),
        "num_steps": steps.ravel(),
        "start_seconds": _whole(windows.start_seconds, num_ranks).ravel(),
        "seconds": _whole(windows.seconds, num_ranks).ravel(),
    }


def _whole(times: Matrix, num_ranks: int) -> Matrix:
    """A copy, [W][P], of times that are those of all ranks; else NaN."""
    return times.copy() if times.shape[1] == num_ranks else np.full((len(times), num_ranks), np.nan)


def training(record: Record) -> Columns:
    """The only row of a training that ended. `seconds` are from the launch to its end, as in the report."""
    target, solution = record.case.cell.target, record.solution
    if target is None or solution is None:
        return {}
    return _until(record, solution, solution.evaluations[-1]) | {
        "seed": record.order_seed + record.case.block,
        **attributes(target, "metric threshold learning_rate"),
        "learning_rate_scaling": target.scaling,
        "evaluate_every": target.evaluate_every,
        "end": solution.end,
        "reached": solution.end == "reached",
        "num_training_samples": solution.num_training,
        "num_held_out_samples": solution.num_held_out,
        "num_evaluations": len(solution.evaluations),
        "launch_seconds": launch_seconds(record),
        "set_up_seconds": solution.set_up_seconds,
        "value": solution.evaluations[-1].metrics.get(target.metric),
    }


def evaluations(record: Record) -> Columns:
    """A row per evaluation of a training."""
    solution = record.solution
    if solution is None:
        return {}
    rows = [_until(record, solution, one) | {"loss": one.loss} for one in solution.evaluations]
    columns = {name: np.array([row[name] for row in rows], dtype=np.float64) for name in rows[0]}
    return {"evaluation": np.arange(len(rows)), **columns}


def _until(record: Record, solution: Solution, evaluation: Evaluation) -> Columns:
    """What a training took until the end of an evaluation."""
    before = launch_seconds(record)
    start = None if before is None else before + solution.set_up_seconds
    outside = seconds_outside(record.launches, start, evaluation)
    training, evaluating = evaluation.training_seconds, evaluation.evaluating_seconds
    return {
        "num_steps": evaluation.step,
        "num_samples": evaluation.samples,
        "num_epochs": evaluation.samples / solution.num_training if solution.num_training else None,
        "seconds": None if outside is None else outside + (training + evaluating),
        "training_seconds": training,
        "evaluating_seconds": evaluating,
    }


def metrics(record: Record) -> Columns:
    """A row per evaluation of a training and metric."""
    rows = [
        (place, name, value)
        for place, evaluation in enumerate(record.solution.evaluations if record.solution else ())
        for name, value in evaluation.metrics.items()
    ]
    places, names, values = zip(*rows, strict=True) if rows else ((), (), ())
    return {
        "evaluation": np.array(places, dtype=np.int64),
        "metric": np.array(names, dtype=object),
        "value": np.array(values, dtype=np.float64),
    }


def gradients(record: Record) -> Columns:
    """A row per gradient of a profiled step."""
    found = record.profile.gradients if record.profile else []

    def column(value: Callable[[Any], float]) -> NDArray[np.float64]:
        return np.array([value(gradient) for gradient in found], dtype=np.float64)

    return {
        "place": np.arange(len(found)),
        "gradient": np.array([gradient.name for gradient in found], dtype=object),
        "num_bytes": np.array([gradient.num_bytes for gradient in found], dtype=np.int64),
        "ready_low_seconds": column(lambda gradient: gradient.ready.low),
        "ready_seconds": column(lambda gradient: gradient.ready.median),
        "ready_high_seconds": column(lambda gradient: gradient.ready.high),
    }
