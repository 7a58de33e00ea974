"""The launches of every cell, and which attempt of each counts.

The attempt of a case that counts is selected here and nowhere else: the latest good one, of those that other programs
did not disturb if there is one. A launch gives one value, the median over its steady windows of seconds per step (a
cost; rates follow from it), because windows of one launch are correlated; statistics are computed over launches.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

import numpy as np

from dlscale.analysis.families import Family, family_of
from dlscale.analysis.outliers import Outlier, Outliers, outliers_of, outlying
from dlscale.analysis.records import (
    APART,
    Seconds,
    exchange_mode,
    over_ranks,
    start_skew,
    start_time,
    why_unusable,
    world_step_seconds,
)
from dlscale.analysis.statistics import median
from dlscale.base.errors import UsageError
from dlscale.benchmarks.records.record import Cell, Record

# Study and block, where launches of one block ran close in time. A block with a pause in it is several: those after the
# pause have the study's name with their part.
Block = tuple[str, int]
MAX_PAUSE_SECONDS = 3600.0  # between two launches of a block; beyond it they are not paired
LaunchValue = Literal["world", "mean", "latest", "samples_per_second"]


@dataclass(frozen=True, kw_only=True)  # no slots: values are computed at first use, and kept
class MeasuredCase:
    """A case with the attempt that counts (`select_attempts`); the latest of all if none is good.

    Only good cases have values. The windows' seconds per step are the slowest rank's, and the launch's value is their
    median.
    """

    record: Record
    cell_id: str  # costly to compute
    num_attempts: int
    good: bool
    part: int = 1  # of its block, if that has pauses
    pause_seconds: float = 0.0  # before that part

    @property
    def cell(self) -> Cell:
        """The cell that was measured."""
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

    @cached_property
    def seconds(self) -> Seconds:
        """Seconds per step of each steady window, [W]."""
        return world_step_seconds(self.record)

    @cached_property
    def world(self) -> float:
        """Seconds per step of the launch."""
        return float(median(self.seconds))

    @property
    def samples_per_second(self) -> float:
        """The batch over the launch's time per step."""
        return self.cell.global_batch / self.world

    @cached_property
    def start_skew(self) -> float | None:
        """The spread of the ranks' starts as a fraction of a window; None if no two ranks share a clock."""
        return start_skew(self.record)

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
        """The cases that gave a number."""
        return tuple(case for case in self.cases if case.good)

    @cached_property
    def kinds(self) -> list[str]:
        """The kinds of evidence of the good launches; if all failed, of the failed ones."""
        return sorted({case.record.evidence for case in self.good or self.cases})

    @property
    def evidence(self) -> str:
        """The kind of evidence, of launches of one kind (`only`)."""
        return self.cases[0].record.evidence

    def only(self, kind: str) -> CellLaunches:
        """The good launches of one kind of evidence."""
        if len(self.good) == len(self.cases) and self.kinds == [kind]:
            return self
        return replace(self, cases=tuple(case for case in self.good if case.record.evidence == kind))

    def by_block(self, value: LaunchValue) -> dict[Block, float]:
        """Block -> the value of the good launch in it, for launches that have it."""
        if value not in self._by_block:
            values = {case.block: getattr(case, value) for case in self.good}
            self._by_block[value] = {block: number for block, number in values.items() if number is not None}
        return dict(self._by_block[value])

    @cached_property
    def _by_block(self) -> dict[LaunchValue, dict[Block, float]]:
        return {}

    @property
    def records(self) -> list[Record]:
        """The records of the good launches."""
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
    included, ran for an hour. Records whose start cannot be read are in the first part.
    """
    blocks: dict[tuple[str, str, int], list[tuple[float, float]]] = {}
    for record in records:
        started = start_time(record.started_at)
        if started and record.case.cell.control != "canary":
            seconds = float(np.nansum(record.columns.world))
            key = (record.system, record.study, record.case.block)
            blocks.setdefault(key, []).append((started.timestamp(), seconds))
    parts = {key: _parts(times) for key, times in blocks.items()}
    for case in cases:
        record, started = case.record, start_time(case.record.started_at)
        begun = parts.get((record.system, record.study, record.case.block), [])
        if not started or record.case.cell.control == "canary" or len(begun) < 2:
            yield case
            continue
        part = sum(start <= started.timestamp() for start, _ in begun)
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
    cases = []
    for (_, _, cell_id, _), group in attempts.items():
        latest_first = sorted(group, key=lambda record: -record.attempt)
        usable = [record for record in latest_first if why_unusable(record) is None]
        good = next((record for record in usable if not record.disturbed), usable[0] if usable else None)
        cases.append(
            MeasuredCase(
                record=good or latest_first[0],
                cell_id=cell_id,
                num_attempts=len(group),
                good=good is not None,
            )
        )
    return cases


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
    return [good for launches in wanted for kind in launches.kinds if (good := launches.only(kind)).cases]


def outliers(measured: Iterable[CellLaunches]) -> list[Outliers]:
    """The outliers of each cell and kind of evidence."""
    cells = good_launches(measured)
    factors = outlying(
        [launches.by_block("world") for launches in cells],
        systems=[launches.family.system for launches in cells],
    )
    return [
        outliers_of(
            launches.cell,
            launches.family,
            launches.evidence,
            seconds={case.block: case.seconds for case in launches.cases},
            launches=[
                Outlier(block=case.block, factor=out[case.block], steady=case.steady)
                for case in launches.cases
                if case.block in out
            ],
        )
        for launches, out in zip(cells, factors, strict=True)
    ]


StandingOut = Mapping[tuple[Family, str, str], Outliers]  # by family, cell and kind of evidence


@dataclass(frozen=True, slots=True, kw_only=True)
class Trimmed:
    """A study's launches without outliers. `families` are those that have any."""

    out: StandingOut
    launches: tuple[CellLaunches, ...]
    families: frozenset[Family]


def trimmed(measured: Sequence[CellLaunches], flagged: Iterable[Outliers]) -> Trimmed:
    """The launches of all cells without outliers."""
    out = {(entry.family, entry.cell.id, entry.evidence): entry for entry in flagged}
    return Trimmed(
        out=out,
        launches=tuple(trim(launches, out) for launches in measured),
        families=frozenset(entry.family for entry in out.values() if entry.launches),
    )


def trim(launches: CellLaunches, out: StandingOut) -> CellLaunches:
    """The launches without those that stand out; the same object where none does."""
    blocks = {
        kind: cell_outliers.blocks
        for kind in launches.kinds
        if (cell_outliers := out.get((launches.family, launches.id, kind))) and cell_outliers.launches
    }
    if not blocks:
        return launches
    kept = (case for case in launches.cases if case.block not in blocks.get(case.record.evidence, ()))
    return replace(launches, cases=tuple(kept))
