"""Records to one tidy table: a row per case, with the launch's own value and how it came about.

World time is the slowest rank's: throughput is never one rank's rate times the number of ranks. Within a
launch windows are correlated, so a launch gives one value, the median over its steady windows of seconds per
step (a cost; rates are derived from it), and statistics are done over launches.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import inf

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from dlscale.benchmarks.record import Cell, Record, Window
from dlscale.models.errors import UsageError

# Controls of which no row of a table is made: a job's canaries, and exchanges by themselves, which train nothing.
APART = frozenset({"canary", "exchange"})


def steady_windows(record: Record) -> list[Window]:
    """The windows that count: those after the warm-up."""
    return [window for window in record.windows if window.phase == "steady"]


def world_step_seconds(record: Record) -> NDArray[np.float64]:
    """Seconds per step of each steady window, [W]: the slowest rank's time over the number of steps.

    Where ranks do not step together, a step is as many applied local batches as there are ranks.
    """
    num_ranks = record.case.cell.num_ranks
    # Python's own max: of a short list it is many times faster than NumPy's, and there are millions of windows.
    return np.array(
        [max(window.seconds) / _num_steps(window, num_ranks) for window in steady_windows(record)]
    )


def _num_steps(window: Window, num_ranks: int) -> float:
    return window.num_steps if window.num_applied is None else window.num_applied / num_ranks


def num_samples(window: Window, cell: Cell) -> int:
    """Over all ranks; where ranks do not step together those that the weights took up. An exchange alone has none."""
    if cell.control == "exchange":
        return 0
    if window.num_applied is None:
        return window.num_steps * cell.global_batch
    return window.num_applied * cell.global_batch // cell.num_ranks


def start_skew(record: Record) -> float:
    """By which fraction of a window the ranks started apart, median over the steady windows."""
    skews = [
        (max(window.start_seconds) - min(window.start_seconds)) / max(window.seconds)
        for window in steady_windows(record)
    ]
    return float(np.median(skews))


def why_unusable(record: Record) -> str | None:
    """Why this attempt gives no number, in one line; None if it does.

    A window without the times of all ranks gives none: the missing rank may be the slowest.
    """
    if record.failure is not None:
        where = "" if record.failure.rank is None else f" on rank {record.failure.rank}"
        return " ".join(f"{record.failure.kind}{where}: {record.failure.message}".split())
    windows = steady_windows(record)
    if not windows:
        return "no window after the warm-up"
    num_ranks = record.case.cell.num_ranks
    for window in windows:
        if not len(window.seconds) == len(window.start_seconds) == num_ranks:
            return f"a window has the times of {len(window.seconds)} of {num_ranks} ranks"
        # NaN passes through a sum, but not through a comparison.
        if not (min(window.seconds) > 0 and sum(window.seconds) < inf):
            return f"a window has the impossible times {window.seconds} seconds"
        if window.num_applied == 0:
            return "a window in which no gradient was applied"
    return None


def tidy(records: Iterable[Record]) -> pd.DataFrame:
    """One row per case: its latest good attempt; where there is none, its latest, with `good` = False.

    Columns: `study`, `system`, all fields of the cell (options as text), `cell_id`, `case_id`, `block`,
    `evidence`, `fingerprint`, `attempt`, `num_attempts`, `oversubscribed`, `good`, and of the launch
    `exchange` ("overlapped" with the computation or "in line" after it, as the backend said; "mixed" if ranks
    differ, empty if unknown), `steady`, `num_windows`, and NaN where not good: `start_skew` [fraction of a
    window], `seconds_per_step`, `samples_per_second`, `peak_rss_bytes` (the largest rank's), `num_skipped`
    (samples, over all ranks) and `num_skipping` (ranks that skipped any).

    Raises UsageError if good launches of one system, environment and framework differ in fingerprint.
    """
    attempts: dict[tuple[str, str, str], list[Record]] = {}
    for record in records:
        attempts.setdefault((record.system, record.study, record.case.id), []).append(record)
    rows = [_row(sorted(group, key=lambda record: record.attempt)) for group in attempts.values()]
    frame = pd.DataFrame(rows, columns=_COLUMNS)
    _refuse_mixed_fingerprints(frame)
    return frame.sort_values(["system", "study", "cell_id", "block"], ignore_index=True)


_NUMBERS = (
    *("start_skew", "seconds_per_step", "samples_per_second"),
    *("peak_rss_bytes", "num_skipped", "num_skipping"),
)
_COLUMNS = [
    *("study", "system"),
    *Cell.model_fields,
    *("cell_id", "case_id", "block", "evidence", "fingerprint", "attempt", "num_attempts", "oversubscribed"),
    *("good", "exchange", "steady", "num_windows"),
    *_NUMBERS,
]


def _row(attempts: Sequence[Record]) -> dict[str, object]:
    good = [record for record in attempts if why_unusable(record) is None]
    record = (good or attempts)[-1]
    cell = record.case.cell
    row: dict[str, object] = {
        "study": record.study,
        "system": record.system,
        **cell.model_dump(),
        "backend_options": options_text(cell),
        "cell_id": cell.id,
        "case_id": record.case.id,
        "block": record.case.block,
        "evidence": record.evidence,
        "fingerprint": record.fingerprint.digest,
        "attempt": record.attempt,
        "num_attempts": len(attempts),
        "oversubscribed": record.oversubscribed,
        "good": bool(good),
        "exchange": exchange(record),
        "steady": bool(good) and record.steady is not False,
        "num_windows": len(steady_windows(record)),
        **dict.fromkeys(_NUMBERS, np.nan),
    }
    if good:
        seconds_per_step = float(np.median(world_step_seconds(record)))
        row["start_skew"] = start_skew(record)
        row["seconds_per_step"] = seconds_per_step
        row["samples_per_second"] = cell.global_batch / seconds_per_step
        # 0 bytes: a rank whose end was never seen.
        row["peak_rss_bytes"] = max((rank.peak_rss_bytes for rank in record.ranks), default=0) or np.nan
        skipped = [count for count in record.skipped_samples if count]
        row["num_skipped"], row["num_skipping"] = sum(skipped), len(skipped)
    return row


def exchange(record: Record) -> str:
    """How gradients were exchanged, as the backend said; empty if it did not."""
    overlap = record.backend_settings.get("overlap")
    if isinstance(overlap, str):  # ranks that differ: "False | True"
        return "mixed"
    return "" if overlap is None else "overlapped" if overlap else "in line"


def options_text(cell: Cell) -> str:
    """The backend's options in one order, for people: `chunk_bytes=65536, threads=2`; empty without any."""
    return ", ".join(f"{name}={value}" for name, value in sorted(cell.backend_options.items()))


def _refuse_mixed_fingerprints(frame: pd.DataFrame) -> None:
    """A point and its base case share these three, so equal fingerprints here make every curve's equal."""
    for key, group in frame[frame["good"].astype(bool)].groupby(["system", "environment", "framework"]):
        digests = list(group["fingerprint"].unique())
        if len(digests) > 1:
            raise UsageError(
                f"records of {' / '.join(map(str, key))} have fingerprints {digests[0]} and {digests[1]}: "
                "code, versions or node changed between them, so they do not belong on one curve; "
                "analyse them as separate studies"
            )
