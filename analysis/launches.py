"""The launches of every cell, and which attempt of each counts.

The attempt of a case that counts is selected here and nowhere else: the latest good one, of those that other programs
did not disturb if there is one. A launch gives one value, the median over its steady windows of seconds per step (a
cost; rates follow from it), because windows of one launch are correlated; statistics are computed over launches.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from dlscale.analysis.families import Family, family_of
from dlscale.analysis.records import (
    APART,
    Seconds,
    exchange_mode,
    over_ranks,
    start_skews,
    start_time,
    why_unusable,
    world_step_seconds,
)
from dlscale.analysis.statistics import Interval, median_interval, medians
from dlscale.analysis.text import days, plural
from dlscale.base.errors import UsageError
from dlscale.benchmarks.records.cell import Cell
from dlscale.benchmarks.records.record import GpuMemory, Record

# Study and block, where launches of one block ran close in time. A block with a pause in it is several: those after the
# pause have the study's name with their part.
Block = tuple[str, int]
MAX_START_SKEW = 0.01  # of a window
MIN_WINDOWS = 10  # per launch
MAX_PAUSE_SECONDS = 3600.0  # between two launches of a block; beyond it they are not paired


@dataclass(frozen=True, kw_only=True)  # no slots: values are computed at first use, and kept
class MeasuredCase:
    """A case with the attempt that counts (`select_attempts`); the latest of all if none is good.

    Only good cases have values. The windows' seconds per step are the slowest rank's, and the launch's value is their
    median.
    """

    record: Record
    cell_id: str  # costly to compute
    num_attempts: int
    seconds: Seconds = field(
        repr=False, compare=False
    )  # per step of each steady window, [W]; none if the case is not good
    world: float  # seconds per step of the launch; NaN if it is not good
    part: int = 1  # of its block, if that has pauses
    pause_seconds: float = 0.0  # before that part

    @property
    def good(self) -> bool:
        return len(self.seconds) > 0

    @property
    def cell(self) -> Cell:
        return self.record.case.cell

    @cached_property
    def block(self) -> Block:
        """The block, or the part of it, unique over studies."""
        study = self.record.study
        return study if self.part == 1 else f"{study}, part {self.part}", self.record.case.block

    @property
    def steady(self) -> bool:
        """Whether the warm-up met its steady-state test, if it had one."""
        return self.record.steady is not False

    @property
    def samples_per_second(self) -> float:
        """The batch over the launch's time per step."""
        return self.cell.global_batch / self.world

    @property
    def mean(self) -> float:
        """Seconds per step of the mean rank."""
        return self._over_ranks[0]

    @property
    def latest(self) -> float | None:
        """Seconds per step if every step waited for its latest rank; None without timestamps."""
        return self._over_ranks[1]

    @property
    def covered(self) -> float | None:
        """The share of the windows' seconds that the timestamps add up to; None without timestamps."""
        return self._over_ranks[2]

    @cached_property
    def _over_ranks(self) -> tuple[float, float | None, float | None]:
        return over_ranks(self.record)


@dataclass(frozen=True, kw_only=True)  # no slots: values are computed at first use, and kept
class CellLaunches:
    """A cell's launches, good or not, one measured case of each, ordered by study and block."""

    cell: Cell
    id: str  # of the cell
    family: Family
    cases: tuple[MeasuredCase, ...]

    @cached_property
    def good(self) -> tuple[MeasuredCase, ...]:
        return tuple(case for case in self.cases if case.good)

    @cached_property
    def of_kind(self) -> Mapping[str, CellLaunches]:
        """The good launches by kind of evidence, sorted; if all failed, none of each kind that the failed ones have."""
        kinds = sorted({case.record.evidence for case in self.good or self.cases})
        if len(kinds) == 1 and len(self.good) == len(self.cases):
            return {kinds[0]: self}
        return {
            kind: replace(self, cases=tuple(case for case in self.good if case.record.evidence == kind))
            for kind in kinds
        }

    @property
    def evidence(self) -> str:
        """The kind of evidence, of launches of one kind (`of_kind`)."""
        return self.cases[0].record.evidence

    @cached_property
    def world(self) -> Mapping[Block, float]:
        """Block -> seconds per step of the good launch in it."""
        return {case.block: case.world for case in self.good}

    @cached_property
    def samples_per_second(self) -> Mapping[Block, float]:
        """Block -> samples per second of the good launch in it."""
        return {case.block: case.samples_per_second for case in self.good}

    @cached_property
    def rank_rates(self) -> Mapping[Block, float]:
        """Block -> samples per second and rank."""
        num_ranks = self.cell.num_ranks
        return {block: rate / num_ranks for block, rate in self.samples_per_second.items()}

    @cached_property
    def mean(self) -> Mapping[Block, float]:
        """Block -> seconds per step of the mean rank."""
        return {case.block: case.mean for case in self.good}

    @cached_property
    def latest(self) -> Mapping[Block, float]:
        """Block -> seconds per step if every step waited for its latest rank, of launches with timestamps."""
        return {case.block: case.latest for case in self.good if case.latest is not None}

    @cached_property
    def step_seconds(self) -> Interval:
        """Seconds per step: the median over good launches of each one's own."""
        return median_interval(list(self.world.values()))

    @cached_property
    def flaws(self) -> tuple[str, ...]:
        """Notes on everything that makes the cell's number less trustworthy."""
        return tuple(self._flaws())

    @property
    def unsteady(self) -> str:
        """A note on launches that did not become steady; empty if all did."""
        count = sum(not case.steady for case in self.good)
        return f"not steady in {count} of {len(self.good)} launches" if count else ""

    @property
    def short(self) -> str:
        """A note on launches with few windows; empty without any."""
        num_windows = min((len(case.seconds) for case in self.good), default=MIN_WINDOWS)
        return f"a launch of only {num_windows} windows" if num_windows < MIN_WINDOWS else ""

    @property
    def repeated(self) -> str:
        """A note on launches that gave a number at a later attempt; empty without any."""
        count = sum(case.num_attempts > 1 for case in self.good)
        return f"{plural(count, 'launch')} repeated after other attempts" if count else ""

    @property
    def records(self) -> list[Record]:
        return [case.record for case in self.good]

    @property
    def together(self) -> bool:
        """Whether the ranks step together; asynchronous ones do not."""
        return self.cases[0].record.columns.num_applied is None

    @property
    def exchange(self) -> str:
        """How gradients were exchanged: "overlapped", "in line", "mixed" if launches differ; empty if unknown."""
        modes = sorted({exchange_mode(record) for record in self.records} - {""})
        return modes[0] if len(modes) == 1 else "mixed" if modes else ""

    @property
    def peak_rss_bytes(self) -> int | None:
        """The most memory of any rank in any good launch; None if none is known, for 0 bytes were not observed."""
        return (
            max((rank.peak_rss_bytes for record in self.records for rank in record.ranks), default=0) or None
        )

    @property
    def window_rss_bytes(self) -> int | None:
        known = (rank.window_rss_bytes for record in self.records for rank in record.ranks)
        return max(filter(None, known), default=None)

    @property
    def gpu_memory(self) -> GpuMemory | None:
        """That of the rank which allocated most, in any good launch; None if none is known."""
        known = (rank.gpu_memory for record in self.records for rank in record.ranks)
        return max(filter(None, known), key=lambda memory: memory.allocated_bytes, default=None)

    def _flaws(self) -> Iterator[str]:
        good = self.good
        if self.cell.control == "whole_machine":
            yield f"a reference, never a base case: 1 rank on {self.cell.cores_per_rank} cores"
        if num_servers := self.cell.num_servers:
            yield f"{num_servers} server{'s' * (num_servers > 1)} besides the ranks"
        if not good:
            yield "every launch failed"
        if self.unsteady:
            yield self.unsteady
        if any(case.record.oversubscribed for case in self.cases):
            yield "oversubscribed: more ranks x cores than the machine has"
        skews = [skew for skew in start_skews(self.records) if skew is not None]
        if skews and (skew := float(np.median(skews))) > MAX_START_SKEW:
            yield f"ranks start {skew:.0%} of a window apart"
        yield from filter(None, (self.short, self.repeated))
        if resumed := [case.pause_seconds for case in good if case.part > 1]:
            yield (
                f"{plural(len(resumed), 'block')} resumed {days(max(resumed))} later: launches before and after the "
                "pause are not paired"
            )
        skipped = [[count for count in record.skipped_samples if count] for record in self.records]
        if num_skipped := sum(map(sum, skipped)):
            num_ranks = max(map(len, skipped))  # shards and their order are the same in every launch
            yield (
                f"{num_skipped} unreadable sample{'s' * (num_skipped > 1)} left out on {num_ranks} "
                f"rank{'s' * (num_ranks > 1)}"
            )


def launches_of(records: Iterable[Record]) -> list[CellLaunches]:
    """The launches of every cell, canaries and communication-only cases among them, by system and cell.

    Raises UsageError if good launches of one system, environment and framework differ in fingerprint: a point and its
    base case share these three, so equal fingerprints there make every curve's equal.
    """
    cells: dict[tuple[str, str], list[MeasuredCase]] = {}
    fingerprints: dict[tuple[str, str, str], str] = {}
    records = list(records)
    for case in _in_parts(select_attempts(records), records):
        cell, record = case.cell, case.record
        cells.setdefault((record.system, case.cell_id), []).append(case)
        if case.good and cell.control not in APART:
            key, digest = (record.system, cell.environment, cell.framework), record.fingerprint.digest
            if (first := fingerprints.setdefault(key, digest)) != digest:
                raise UsageError(
                    f"records of {' / '.join(key)} have fingerprints {first} and {digest}: code, versions or node "
                    "changed between them, so they do not belong on one curve; analyse them as separate studies"
                )
    return [
        CellLaunches(
            cell=cases[0].cell,
            id=cell_id,
            family=family_of(cases[0].cell, system=system),
            cases=tuple(sorted(cases, key=lambda case: case.block)),
        )
        for (system, cell_id), cases in sorted(cells.items(), key=lambda item: item[0])
    ]


def _in_parts(cases: Iterable[MeasuredCase], records: Iterable[Record]) -> Iterator[MeasuredCase]:
    """The cases with the part of their block in which they ran.

    A study that was stopped inside a block may be resumed days later, on a machine that has changed: what ran before
    and after is no pair, although it has one block. A new part begins where no launch of the block, failed ones
    included, ran for an hour.
    """
    blocks: dict[tuple[str, str, int], list[tuple[float, float]]] = {}
    for record in records:
        if record.case.cell.control != "canary":
            world = record.columns.world
            seconds = float(world.sum(where=~np.isnan(world)))
            key = (record.system, record.study, record.case.block)
            blocks.setdefault(key, []).append((start_time(record.started_at).timestamp(), seconds))
    parts = {key: _parts(times) for key, times in blocks.items()}
    for case in cases:
        record, started = case.record, start_time(case.record.started_at).timestamp()
        begun = parts.get((record.system, record.study, record.case.block), [])
        if record.case.cell.control == "canary" or len(begun) < 2:
            yield case
            continue
        part = sum(start <= started for start, _ in begun)
        yield replace(case, part=part, pause_seconds=begun[part - 1][1])


def _parts(launched: Iterable[tuple[float, float]]) -> list[tuple[float, float]]:
    """(start, pause before it) of each part, from (start, seconds of windows) of all cases of a block.

    Cases of one launch have one start and run one after the other.
    """
    parts: list[tuple[float, float]] = []
    end = 0.0
    for start, seconds in sorted(launched):
        pause = start - end if parts else 0.0
        if not parts or pause > MAX_PAUSE_SECONDS:
            parts.append((start, pause))
        end = max(end, start) + seconds
    return parts


def select_attempts(records: Iterable[Record]) -> list[MeasuredCase]:
    """Each case with the attempt that counts, in the order of the records."""
    attempts: dict[tuple[str, str, str, int], list[Record]] = {}
    for record in records:
        cell_id = record.case.cell.id
        attempts.setdefault((record.system, record.study, cell_id, record.case.block), []).append(record)
    selected: list[tuple[str, int, Record]] = []
    seconds: list[Seconds] = []
    for (_, _, cell_id, _), group in attempts.items():
        latest_first = sorted(group, key=lambda record: -record.attempt)
        good = next((record for record in latest_first if why_unusable(record) is None), None)
        selected.append((cell_id, len(group), good or latest_first[0]))
        seconds.append(world_step_seconds(good) if good else np.zeros(0))
    return [
        MeasuredCase(record=record, cell_id=cell_id, num_attempts=num, seconds=own, world=world)
        for (cell_id, num, record), own, world in zip(selected, seconds, medians(seconds), strict=True)
    ]


def latest_good(records: Iterable[Record]) -> list[Record]:
    """The latest good attempt of each case, in the order of the records."""
    return [case.record for case in select_attempts(records) if case.good]


def good_by_cell(records: Iterable[Record], has: Callable[[Record], object]) -> list[list[Record]]:
    """The good records that have something, by cell, in the order of the records."""
    groups: dict[str, list[Record]] = {}
    for record in records:
        if record.good and has(record):
            groups.setdefault(record.case.cell.id, []).append(record)
    return list(groups.values())


def good_launches(
    measured: Iterable[CellLaunches], *, controls: Set[str] | None = None
) -> list[CellLaunches]:
    """The good launches of all cells of these controls (default: all but APART), separately by kind of evidence."""
    wanted = [
        launches
        for launches in measured
        if (launches.cell.control in controls if controls else launches.cell.control not in APART)
    ]
    return [good for launches in wanted for good in launches.of_kind.values() if good.cases]
