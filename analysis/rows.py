"""A scaling table as plain rows with stable keys, for `--json` and for the CSV behind each figure."""

from __future__ import annotations

from typing import Any

from dlscale.analysis.frame import options_text
from dlscale.analysis.scaling import Row, ScalingTable
from dlscale.analysis.statistics import Interval

SCHEMA = 1  # raised when a key changes its name or meaning; new keys may come at any time


def to_json(table: ScalingTable) -> dict[str, Any]:
    """`{"schema": 1, "rows": [...]}`, ready for `json.dumps`."""
    return {"schema": SCHEMA, "rows": to_rows(table)}


def to_rows(table: ScalingTable) -> list[dict[str, Any]]:
    """One flat row per cell, see `to_row`."""
    return [to_row(row) for row in table.rows]


def to_row(row: Row) -> dict[str, Any]:
    """A cell's fields, then its numbers; None where there is none. Efficiencies are ratios: 1 is ideal.

    `input_stall` and `input_loss` are shares of a training step. `comparable` says whether the parity gate
    passed between the frameworks; None if it did not run or there is only one framework.
    """
    cell = row.cell
    return {
        "system": row.family.system,
        "workload": cell.workload,
        "preset": cell.preset,
        "framework": cell.framework,
        "backend": cell.backend,
        "backend_options": options_text(cell),
        "environment": cell.environment,
        "scaling_mode": cell.scaling_mode,
        "num_ranks": cell.num_ranks,
        "num_servers": cell.num_servers,
        "num_nodes": cell.num_nodes,
        "cores_per_rank": cell.cores_per_rank,
        "threads_per_rank": cell.threads_per_rank,
        "local_batch": cell.local_batch,
        "global_batch": cell.global_batch,
        "precision": cell.precision,
        "compiled": cell.compiled,
        "memory_format": cell.memory_format,
        "data": cell.data,
        "control": cell.control,
        "evidence": row.evidence,
        "fingerprint": row.fingerprint,
        **_interval("samples_per_second", row.throughput),
        **_interval("efficiency_none", row.efficiency_none),
        **_interval("efficiency_backend", row.efficiency_backend),
        **_interval("input_stall", row.input_stall),
        **_interval("input_loss", row.input_loss),
        "peak_rss_bytes": row.peak_rss_bytes,
        "comparable": row.pair and row.pair.comparable,
        "num_launches": row.num_launches,
        "num_planned": row.num_planned,
        "notes": list(row.notes),
    }


def _interval(name: str, interval: Interval | None) -> dict[str, Any]:
    return {
        name: interval and interval.center,
        f"{name}_low": interval and interval.low,
        f"{name}_high": interval and interval.high,
        f"{name}_level": interval and interval.level,
        f"{name}_method": interval and interval.method,
        f"{name}_n": interval and interval.n,
    }
