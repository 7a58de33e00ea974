"""What one attempt says by itself, and which attempt of a launch counts.

A launch gives one value, the median over its steady windows of the slowest rank's seconds per step, because windows of
one launch are correlated.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from dlscale.analysis.statistics import Floats
from dlscale.analysis.text import plural
from dlscale.benchmarks.records.cell import Cell
from dlscale.benchmarks.records.record import Record
from dlscale.benchmarks.records.windows import Windows
from dlscale.collectives.algorithms import SYNC
from dlscale.collectives.backend import BUCKET_SIZES, GATHER_SIZES
from dlscale.collectives.capabilities import TABLE
from dlscale.collectives.sharding import NONE as UNSHARDED

CLOCK_TICK = 1e-9  # seconds; a window is not shorter
MAX_PAUSE_SECONDS = 3600.0  # between two launches of a block; beyond it they are not paired
PHASES = ("start_up", "import_backend", "connect", "gates", "first_step", "audits")
ATTEMPTS = {  # columns that every frame of attempts has, with their types
    **dict.fromkeys(("number", "block_number", "attempt", "num_windows", "skipped", "num_throttled"), int),
    **dict.fromkeys(("id", "cell", "system", "setup", "study", "case", "evidence", "exchange", "why"), str),
    **dict.fromkeys(("fingerprint", "commit"), str),
    **dict.fromkeys(("step_seconds", "mean_step_seconds", "latest_step_seconds", "stamped", "skew"), float),
    **dict.fromkeys(("foreign_cpu", "window_seconds", *(f"{phase}_seconds" for phase in PHASES)), float),
    **dict.fromkeys(("is_steady", "is_together", "is_oversubscribed"), bool),
}  # fmt: skip


# From a record to a row


def attempt_row(number: int, record: Record, cell_id: str) -> dict[str, Any]:
    """What one attempt says by itself."""
    cell, windows = record.case.cell, record.counted
    why = _why_unusable(record)
    row = {
        "number": number,
        "id": cell_id,
        "case": f"{cell_id}-{record.case.block:02d}",  # as Case.id
        "system": record.system,
        "study": record.study,
        "setup": f"{cell.environment} / {cell.framework}",
        "evidence": record.evidence,
        "block_number": record.case.block,
        "attempt": record.attempt,
        "started": record.started_at,
        "fingerprint": record.fingerprint.digest,
        "commit": record.fingerprint.commit,
        "exchange": _exchange_mode(record),
        "why": why,
        "is_steady": record.steady is not False,
        "is_together": windows.num_applied is None,
        "is_oversubscribed": record.oversubscribed,
        "skipped": sum(filter(None, record.skipped_samples)),
        "foreign_cpu": record.windows.foreign_share,
        "num_throttled": sum(node.num_throttled for node in record.nodes),
        "window_seconds": float(record.windows.world.sum()),
        "num_windows": 0 if why else len(windows),
        **{f"{phase}_seconds": _slowest(getattr(record.phases, phase)) for phase in PHASES},
    }
    if why:
        return row
    steps = equal_steps(windows, cell)
    world, means = windows.world / steps, windows.seconds.mean(axis=1) / steps
    spreads, stamped = _spreads(record)
    return row | {
        "step_seconds": _median(world),
        "mean_step_seconds": _median(means),
        "latest_step_seconds": np.nan if spreads is None else _median(means + spreads),
        "stamped": np.nan if stamped is None else _median(stamped / windows.seconds.sum(axis=1)),
        "skew": start_skew(record),
    }


def step_seconds(record: Record) -> Floats:
    """Seconds per step of each steady window, [W]: the slowest rank's time over the number of steps."""
    windows = record.counted
    steps: Floats = windows.world / equal_steps(windows, record.case.cell)
    return steps


def equal_steps(windows: Windows, cell: Cell) -> Floats:
    """Steps of each window, [W], in steps with the cell's global batch.

    If ranks do not step together, a step is as many applied local batches as there are ranks.
    """
    steps: Floats = windows.num_steps
    if windows.num_applied is not None:
        applied = windows.num_applied / cell.num_ranks
        steps = np.where(np.isnan(applied), steps, applied)
    if windows.num_samples is not None:
        samples = windows.num_samples / cell.global_batch
        steps = np.where(np.isnan(samples), steps, samples)
    return steps


def _spreads(record: Record) -> tuple[Floats | None, Floats | None]:
    """For each window the mean over steps of (maximum - mean over ranks) and the sum of its stamps; None without.

    Window totals give the length of steps, and stamps only the difference between ranks. The k-th steps of all ranks
    are compared with each other.
    """
    windows = record.counted
    stamps = windows.step_seconds  # [steps, P]
    if stamps is None or len(stamps) < windows.num_steps.sum():
        return None, None
    first = np.concatenate([[0], windows.num_steps.cumsum()[:-1]]).astype(int)
    spreads = np.add.reduceat(stamps.max(axis=1) - stamps.mean(axis=1), first) / windows.num_steps
    return spreads, np.add.reduceat(stamps.sum(axis=1), first)


def _median(values: Floats) -> float:
    """NumPy's takes 50 us for a few numbers, and there are several in each record."""
    ordered, middle = np.sort(values), len(values) - 1
    return float(ordered[middle // 2] + ordered[(middle + 1) // 2]) / 2


def start_skew(record: Record) -> float:
    """The spread of the ranks' starts as a share of a window: median, on the machine where it is largest.

    Each machine's clock counts from its own boot; NaN if no machine has two ranks, and 0 for 1 rank.
    """
    if record.case.cell.num_ranks == 1:
        return 0.0
    windows, found = record.counted, list[float]()
    for ranks in record.clocks:
        if len(ranks) > 1:
            starts = windows.start_seconds[:, ranks]
            found.append(_median((starts.max(axis=1) - starts.min(axis=1)) / windows.world))
    return max(found, default=np.nan)


def _slowest(seconds: Sequence[float | None] | None) -> float | None:
    """None if a rank did not reach the phase: it may be the slowest."""
    known = [value for value in seconds or () if value is not None]
    return max(known) if seconds and len(known) == len(seconds) else None


def _exchange_mode(record: Record) -> str:
    """How gradients were exchanged, as the backend reported; empty if it did not."""
    overlap = record.backend_settings.get("overlap")
    if isinstance(overlap, str):  # ranks that differ: "False | True"
        return "mixed"
    return "" if overlap is None else "overlapped" if overlap else "in line"


def _why_unusable(record: Record) -> str:
    """Why this attempt gives no number, in one line; empty if it gives one."""
    if record.failure is not None:
        where = "" if record.failure.rank is None else f" on rank {record.failure.rank}"
        return " ".join(f"{record.failure.kind}{where}: {record.failure.message}".split())
    if missing := record.missing_gates:
        return f"gates that it must have are missing: {', '.join(missing)}"
    windows = record.counted
    if not windows:
        return "no window after the warm-up"
    impossible = np.flatnonzero(windows.seconds.min(axis=1) < CLOCK_TICK)
    if len(impossible):
        return f"a window has the impossible times {windows.seconds[impossible[0]].tolist()} seconds"
    if windows.num_applied is not None and (windows.num_applied == 0).any():
        return "a window in which no gradient was applied"
    return ""


# What a rank sends in a step


def wire_bytes(record: Record) -> float:
    """Bytes that a rank sends in a step, mean over ranks, counted from compressed messages; NaN if not known."""
    sent = record.backend_settings.get("wire_bytes")
    if sent is None:
        return np.nan
    return float(np.mean([int(count) for count in str(sent).split(" | ")]))  # ranks that differ are listed


def plain_bytes(record: Record) -> float:
    """Bytes that a rank sends in a step without compression; NaN if not known.

    (P - 1)/P of every bucket that is reduce-scattered and of every one that is gathered; an allreduce is both.
    """
    buckets = _sizes(record, BUCKET_SIZES)
    if not buckets:
        return np.nan
    cell = record.case.cell
    gathered = buckets if cell.shard == UNSHARDED else _sizes(record, GATHER_SIZES)
    return (cell.num_ranks - 1) / cell.num_ranks * (sum(buckets) + sum(gathered))


def sent_bytes(record: Record) -> float:
    """Bytes that a rank sends in a step, without messages' heads; NaN if not known.

    Of servers, and of algorithms that do not exchange in every step, nothing is known.
    """
    cell = record.case.cell
    row = TABLE.get(cell.backend)
    if row is None or row.servers or not row.exchanges or cell.algorithm != SYNC:
        return np.nan
    sent = wire_bytes(record)
    return plain_bytes(record) if np.isnan(sent) else sent


def _sizes(record: Record, setting: str) -> list[int]:
    text = str(record.backend_settings.get(setting, ""))
    return [] if " | " in text else [int(size) for size in text.split(",") if size]  # ranks that differ


# From attempts to launches


def of_one_fingerprint(attempts: pd.DataFrame) -> tuple[pd.DataFrame, list[str]]:
    """Attempts without good ones of a second fingerprint, and a sentence on each that was left out.

    For each system, environment and framework, the fingerprint with the most good launches stays, the latest of those
    with as many: code, versions or node changed between them. Failed attempts of the others stay, too.
    """
    setup = [attempts["system"], attempts["setup"]]
    good = attempts[attempts["why"] == ""]
    groups = good.groupby(["system", "setup", "fingerprint"])
    found = groups.agg(num=("number", "size"), latest=("started", "max")).reset_index()
    found = found.sort_values(["num", "latest", "fingerprint"], ascending=False)
    drop, sentences = pd.Series(False, attempts.index), []
    for (system, name), group in found.groupby(["system", "setup"]):
        first = group.iloc[0]
        for row in group.iloc[1:].itertuples():
            other = (setup[0] == system) & (setup[1] == name) & (attempts["fingerprint"] == row.fingerprint)
            drop |= other & (attempts["why"] == "")
            sentences.append(
                f"{plural(row.num, 'case')} of {system} / {name} with fingerprint {row.fingerprint}: code, versions or "
                f"node changed, so they do not belong on one curve with the {first['num']} of {first['fingerprint']}"
            )
    return attempts[~drop].reset_index(drop=True), sentences


def cell_keys(attempts: pd.DataFrame) -> pd.Series:
    """The key of each attempt's cell: its id, with the kind of evidence and the system where it has several."""
    keys = attempts["id"].copy()
    for name in ("evidence", "system"):
        several = attempts.groupby("id")[name].transform("nunique") > 1
        keys = keys.where(~several, keys + " " + attempts[name])
    return keys


def cell_facts(attempts: pd.DataFrame, planned: pd.Series) -> pd.DataFrame:
    """Key, id, system, kind of evidence, fingerprint and planned launches of each measured or planned cell."""
    columns = ["cell", "id", "system", "evidence", "fingerprint"]
    best = attempts.assign(is_bad=attempts["why"] != "").sort_values("is_bad", kind="stable")
    facts = best.drop_duplicates("cell")[columns]
    system = sorted(attempts["system"])[0] if len(attempts) else "unknown"
    others = [cell_id for cell_id in planned.index if cell_id not in set(facts["id"])]
    not_run = {"cell": others, "id": others, "system": system, "evidence": "", "fingerprint": ""}
    facts = pd.concat([facts, pd.DataFrame(not_run, columns=columns)], ignore_index=True)
    counts = facts["id"].map(planned).fillna(0).astype(int)
    return facts.assign(num_planned=counts)


def launches_of(attempts: pd.DataFrame) -> pd.DataFrame:
    """The attempt of each launch that counts: the latest good one, else the latest; with the block that it ran in."""
    case = ["system", "study", "id", "block_number"]
    counted = attempts.assign(
        num_attempts=attempts.groupby(case)["attempt"].transform("size"), is_bad=attempts["why"] != ""
    )
    counted = counted.join(_parts(attempts))
    best = counted.sort_values(["is_bad", "attempt"], ascending=[True, False], kind="stable")
    return best.drop_duplicates(case).drop(columns="is_bad").sort_values("number")


def _parts(attempts: pd.DataFrame) -> pd.DataFrame:
    """The block of each attempt as a text, with the part of it after a pause of an hour, which is no pair.

    A study that was stopped inside a block may be resumed days later, on a machine that has changed.
    """
    ordered = attempts.sort_values("started", kind="stable")
    block = [ordered["system"], ordered["study"], ordered["block_number"]]
    starts = ordered["started"].astype("int64") / 1e6
    seconds, pauses, parts = ordered["window_seconds"], dict[Any, float](), dict[Any, int]()
    for _, own in starts.groupby(block):
        end, part, pause = np.inf, 1, np.nan
        for place, start, length in zip(own.index, own.tolist(), seconds[own.index].tolist(), strict=True):
            if start - end > MAX_PAUSE_SECONDS:
                part, pause = part + 1, start - end
            parts[place], pauses[place] = part, pause
            end = (start if end == np.inf else max(end, start)) + length
    part = pd.Series(parts, dtype=int).reindex(attempts.index, fill_value=1)
    names = attempts["study"] + " " + attempts["block_number"].astype(str).str.zfill(3)
    if attempts["system"].nunique() > 1:
        names = attempts["system"] + " " + names
    names += np.where(part > 1, ", part " + part.astype(str), "")
    pause_seconds = pd.Series(pauses, dtype=float).reindex(attempts.index)
    return pd.DataFrame({"block": names, "part": part, "pause_seconds": pause_seconds})
