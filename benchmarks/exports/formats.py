"""A record as an MLPerf training log.

`:::MLLOG` lines are written by the package mlperf-logging. They are no submission, so `submission_*` and everything
else that a record does not hold is left out.
"""

from __future__ import annotations

import importlib
import io
import logging
import re
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from dlscale.base.errors import UsageError
from dlscale.benchmarks.records.record import Record, Window

PACKAGE = "mlperf_logging"


def mllog_text(record: Record, samples_per_second: Sequence[float]) -> str:
    """The log of one attempt at a case.

    `samples_per_second` are those of its steady windows, in order; none if the record gives no number. What was never
    reached has no line: a launch that failed before its first window has a beginning and no run.
    Raises UsageError without mlperf-logging.
    """
    output = io.StringIO()
    logger, names, began = make_logger(output, record)
    logger.start(key=names.INIT_START, metadata=what_was_run(record), time_ms=began)
    for key, (value, metadata) in run_facts(record, names).items():
        logger.event(key=key, value=value, metadata=metadata, time_ms=began)
    first = first_window(record)
    steady = [window for window in record.windows if window.phase == "steady"]
    if first is None or not steady:
        return output.getvalue()
    # Clocks of other machines count from other boots.
    ranks = record.clocks[0] if record.clocks else range(record.case.cell.num_ranks)

    def at(seconds: float) -> int:
        return began + round(1000 * (first + seconds))

    began_steady = at(min(steady[0].start_seconds[rank] for rank in ranks))
    logger.end(key=names.INIT_STOP, time_ms=began_steady)
    logger.start(key=names.RUN_START, time_ms=began_steady)
    num_steps = sum(window.num_steps for window in record.windows if window.phase == "warmup")
    for window, rate in zip(steady, samples_per_second, strict=False):
        num_steps += window.num_steps
        logger.event(
            key="tracked_stats",
            value={"throughput": float(rate)},
            metadata={"step": num_steps},
            time_ms=at(_end(window, ranks)),
        )
    status = names.SUCCESS if record.good else names.ABORTED
    ended = at(max(_end(window, ranks) for window in steady))
    logger.end(key=names.RUN_STOP, metadata={names.STATUS: status}, time_ms=ended)
    return output.getvalue()


def make_logger(output: io.StringIO, record: Record) -> tuple[Any, Any, int]:
    """A logger of MLPerf's package that writes to `output`, its names, and the launch's beginning in milliseconds.

    Raises UsageError without the package.
    """
    mllog, names = _package(), _constants()
    logger = mllog.MLLogger(logger=_into(output), root_dir=re.escape(str(Path(__file__).parents[2])))
    return logger, names, _milliseconds(record)


def _package() -> Any:
    try:
        return importlib.import_module(f"{PACKAGE}.mllog.mllog")
    except ModuleNotFoundError as error:
        if not (error.name or "").startswith(PACKAGE):
            raise
        raise UsageError(
            "MLPerf logs need the package mlperf-logging, which is not installed; "
            "install it with: pip install 'dlscale[mllog]'"
        ) from None


def _constants() -> Any:
    return importlib.import_module(f"{PACKAGE}.mllog.constants")


def _into(output: io.StringIO) -> logging.Logger:
    """A private logger that writes to `output`."""
    logger = logging.Logger("dlscale.mllog")  # not in the registry, where others could add handlers
    logger.addHandler(logging.StreamHandler(output))
    return logger


def _milliseconds(record: Record) -> int:
    began = datetime.fromisoformat(record.started_at)
    return round(1000 * (began if began.tzinfo else began.replace(tzinfo=UTC)).timestamp())


def first_window(record: Record) -> float | None:
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


def run_facts(record: Record, names: Any) -> dict[str, tuple[Any, dict[str, Any]]]:
    """Key -> value and metadata of what holds for the whole run."""
    cell = record.case.cell
    facts: dict[str, tuple[Any, dict[str, Any]]] = {
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


def what_was_run(record: Record) -> dict[str, Any]:
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
