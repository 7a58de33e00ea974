"""The rows of the table, of the CSV and of `--json`: who moved how much how fast, and what bounds it."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dlscale.analysis.statistics import Interval
from dlscale.models.files import write_atomically

if TYPE_CHECKING:
    from dlscale.analysis.collectives.summary import Summary

CSV_FILE = "collectives.csv"


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One library at one setting, at one place. Intervals are over launches."""

    role: str  # PEER, or one of the operations of our programs (times.py)
    backend: str
    title: str
    setting: str
    variables: Mapping[str, str]
    operation: str
    num_ranks: int
    mode: str
    message_bytes: int
    num_launches: int
    num_calls: int = 0  # timed, over all launches
    seconds: Interval | None = None  # the median over launches of a launch's median call
    best_seconds: float | None = None  # of all calls
    p99_seconds: float | None = None  # the median over launches of a launch's 99th percentile
    fraction_of_bound: Interval | None = None  # of the rate at which each rank can add to its own memory
    ring_speedup: Interval | None = None  # the ring's rate over this one's, paired
    shared_speedup: Interval | None = None  # the same for the ring in memory of its own
    tuned: bool = False  # the best of its library's settings at this place
    failure: str | None = None

    @property
    def algbw(self) -> Interval | None:
        """Message bytes per second, in GB/s."""
        return self.seconds.rate(1e-9 * self.message_bytes) if self.seconds else None

    @property
    def best_algbw(self) -> float | None:
        """Of the best call, in GB/s."""
        return 1e-9 * self.message_bytes / self.best_seconds if self.best_seconds else None

    @property
    def bus_factor(self) -> float:
        """Of busbw over algbw: what every rank must at least send and receive, per byte of the message."""
        return 2 * (self.num_ranks - 1) / self.num_ranks


def fastest(rows: Sequence[Row]) -> Row | None:
    """Of these, at one place. Beside the ring if all were measured beside it: that does not drift; else by time."""
    measured = [row for row in rows if row.seconds]
    if measured and all(row.ring_speedup for row in measured):
        return min(measured, key=lambda row: row.ring_speedup.center if row.ring_speedup else math.inf)
    return min(measured, key=lambda row: row.seconds.center if row.seconds else math.inf, default=None)


def to_row(row: Row) -> dict[str, Any]:
    """With the stable keys of `dlscale collectives --json`."""
    rate = row.algbw
    return {
        "backend": row.backend,
        "setting": row.setting,
        "operation": row.operation,
        "num_ranks": row.num_ranks,
        "message_bytes": row.message_bytes,
        "algbw_gb_per_second": rate.center if rate else None,
        "busbw_gb_per_second": rate.center * row.bus_factor if rate else None,
        "mode": row.mode,
        "algbw_low": rate.low if rate else None,
        "algbw_high": rate.high if rate else None,
        "best_algbw_gb_per_second": row.best_algbw,
        "median_seconds": row.seconds.center if row.seconds else None,
        "p99_seconds": row.p99_seconds,
        **_interval("fraction_of_bound", row.fraction_of_bound),
        **_interval("ring_speedup", row.ring_speedup),
        **_interval("ring_shared_speedup", row.shared_speedup),
        "num_launches": row.num_launches,
        "num_calls": row.num_calls,
        "tuned": row.tuned,
        "variables": dict(row.variables),
        "failure": row.failure,
    }


def to_json(summary: Summary) -> dict[str, Any]:
    """All rows, the goals and the comparison with others' benchmarks."""
    return {
        "schema": 1,
        "rows": [to_row(row) for row in summary.rows],
        "goals": [
            {"goal": verdict.goal, "verdict": verdict.verdict, "found": verdict.found}
            for verdict in summary.verdicts
        ],
        "validity": [
            {
                "backend": check.backend,
                "setting": check.setting,
                "valid": check.valid,
                "found": check.found,
            }
            for check in summary.checks
        ],
    }


def write_csv(summary: Summary, folder: Path) -> list[Path]:
    """`collectives.csv` in the run's folder: the rows of `--json`, and their origin in the last columns."""
    lines = [to_row(row) for row in summary.rows]
    for line in lines:
        line["variables"] = " ".join(f"{name}={value}" for name, value in line["variables"].items())
    lines = list(summary.provenance.beside(lines))
    text = io.StringIO()
    if lines:
        writer = csv.DictWriter(text, fieldnames=list(lines[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(lines)
    path = folder / CSV_FILE
    write_atomically(path, text.getvalue(), mode=0o644)  # made to be shown
    return [path]


def _interval(name: str, interval: Interval | None) -> dict[str, float | None]:
    if interval is None:
        return {name: None, f"{name}_low": None, f"{name}_high": None}
    return {name: interval.center, f"{name}_low": interval.low, f"{name}_high": interval.high}
