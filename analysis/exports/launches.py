"""One row per launch and attempt, the failed ones too."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

import numpy as np
import pandas as pd

from dlscale.analysis.energy import Reading, reading
from dlscale.analysis.exports.columns import LAUNCHES
from dlscale.analysis.exports.frames import typed
from dlscale.analysis.frame import (
    exchange,
    num_samples,
    options_text,
    start_skew,
    steady_windows,
    why_unusable,
    world_step_seconds,
)
from dlscale.analysis.waterfall.times import latest_good
from dlscale.benchmarks.record import Phases, Record

Key = tuple[str, str, str, int]  # system, study, case, attempt


def key_of(record: Record) -> Key:
    """What tells an attempt from all others."""
    return record.system, record.study, record.case.id, record.attempt


def counting(records: Iterable[Record]) -> set[Key]:
    """The attempts that the report's numbers are made of; canaries are none of them."""
    return {key_of(record) for record in latest_good(records) if record.case.cell.control != "canary"}


def launch_frame(records: Sequence[Record], counts: Collection[Key]) -> pd.DataFrame:
    """The table `launches`, in the order of the records."""
    return typed([_row(record, counts=key_of(record) in counts) for record in records], LAUNCHES)


def _row(record: Record, *, counts: bool) -> dict[str, object]:
    cell, reason, windows = record.case.cell, why_unusable(record), steady_windows(record)
    row: dict[str, object] = {
        "study": record.study,
        "case_id": record.case.id,
        "attempt": record.attempt,
        "counts": counts,
        "system": record.system,
        "cell_id": cell.id,
        **cell.model_dump(),
        "backend_options": options_text(cell),
        "block": record.case.block,
        "position": record.case.position,
        "evidence": record.evidence,
        "started_at": record.started_at,
        "fingerprint": record.fingerprint.digest,
        "commit": record.fingerprint.commit,
        "failure_kind": record.failure.kind if record.failure else "",
        "reason": reason or "",
        "oversubscribed": record.oversubscribed,
        "steady": record.steady,
        "exchange": exchange(record),
        "num_windows": len(windows),
        "num_steps": sum(window.num_steps for window in windows),
        "num_samples": sum(num_samples(window, cell) for window in windows),
        "peak_rss_bytes": max((rank.peak_rss_bytes for rank in record.ranks), default=0) or None,
        "num_skipped_samples": sum(count for count in record.skipped_samples if count),
        **{f"{name}_seconds": _slowest(record.phases, name) for name in Phases.model_fields},
    }
    if reason is None:
        seconds = float(np.median(world_step_seconds(record)))
        row["seconds_per_step"] = seconds
        if cell.control != "exchange":
            row["samples_per_second"] = cell.global_batch / seconds
        row["start_skew_of_window"] = start_skew(record)
    energy = reading(record)
    if isinstance(energy, Reading):
        row["energy_joules"] = energy.joules
        row["joules_per_sample"] = energy.joules_per_sample
        row["energy_sources"] = ", ".join(energy.sources)
    else:
        row["energy_sources"] = ""
    return row


def _slowest(phases: Phases, name: str) -> float | None:
    """None where a rank did not reach the phase: it may be the slowest."""
    seconds: list[float | None] = getattr(phases, name)
    known = [one for one in seconds if one is not None]
    return max(known) if known and len(known) == len(seconds) else None
