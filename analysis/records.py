"""The records of a study as one model: the attempts that count, the value of a launch, and the launches of a cell.

World time is the slowest rank's: throughput is never one rank's rate times the number of ranks. The windows of a
launch are correlated, so a launch gives one value, the median over its steady windows of seconds per step (a cost;
rates are derived from it), and statistics are computed over launches.

`tidy` is the table with one row per case. `latest_good` selects the attempt of each case that counts. `cell_times`
gives a cell's times by block, of the slowest, the average and the latest rank; `step_distributions` gives the times of
every window. `CellRows` are a cell's rows of the table, with its rate, its efficiency against a base case, and its
flaws.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence, Set
from dataclasses import dataclass
from math import inf
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from dlscale.analysis.families import Family, base_cell, family_of
from dlscale.analysis.statistics import LEVEL, MIN_BLOCKS, Interval, block_ratio, median_interval
from dlscale.base.errors import UsageError
from dlscale.benchmarks.records.record import Cell, Record, Window


def setting_columns(family: Family, cell: Cell) -> dict[str, Any]:
    """The columns that name what was run and on which system."""
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


# Controls without a row in the table: a job's canaries, and communication only, which trains nothing.
APART = frozenset({"canary", "exchange"})


def steady_windows(record: Record) -> list[Window]:
    """The windows that count: those after the warm-up."""
    return [window for window in record.windows if window.phase == "steady"]


def world_step_seconds(record: Record) -> NDArray[np.float64]:
    """Seconds per step of each steady window, [W]: the slowest rank's time over the number of steps.

    If ranks do not step together, a step is as many applied local batches as there are ranks.
    """
    num_ranks = record.case.cell.num_ranks
    # Python's own max: on a short list it is many times faster than NumPy's, and there are millions of windows.
    return np.array(
        [max(window.seconds) / _num_steps(window, num_ranks) for window in steady_windows(record)]
    )


def _num_steps(window: Window, num_ranks: int) -> float:
    return window.num_steps if window.num_applied is None else window.num_applied / num_ranks


def num_samples(window: Window, cell: Cell) -> int:
    """Samples of a window over all ranks: those applied if ranks do not step together, 0 for communication only."""
    if cell.control == "exchange":
        return 0
    if window.num_applied is None:
        return window.num_steps * cell.global_batch
    return window.num_applied * cell.global_batch // cell.num_ranks


def start_skew(record: Record) -> float:
    """The spread of the ranks' starts as a fraction of a window, median over the steady windows."""
    skews = [
        (max(window.start_seconds) - min(window.start_seconds)) / max(window.seconds)
        for window in steady_windows(record)
    ]
    return float(np.median(skews))


def why_unusable(record: Record) -> str | None:
    """Why this attempt gives no number, in one line; None if it gives one.

    Every window needs the times of all ranks: the missing rank may be the slowest.
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
    """One row per case: its latest good attempt; if there is none, its latest, with `good` = False.

    Columns: `study`, `system`, all fields of the cell (options as text), `cell_id`, `case_id`, `block`,
    `evidence`, `fingerprint`, `attempt`, `num_attempts`, `oversubscribed`, `good`, and of the launch
    `exchange` ("overlapped" with the computation or "in line" after it, as the backend reported; "mixed" if ranks
    differ, empty if unknown), `steady`, `num_windows`, and NaN if not good: `start_skew` [fraction of a
    window], `seconds_per_step`, `samples_per_second`, `peak_rss_bytes` (the largest rank's), `num_skipped`
    (samples, over all ranks) and `num_skipping` (ranks that skipped any).

    Raises UsageError if good launches of one system, environment and framework differ in fingerprint.
    """
    attempts: dict[tuple[str, str, str], list[Record]] = {}
    for record in records:
        attempts.setdefault((record.system, record.study, record.case.id), []).append(record)
    rows = [_tidy_row(sorted(group, key=lambda record: record.attempt)) for group in attempts.values()]
    frame = pd.DataFrame(rows, columns=_TIDY_COLUMNS)
    _refuse_mixed_fingerprints(frame)
    return frame.sort_values(["system", "study", "cell_id", "block"], ignore_index=True)


_NUMBER_COLUMNS = (
    *("start_skew", "seconds_per_step", "samples_per_second"),
    *("peak_rss_bytes", "num_skipped", "num_skipping"),
)
_TIDY_COLUMNS = [
    *("study", "system"),
    *Cell.model_fields,
    *("cell_id", "case_id", "block", "evidence", "fingerprint", "attempt", "num_attempts", "oversubscribed"),
    *("good", "exchange", "steady", "num_windows"),
    *_NUMBER_COLUMNS,
]


def _tidy_row(attempts: Sequence[Record]) -> dict[str, object]:
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
        "exchange": exchange_mode(record),
        "steady": bool(good) and record.steady is not False,
        "num_windows": len(steady_windows(record)),
        **dict.fromkeys(_NUMBER_COLUMNS, np.nan),
    }
    if good:
        seconds_per_step = float(np.median(world_step_seconds(record)))
        row["start_skew"] = start_skew(record)
        row["seconds_per_step"] = seconds_per_step
        row["samples_per_second"] = cell.global_batch / seconds_per_step
        # 0 bytes: the end of the rank was not observed.
        row["peak_rss_bytes"] = max((rank.peak_rss_bytes for rank in record.ranks), default=0) or np.nan
        skipped = [count for count in record.skipped_samples if count]
        row["num_skipped"], row["num_skipping"] = sum(skipped), len(skipped)
    return row


def exchange_mode(record: Record) -> str:
    """How gradients were exchanged, as the backend reported; empty if it did not."""
    overlap = record.backend_settings.get("overlap")
    if isinstance(overlap, str):  # ranks that differ: "False | True"
        return "mixed"
    return "" if overlap is None else "overlapped" if overlap else "in line"


def options_text(cell: Cell) -> str:
    """The backend's options, sorted by name: `chunk_bytes=65536, threads=2`; empty without any."""
    return ", ".join(f"{name}={value}" for name, value in sorted(cell.backend_options.items()))


def _refuse_mixed_fingerprints(frame: pd.DataFrame) -> None:
    """Raise UsageError if fingerprints differ within a system, environment and framework.

    A point and its base case share these three, so equal fingerprints here make every curve's equal.
    """
    for key, group in frame[frame["good"].astype(bool)].groupby(["system", "environment", "framework"]):
        digests = list(group["fingerprint"].unique())
        if len(digests) > 1:
            raise UsageError(
                f"records of {' / '.join(map(str, key))} have fingerprints {digests[0]} and {digests[1]}: "
                "code, versions or node changed between them, so they do not belong on one curve; "
                "analyse them as separate studies"
            )


Seconds = NDArray[np.float64]
Block = tuple[str, int]  # study, block
TRAINING_CONTROLS = frozenset({"train", "synthetic", "alone"})  # controls that measure training steps
MIN_COVERED = 0.95  # share of a window's seconds in its timestamps; below, the two clocks disagree


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchTimes:
    """Seconds per step of one launch, each the median over its steady windows.

    `world` is the table's: the slowest rank's total of a window. `mean` is the mean over ranks of the totals. `latest`
    is the time of a step if every step waited for its latest rank: `mean` plus the mean over steps of (maximum - mean
    over ranks) of the timestamps. So window totals give the length of steps, and timestamps only the difference between
    ranks: time missing from the timestamps (a device's queue, the end of a window) counts for all ranks alike. None
    without timestamps.
    """

    world: float
    mean: float
    latest: float | None
    covered: float | None  # share of the windows' seconds that the timestamps add up to


@dataclass(frozen=True, slots=True, kw_only=True)
class CellTimes:
    """A cell's good launches of one kind of evidence: their times by block."""

    cell: Cell
    family: Family
    evidence: str
    together: bool  # whether its ranks step together; asynchronous ones do not
    times: dict[Block, LaunchTimes]

    def seconds(self, which: str) -> dict[Block, float]:
        """Block -> the field `which` of its `LaunchTimes`, for blocks that have it."""
        values = {block: getattr(times, which) for block, times in self.times.items()}
        return {block: value for block, value in values.items() if value is not None}


class GoodRecords(tuple[Record, ...]):
    """The latest good attempt of each case; a type of its own, so that the costly selection is not repeated."""


def latest_good(records: Iterable[Record]) -> GoodRecords:
    """The latest good attempt of each case, the same that `tidy` selects; `GoodRecords` are returned unchanged."""
    if isinstance(records, GoodRecords):
        return records
    chosen: dict[tuple[str, str, str], Record] = {}
    for record in sorted(records, key=lambda record: record.attempt):
        if why_unusable(record) is None:
            chosen[record.system, record.study, record.case.id] = record
    return GoodRecords(chosen.values())


def times_of(record: Record) -> LaunchTimes:
    """The times of a usable record (see `why_unusable`)."""
    windows = steady_windows(record)
    seconds = np.array([window.seconds for window in windows])  # [W][P]
    means = seconds.mean(axis=1) / np.array([window.num_steps for window in windows])
    spreads, stamped = _spreads(windows)
    return LaunchTimes(
        world=float(np.median(world_step_seconds(record))),
        mean=float(np.median(means)),
        latest=None if spreads is None else float(np.median(means + spreads)),
        covered=None if stamped is None else float(np.median(stamped / seconds.sum(axis=1))),
    )


def cell_times(records: Iterable[Record], *, controls: Set[str] = TRAINING_CONTROLS) -> list[CellTimes]:
    """All cells of these controls with their good launches."""
    cells: dict[tuple[str, str, str], CellTimes] = {}
    for record in latest_good(records):
        cell = record.case.cell
        if cell.control not in controls:
            continue
        launches = cells.setdefault(
            (record.system, cell.id, record.evidence),
            CellTimes(
                cell=cell,
                family=family_of(cell, system=record.system),
                evidence=record.evidence,
                together=all(window.num_applied is None for window in record.windows),
                times={},
            ),
        )
        launches.times[record.study, record.case.block] = times_of(record)
    return [cells[key] for key in sorted(cells)]


def _spreads(windows: Sequence[Window]) -> tuple[Seconds | None, Seconds | None]:
    """For each window, the mean over steps of (maximum - mean over ranks) and the sum of its timestamps.

    The k-th steps of all ranks are compared with each other. None unless all windows have timestamps.
    """
    stamps = [window.step_seconds for window in windows if window.step_seconds is not None]
    if len(stamps) < len(windows):
        return None, None
    if len({window.num_steps for window in windows}) == 1:
        matrix = np.array(stamps)  # [W][P][K]
        return (matrix.max(axis=1) - matrix.mean(axis=1)).mean(axis=1), matrix.sum(axis=(1, 2))
    each = [np.array(seconds) for seconds in stamps]
    spreads = [np.mean(matrix.max(axis=0) - matrix.mean(axis=0)) for matrix in each]
    return np.array(spreads), np.array([matrix.sum() for matrix in each])


BASE_NAMES = "base case"  # the method of an efficiency that is 1 by definition
MAX_START_SKEW = 0.01  # of a window
MIN_WINDOWS = 10  # per launch


@dataclass(frozen=True, slots=True, kw_only=True)
class CellRows:
    """A cell's rows of the tidy frame: one per case, good or not."""

    cell: Cell
    family: Family
    cases: pd.DataFrame

    @classmethod
    def of(cls, cell: Cell, *, system: str, cases: pd.DataFrame) -> CellRows:
        """The rows with the family that follows from the cell."""
        return cls(cell=cell, family=family_of(cell, system=system), cases=cases)

    @property
    def good(self) -> pd.DataFrame:
        """The rows of cases that gave a number."""
        return self.cases[self.cases["good"]]

    @property
    def kinds(self) -> list[str]:
        """The kinds of evidence of the good launches; if all failed, of the failed ones."""
        return sorted((self.good if len(self.good) else self.cases)["evidence"].unique())

    def only(self, kind: str) -> CellRows:
        """The good launches of one kind of evidence."""
        good = self.good
        return CellRows(cell=self.cell, family=self.family, cases=good[good["evidence"] == kind])

    def by_block(self, column: str) -> dict[Hashable, float]:
        """(study, block) -> the launch's value in a column of the tidy frame."""
        cases = self.cases
        blocks = zip(cases["study"], cases["block"], strict=True)
        return dict(zip(blocks, cases[column].tolist(), strict=True))

    @property
    def exchange(self) -> str:
        """How gradients were exchanged: "overlapped", "in line", "mixed" if launches differ; empty if unknown."""
        modes = sorted(set(self.good["exchange"]) - {""})
        return modes[0] if len(modes) == 1 else "mixed" if modes else ""

    @property
    def peak_rss_bytes(self) -> int | None:
        """The most memory of any rank in any launch that gave a number; None if none is known."""
        peak = self.good["peak_rss_bytes"].max()
        return None if pd.isna(peak) else int(peak)


def throughput(launches: CellRows, notes: list[str]) -> Interval | None:
    """Samples per second over all ranks: the batch over the median cost, with that median's interval."""
    if launches.cases.empty:
        return None
    interval = median_interval(launches.cases["seconds_per_step"].tolist()).rate(launches.cell.global_batch)
    if interval.low is None:
        notes.append(f"fewer than 6 launches: no {100 * LEVEL:.0f} % interval of samples/s")
    return interval


def efficiency(
    launches: CellRows, relatives: Iterable[CellRows], *, same_backend: bool, notes: list[str]
) -> Interval | None:
    """(T(p) / p) / (T(1) / 1) against a base case of the same family: (a), or (b) with `same_backend`.

    `launches` are good ones of one kind of evidence. The reason for a missing or doubtful efficiency is
    appended to `notes`.
    """
    cell = launches.cell
    if cell.control != "train" or launches.cases.empty:
        return None
    family = {relative.cell.id: relative for relative in relatives if relative.family == launches.family}
    name = f"(b), {cell.backend} on 1 rank" if same_backend else "(a), none on 1 rank"
    base = base_cell(cell, [relative.cell for relative in family.values()], same_backend=same_backend)
    if base is None:
        notes.append(f"no base case {name}: not measured")
        return None
    if base == cell:
        return Interval(
            center=1.0, low=None, high=None, level=LEVEL, method=BASE_NAMES, n=len(launches.cases)
        )
    reference = family[base.id]
    if reference.good.empty:
        notes.append(f"no base case {name}: every launch failed")
        return None
    kind = launches.kinds[0]
    if kind not in reference.kinds:
        notes.append(f"base case {name}, is {reference.kinds[0]}, not {kind}")
        kind = reference.kinds[0]
    ratio = block_ratio(_rank_rates(launches), _rank_rates(reference.only(kind)))
    if "unpaired" in ratio.method:
        notes.append(f"unpaired with base case {name}: no common block")
    if ratio.low is None:
        notes.append(f"fewer than {MIN_BLOCKS} blocks with base case {name}: no interval")
    return ratio


def _rank_rates(launches: CellRows) -> dict[Hashable, float]:
    """Samples per second and rank in each block."""
    rates = launches.by_block("samples_per_second")
    return {block: rate / launches.cell.num_ranks for block, rate in rates.items()}


def flaws(launches: CellRows) -> Iterator[str]:
    """Notes on everything that makes a cell's number less trustworthy."""
    cases, good = launches.cases, launches.good
    if launches.cell.control == "whole_machine":
        yield f"a reference, never a base case: 1 rank on {launches.cell.cores_per_rank} cores"
    if num_servers := launches.cell.num_servers:
        yield f"{num_servers} server{'s' * (num_servers > 1)} besides the ranks"
    if good.empty:
        yield "every launch failed"
    if num_unsteady := len(good) - int(good["steady"].sum()):
        yield f"not steady in {num_unsteady} of {len(good)} launches"
    if cases["oversubscribed"].any():
        yield "oversubscribed: more ranks x cores than the machine has"
    if len(good) and (skew := float(good["start_skew"].median())) > MAX_START_SKEW:
        yield f"ranks start {skew:.0%} of a window apart"
    if len(good) and (num_windows := int(good["num_windows"].min())) < MIN_WINDOWS:
        yield f"a launch of only {num_windows} windows"
    if retried := int((good["num_attempts"] > 1).sum()):
        yield f"{retried} launch{'es' * (retried > 1)} repeated after other attempts"
    if num_skipped := int(good["num_skipped"].sum()):
        num_ranks = int(good["num_skipping"].max())  # shards and their order are the same in every launch
        yield (
            f"{num_skipped} unreadable sample{'s' * (num_skipped > 1)} left out on {num_ranks} "
            f"rank{'s' * (num_ranks > 1)}"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class StepDistribution:
    """A cell's launches that gave a number, of one kind of evidence. Seconds are the slowest rank's."""

    cell: Cell
    family: Family
    evidence: str
    launches: tuple[
        tuple[float, ...], ...
    ]  # seconds per step of the steady windows of each, by study and block

    @property
    def pooled(self) -> NDArray[np.float64]:
        """The seconds of all launches together, ascending."""
        return np.sort(np.concatenate(self.launches))

    @property
    def typical(self) -> Interval:
        """The median over launches of each one's own median, the same as in the table."""
        return median_interval([float(np.median(seconds)) for seconds in self.launches])


def step_distributions(records: Iterable[Record]) -> list[StepDistribution]:
    """One distribution for each training and kind of evidence that gave a number, ordered by name."""
    groups: dict[tuple[str, str, str], list[Record]] = {}
    for record in latest_good(records):
        if record.case.cell.control == "train":
            groups.setdefault((record.system, record.case.cell.id, record.evidence), []).append(record)
    return [_step_distribution(groups[key]) for key in sorted(groups)]


def _step_distribution(records: Sequence[Record]) -> StepDistribution:
    cell = records[0].case.cell
    ordered = sorted(records, key=lambda record: (record.study, record.case.block))
    return StepDistribution(
        cell=cell,
        family=family_of(cell, system=records[0].system),
        evidence=records[0].evidence,
        launches=tuple(tuple(world_step_seconds(record).tolist()) for record in ordered),
    )
