"""One row per window of every launch, or per window and rank."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from dlscale.analysis.exports.columns import RANKS, WINDOWS
from dlscale.analysis.exports.frames import stacked
from dlscale.analysis.frame import num_samples
from dlscale.benchmarks.record import Record

Arrays = dict[str, NDArray[Any]]
Matrix = NDArray[np.float64]  # [W][P]


def window_frame(records: Sequence[Record], counts: Callable[[Record], bool]) -> pd.DataFrame:
    """The table `windows`, in the order of the records. Only steady windows of records that `counts` do."""
    return stacked([_windows(record, counts=counts(record)) for record in records if record.windows], WINDOWS)


def rank_frame(records: Sequence[Record]) -> pd.DataFrame:
    """The table `ranks`, in the order of the records."""
    return stacked([_ranks(record) for record in records if record.windows], RANKS)


def _windows(record: Record, *, counts: bool) -> Arrays:
    cell, windows = record.case.cell, record.windows
    starts, seconds = _matrix(record, "start_seconds"), _matrix(record, "seconds")
    # A window without the times of all ranks has no world time: the missing rank may be the slowest.
    unsound = ~np.all((seconds > 0) & np.isfinite(seconds), axis=1)
    seconds[unsound] = np.nan
    world = seconds.max(axis=1)
    applied = np.array([np.nan if one.num_applied is None else one.num_applied for one in windows])
    num_steps = np.array([one.num_steps for one in windows])
    steps = np.where(np.isnan(applied), num_steps, applied / cell.num_ranks)
    samples = np.array([num_samples(one, cell) for one in windows])
    phases = np.array([one.phase for one in windows], dtype=object)
    return {
        **_key(record),
        **{
            name: np.array(getattr(cell, name), dtype=object)
            for name in ("workload", "framework", "backend", "control")
        },
        "num_ranks": np.array(cell.num_ranks),
        "block": np.array(record.case.block),
        "window": np.arange(len(windows)),
        "phase": phases,
        "counts": (phases == "steady") & counts,
        "num_steps": num_steps,
        "num_applied": applied,
        "num_samples": samples,
        "start_seconds": starts.min(axis=1),
        "start_skew_seconds": starts.max(axis=1) - starts.min(axis=1),
        "slowest_rank": np.where(unsound, np.nan, seconds.argmax(axis=1)),
        "slowest_rank_seconds": world,
        "mean_rank_seconds": seconds.mean(axis=1),
        "fastest_rank_seconds": seconds.min(axis=1),
        "seconds_per_step": np.divide(world, steps, out=np.full(len(windows), np.nan), where=steps > 0),
        "samples_per_second": np.where(cell.control == "exchange", np.nan, samples / world),
    }


def _ranks(record: Record) -> Arrays:
    windows, num_ranks = record.windows, record.case.cell.num_ranks
    steps = [one.rank_steps or [one.num_steps] * num_ranks for one in windows]
    return {
        **_key(record),
        "window": np.repeat(np.arange(len(windows)), num_ranks),
        "rank": np.tile(np.arange(num_ranks), len(windows)),
        "num_steps": _whole(steps, num_ranks).ravel(),
        "start_seconds": _matrix(record, "start_seconds").ravel(),
        "seconds": _matrix(record, "seconds").ravel(),
    }


def _key(record: Record) -> Arrays:
    return {
        "study": np.array(record.study, dtype=object),
        "case_id": np.array(record.case.id, dtype=object),
        "attempt": np.array(record.attempt),
    }


def _matrix(record: Record, name: str) -> Matrix:
    return _whole([getattr(window, name) for window in record.windows], record.case.cell.num_ranks)


def _whole(rows: Sequence[Sequence[float]], num_ranks: int) -> Matrix:
    """[W][P]; NaN for the ranks of a window that has not as many values as there are ranks."""
    nothing = [np.nan] * num_ranks
    return np.array([row if len(row) == num_ranks else nothing for row in rows], dtype=np.float64)
