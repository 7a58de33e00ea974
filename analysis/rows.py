"""A scaling table as plain rows with stable keys, for `--json` and for the CSV behind each figure."""

from __future__ import annotations

from typing import Any

from dlscale.analysis import productivity
from dlscale.analysis.backends import Comparison, Contender
from dlscale.analysis.bounds_words import columns
from dlscale.analysis.checkpoints import Saving
from dlscale.analysis.energy import Energy
from dlscale.analysis.exchange import rows as exchange_rows
from dlscale.analysis.family import Family
from dlscale.analysis.frame import options_text
from dlscale.analysis.late import rows as late_rows
from dlscale.analysis.outliers.rows import columns as outlier_columns
from dlscale.analysis.scaling import Row, ScalingTable
from dlscale.analysis.startup import StartUp
from dlscale.analysis.waterfall import rows as waterfall_rows
from dlscale.analysis.waterfall.rows import interval_columns
from dlscale.benchmarks.record import Cell

SCHEMA = 1  # raised when a key changes its name or meaning; new keys may come at any time


def to_json(table: ScalingTable) -> dict[str, Any]:
    """`{"schema": 1, "rows": ..., ...}`, a list of flat rows per table, ready for `json.dumps`."""
    backends = [row for comparison in table.comparisons for row in to_backend_rows(comparison)]
    return {
        "schema": SCHEMA,
        "rows": to_rows(table),
        "backends": backends,
        "waterfalls": waterfall_rows.to_rows(table.waterfalls),
        "exchanges": exchange_rows.to_rows(table.exchanges),
        "late": late_rows.to_rows(table.lateness),
        "start_up": [to_start_up_row(one) for one in table.start_ups],
        "checkpoints": [to_saving_row(one) for one in table.savings],
        "energy": [to_energy_row(one) for one in table.energies],
        "productivity": [to_productivity_row(one) for one in productivity.stored(table.pairs)],
    }


def to_rows(table: ScalingTable) -> list[dict[str, Any]]:
    """One flat row per cell, see `to_row`."""
    return [to_row(row) for row in table.rows]


def to_row(row: Row) -> dict[str, Any]:
    """A cell's fields, then its numbers; None where there is none. Efficiencies are ratios: 1 is ideal.

    `speed_up` is against base case (a), as `efficiency_none`, times the number of ranks.
    `bound_wire`, `bound_memory` and `bound_loader` are what `efficiency_none` cannot exceed. `num_launches_out` and
    the like say what stands out; it counts in all numbers but those that are called `without`.
    `input_stall` and `input_loss` are shares of a training step. `comparable` says whether the parity gate
    passed between the frameworks; None if it did not run or there is only one framework.
    """
    cell = row.cell
    return {
        **_setting(row.family, cell),
        "control": cell.control,
        "evidence": row.evidence,
        "fingerprint": row.fingerprint,
        **interval_columns("samples_per_second", row.throughput),
        **interval_columns("speed_up", row.speed_up),
        **interval_columns("efficiency_none", row.efficiency_none),
        **interval_columns("efficiency_backend", row.efficiency_backend),
        **columns(row.limits),
        **interval_columns("input_stall", row.input_stall),
        **interval_columns("input_loss", row.input_loss),
        "peak_rss_bytes": row.peak_rss_bytes,
        "comparable": row.pair and row.pair.comparable,
        "num_launches": row.num_launches,
        "num_planned": row.num_planned,
        **outlier_columns(row.outliers),
        "notes": list(row.notes),
    }


def to_backend_rows(comparison: Comparison) -> list[dict[str, Any]]:
    """One flat row per backend, set beside the fastest other one on as many ranks.

    `exposed_communication`, `difference` and `communication` are shares of the computation, whose seconds per
    step are those of backend `none`; a negative difference is faster than `peer`. `communication` is that of
    the slower of the two, which decides whether a difference is resolvable.
    """
    return [_backend_row(comparison, one) for one in comparison.contenders]


def _backend_row(comparison: Comparison, one: Contender) -> dict[str, Any]:
    return {
        **_setting(comparison.family, one.cell),
        "evidence": comparison.evidence,
        "exchange": one.exchange or None,
        **interval_columns("seconds_per_step", one.seconds_per_step),
        **interval_columns("computation_seconds_per_step", comparison.computation),
        **interval_columns("exposed_communication", one.exposed),
        "peer": one.peer and one.peer.backend,
        "peer_options": one.peer and options_text(one.peer),
        **interval_columns("difference", one.difference),
        "communication": one.communication,
        "verdict": one.verdict,
        "reason": one.reason or None,
    }


def to_start_up_row(one: StartUp) -> dict[str, Any]:
    """Seconds of the slowest rank before it trains, medians over launches; None for a phase that none reached."""
    return {
        "framework": one.framework,
        "backend": one.backend,
        "num_ranks": one.num_ranks,
        "num_servers": one.num_servers,
        "num_launches": one.num_launches,
        **{f"{phase}_seconds": seconds for phase, seconds in one.seconds.items()},
    }


def to_saving_row(one: Saving) -> dict[str, Any]:
    """What it cost to save trainings and to go on with them; `share` is of the time in steps and in saving."""
    return {
        "workload": one.workload,
        "framework": one.framework,
        "backend": one.backend,
        "num_ranks": one.num_ranks,
        "num_launches": one.num_launches,
        "num_checkpoints": one.num_checkpoints,
        "num_bytes": one.num_bytes,
        **interval_columns("seconds", one.seconds),
        "share": one.share,
        "num_restarts": one.num_restarts,
        "read_seconds": one.read_seconds,
        "num_lost_steps": one.num_lost_steps,
    }


def to_energy_row(one: Energy) -> dict[str, Any]:
    """Joules per sample of all nodes; `sources` say what was counted, `reason` why nothing is known."""
    cell = one.cell
    return {
        "system": one.system,
        "workload": cell.workload,
        "preset": cell.preset,
        "framework": cell.framework,
        "backend": cell.backend,
        "backend_options": options_text(cell),
        "scaling_mode": cell.scaling_mode,
        "num_ranks": cell.num_ranks,
        "num_servers": cell.num_servers,
        "num_nodes": cell.num_nodes,
        "evidence": one.evidence,
        **interval_columns("joules_per_sample", one.joules_per_sample),
        "watts": one.watts,
        "sources": ", ".join(one.sources) or None,
        "num_launches": one.num_launches,
        "reason": one.reason or None,
    }


def to_productivity_row(change: productivity.Change) -> dict[str, Any]:
    """Lines of code from `single.py` to `script`, both under docs/examples."""
    return {
        "framework": change.framework,
        "backend": change.backend,
        "added": change.added,
        "changed": change.changed,
        "removed": change.removed,
        "script": change.script,
    }


def _setting(family: Family, cell: Cell) -> dict[str, Any]:
    """What was run, on what."""
    return {
        "system": family.system,
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
        "device": cell.device,
        "data": cell.data,
    }
