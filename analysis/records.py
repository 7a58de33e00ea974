"""The values of a single record, and its columns: what one attempt at a case says by itself.

World time is the slowest rank's: throughput is never one rank's rate times the number of ranks. Which attempt of a case
counts, and the values of launches, are in `measured`. Records of predictions have columns, too.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from dlscale.analysis.families import Family, environment_text, tokens_per_sample
from dlscale.analysis.statistics import Interval, median, medians
from dlscale.base.strings import Text
from dlscale.benchmarks.records.cell import WITHOUT_SAMPLES, Cell, Setting
from dlscale.benchmarks.records.prediction import PredictionRecord
from dlscale.benchmarks.records.record import Phases, Record
from dlscale.benchmarks.records.required_gates import missing_gates
from dlscale.benchmarks.records.windows import Windows
from dlscale.collectives.algorithms.registry import SYNC
from dlscale.collectives.backend import BUCKET_SIZES, GATHER_SIZES
from dlscale.collectives.capabilities import TABLE
from dlscale.collectives.sharding import NONE


def attributes(item: object, names: str) -> dict[str, Any]:
    """The attributes of these names, separated by blanks as for a namedtuple, as columns of a row."""
    return {name: getattr(item, name) for name in names.split()}


def setting_columns(family: Family, cell: Cell) -> dict[str, Any]:
    """The columns that name what was run and on which system."""
    return {
        "system": family.system,
        **attributes(cell, "workload preset framework backend"),
        "backend_options": options_text(cell),
        "algorithm": cell.algorithm,
        "algorithm_options": algorithm_text(cell),
        **attributes(cell, "shard split"),
        "environment": environment_text(cell),
        **attributes(cell, "scaling_mode num_ranks num_servers num_nodes cores_per_rank threads_per_rank"),
        **attributes(cell, "local_batch global_batch precision compiled device data"),
        "unchecked": cell.unchecked,
    }


def method_columns(cell: Cell) -> dict[str, Any]:
    """Columns beside a cell's own fields, of which it leaves out what is as usual: how its ranks train."""
    return {
        "backend_options": options_text(cell),
        "algorithm": cell.algorithm,
        "algorithm_options": algorithm_text(cell),
        **attributes(cell, "shard split"),
    }


Seconds = NDArray[np.float64]
# Controls without a row in the table: a job's canaries, communication only, which trains nothing, and profiles, whose
# steps are stamped.
APART = frozenset({"canary", *WITHOUT_SAMPLES, "profile"})


def world_step_seconds(record: Record) -> Seconds:
    """Seconds per step of each steady window, [W]: the slowest rank's time over the number of steps.

    If ranks do not step together, a step is as many applied local batches as there are ranks.
    Where the batch grew, a step is as many samples as the first one had.
    """
    windows = record.counted
    return windows.world / equal_steps(windows, record.case.cell)


def equal_steps(windows: Windows, cell: Cell) -> Seconds:
    """Steps of each window, in steps with the cell's global batch, [W]."""
    steps = windows.num_steps
    if windows.num_applied is not None:
        applied = windows.num_applied / cell.num_ranks
        steps = np.where(np.isnan(applied), steps, applied)
    if windows.num_samples is not None:
        samples = windows.num_samples / cell.global_batch
        steps = np.where(np.isnan(samples), steps, samples)
    return steps


def over_ranks(record: Record) -> tuple[float, float | None, float | None]:
    """Seconds per step of the mean rank, and of the latest one; and the share of them that timestamps cover.

    Each is the median over steady windows, the last two None without timestamps. The latest rank's is the time of a
    step if every step waited for it: the mean rank's plus the mean over steps of (maximum - mean over ranks) of the
    timestamps. So window totals give the length of steps, and timestamps only the difference between ranks: time
    missing from the timestamps (a device's queue, the end of a window) counts for all ranks alike.
    """
    windows = record.counted
    means = windows.seconds.mean(axis=1) / equal_steps(windows, record.case.cell)
    mean, (spreads, stamped) = float(median(means)), _spreads(record)
    if spreads is None or stamped is None:
        return mean, None, None
    return mean, float(median(means + spreads)), float(median(stamped / windows.seconds.sum(axis=1)))


def _spreads(record: Record) -> tuple[Seconds | None, Seconds | None]:
    """For each window, the mean over steps of (maximum - mean over ranks) and the sum of its timestamps.

    The k-th steps of all ranks are compared with each other. None unless all windows have timestamps.
    """
    windows = record.counted
    stamps = windows.step_seconds  # [steps, P]
    if stamps is None or len(stamps) < windows.num_steps.sum():
        return None, None
    first = np.concatenate([[0], windows.num_steps.cumsum()[:-1]]).astype(int)
    spreads = np.add.reduceat(stamps.max(axis=1) - stamps.mean(axis=1), first) / windows.num_steps
    return spreads, np.add.reduceat(stamps.sum(axis=1), first)


def has_rank_steps(record: Record) -> bool:
    """Whether its ranks took steps of their own, as in asynchronous training."""
    return record.windows.rank_steps is not None


def slowest_in_phase(phases: Phases, name: str) -> float | None:
    """Seconds of the slowest rank; None if a rank did not reach the phase, as it may be the slowest."""
    seconds: list[float | None] = getattr(phases, name)
    known = [value for value in seconds if value is not None]
    return max(known) if known and len(known) == len(seconds) else None


def num_samples(windows: Windows, cell: Cell) -> Seconds:
    """Samples of each window over all ranks, [W]: those applied if ranks do not step together.

    0 for communication only.
    """
    if cell.control in WITHOUT_SAMPLES:
        return np.zeros(len(windows))
    samples = windows.num_steps * cell.global_batch
    if windows.num_applied is not None:
        applied = windows.num_applied * cell.global_batch // cell.num_ranks
        samples = np.where(np.isnan(applied), samples, applied)
    if windows.num_samples is not None:
        samples = np.where(np.isnan(windows.num_samples), samples, windows.num_samples)
    return samples


def start_time(started_at: str) -> datetime:
    """The start time of a record in UTC."""
    moment = datetime.fromisoformat(started_at)
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)


def start_skews(records: Iterable[Record]) -> list[float | None]:
    """For each record the spread of the starts on a machine as a fraction of a window: median, largest machine's.

    Each machine's clock counts from its own boot, so starts on two machines cannot be compared; None if no machine
    has several of the ranks, and 0 for 1 rank.
    """
    rows: list[Seconds] = []
    counts: list[int | None] = []  # of rows; None for 1 rank
    for record in records:
        before, windows, alone = len(rows), record.counted, record.case.cell.num_ranks == 1
        for ranks in () if alone else record.clocks:
            if len(ranks) > 1:
                starts = windows.start_seconds[:, ranks]
                rows.append((starts.max(axis=1) - starts.min(axis=1)) / windows.world)
        counts.append(None if alone else len(rows) - before)
    skews = iter(medians(rows))
    return [0.0 if count is None else max(islice(skews, count), default=None) for count in counts]


def why_unusable(record: Record) -> str | None:
    """Why this attempt gives no number, in one line; None if it gives one.

    Every window needs the times of all ranks: the missing rank may be the slowest.
    """
    if record.failure is not None:
        where = "" if record.failure.rank is None else f" on rank {record.failure.rank}"
        return " ".join(f"{record.failure.kind}{where}: {record.failure.message}".split())
    if missing := missing_gates(record):
        return f"gates that it must have are missing: {', '.join(missing)}"
    return _what_is_wrong(record.counted)


def _what_is_wrong(windows: Windows) -> str | None:
    if not windows:
        return "no window after the warm-up"
    impossible = np.flatnonzero(windows.seconds.min(axis=1) <= 0)
    if len(impossible):
        return f"a window has the impossible times {windows.seconds[impossible[0]].tolist()} seconds"
    if windows.num_applied is not None and (windows.num_applied == 0).any():
        return "a window in which no gradient was applied"
    return None


def exchange_mode(record: Record) -> str:
    """How gradients were exchanged, as the backend reported; empty if it did not."""
    overlap = record.backend_settings.get("overlap")
    if isinstance(overlap, str):  # ranks that differ: "False | True"
        return "mixed"
    return "" if overlap is None else "overlapped" if overlap else "in line"


class NamedCell(Cell):
    """A cell with the name of its curve among those of a study (`curves`); the name is no part of the cell."""

    curve: Text = Field("", exclude=True)


def named(cell: Cell, curve: str) -> NamedCell:
    """The cell with this name of its curve."""
    fields: dict[str, Any] = {name: getattr(cell, name) for name in Cell.model_fields}
    return NamedCell.model_construct(**fields, curve=curve)


def tokens_per_second(cell: Cell, samples_per_second: Interval | None) -> Interval | None:
    """The rate in tokens; None where samples are no sequences."""
    tokens = tokens_per_sample(cell)
    return samples_per_second.times(tokens) if samples_per_second and tokens else None


def options_text(cell: Cell) -> str:
    """The backend's options, sorted by name: `chunk_bytes=65536, threads=2`; empty without any."""
    return settings_text(cell.backend_options)


def algorithm_text(cell: Cell) -> str:
    """The algorithm's options, likewise: `interval=8`."""
    return settings_text(cell.algorithm_options)


def settings_text(settings: Mapping[str, Setting]) -> str:
    """`a=1, b=2`, sorted by name."""
    return ", ".join(f"{name}={value}" for name, value in sorted(settings.items()))


def wire_bytes(record: Record) -> float | None:
    """Bytes that a rank sends in a step, mean over ranks, counted from compressed messages; None if not known."""
    sent = record.backend_settings.get("wire_bytes")
    if sent is None:
        return None
    counts = [int(count) for count in str(sent).split(" | ")]  # ranks that differ are listed
    return sum(counts) / len(counts)


def wire_share(record: Record) -> float | None:
    """The wire bytes over what a rank sends in an uncompressed step; None if either is not known."""
    sent, plain = wire_bytes(record), _uncompressed_bytes(record)
    return sent / plain if plain and sent is not None else None


def sent_bytes(record: Record) -> float | None:
    """Bytes that a rank sends in a step, without those of messages' heads; None if not known.

    (P - 1)/P of every bucket that is reduce-scattered and of every one that is gathered, as recorded, and an allreduce
    is both. Of servers, and of algorithms that do not exchange in every step, nothing is known.
    """
    cell = record.case.cell
    row = TABLE.get(cell.backend)
    if row is None or row.servers or not row.exchanges or cell.algorithm != SYNC:
        return None
    sent = wire_bytes(record)
    return _uncompressed_bytes(record) if sent is None else sent


def _uncompressed_bytes(record: Record) -> float | None:
    buckets = _sizes(record, BUCKET_SIZES)
    if not buckets:
        return None
    gathered = sum(_sizes(record, GATHER_SIZES)) if record.case.cell.shard != NONE else sum(buckets)
    num_ranks = record.case.cell.num_ranks
    return (num_ranks - 1) / num_ranks * (sum(buckets) + gathered)


def _sizes(record: Record, setting: str) -> list[int]:
    text = str(record.backend_settings.get(setting, ""))
    return [] if " | " in text else [int(size) for size in text.split(",") if size]  # ranks that differ


def prediction_row(record: PredictionRecord) -> dict[str, Any]:
    """A prediction as a flat row; `low` and `high` are the efficiency's."""
    tokens = tokens_per_sample(record)
    return {
        **values_of(record, "system", "workload", "backend", "num_nodes", "num_ranks"),
        "samples_per_second": record.samples_per_second.center,
        "efficiency": record.efficiency.center,
        "low": record.efficiency.low,
        "high": record.efficiency.high,
        **values_of(record, "evidence", "preset", "framework", "scaling_mode", "num_servers", "local_batch"),
        "samples_per_second_low": record.samples_per_second.low,
        "samples_per_second_high": record.samples_per_second.high,
        "step_seconds": record.step_seconds.center,
        **loss_columns(record.parts),
        **values_of(record, "engine", "engine_version", "wire_seconds"),
        "doubts": "; ".join(record.doubts),
        "backend_options": settings_text(record.backend_options),
        **values_of(record, "exchange_algorithm", "global_batch", "shard"),
        "tokens_per_second": record.samples_per_second.center * tokens if tokens else None,
    }


def loss_columns(parts: Mapping[str, float]) -> dict[str, float]:
    """The lost shares of a predicted step, as columns."""
    return {f"{name.replace(' ', '_')}_loss": share for name, share in parts.items()}


def values_of(record: PredictionRecord, *names: str) -> dict[str, Any]:
    """The fields of these names."""
    return {name: getattr(record, name) for name in names}


def engine_text(record: PredictionRecord) -> str:
    """What predicted it: `loggp 1`."""
    return f"{record.engine} {record.engine_version}"
