"""What one launch says about a step: how long it takes on all ranks, on the average rank, on the latest."""

from __future__ import annotations

from collections.abc import Iterable, Sequence, Set
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dlscale.analysis.family import Family, family_of
from dlscale.analysis.frame import steady_windows, why_unusable, world_step_seconds
from dlscale.benchmarks.record import Cell, Record, Window

Seconds = NDArray[np.float64]
Block = tuple[str, int]  # study, block
TRAINING = frozenset({"train", "synthetic", "alone"})  # controls of which a step is made
MIN_COVERED = 0.95  # of a window's seconds by its stamps; below, the two clocks tell different stories


@dataclass(frozen=True, slots=True, kw_only=True)
class Times:
    """Seconds per step of one launch, each the median over its steady windows.

    `world` is the table's: the slowest rank's total of a window. `mean` is the mean over ranks of the totals. `latest`
    is what a step would take if every step waited for its latest rank: `mean`, and on top the mean over steps of
    (maximum - mean over ranks) of the stamps. So window totals say how long steps are, and stamps only by how much
    ranks differ: where stamps leave something out (a device's queue, the end of a window), it counts for all ranks
    alike. None without stamps.
    """

    world: float
    mean: float
    latest: float | None
    covered: float | None  # share of the windows' seconds that the stamps add up to


@dataclass(frozen=True, slots=True, kw_only=True)
class Launched:
    """A cell's good launches of one kind of evidence: their times by block."""

    cell: Cell
    family: Family
    evidence: str
    together: bool  # whether its ranks step together; asynchronous ones do not
    times: dict[Block, Times]

    def seconds(self, which: str) -> dict[Block, float]:
        """Block -> one of the launch's `Times`, where it has it."""
        found = {block: getattr(times, which) for block, times in self.times.items()}
        return {block: value for block, value in found.items() if value is not None}


class Good(tuple[Record, ...]):
    """Of each case the latest attempt that gave a number. To find them takes longer than most that follows."""


def latest_good(records: Iterable[Record]) -> Good:
    """As `frame.tidy` chooses them; `Good` ones are returned as they are."""
    if isinstance(records, Good):
        return records
    chosen: dict[tuple[str, str, str], Record] = {}
    for record in sorted(records, key=lambda one: one.attempt):
        if why_unusable(record) is None:
            chosen[record.system, record.study, record.case.id] = record
    return Good(chosen.values())


def times_of(record: Record) -> Times:
    """Of a record that is not unusable (`frame.why_unusable`)."""
    windows = steady_windows(record)
    seconds = np.array([window.seconds for window in windows])  # [W][P]
    means = seconds.mean(axis=1) / np.array([window.num_steps for window in windows])
    spreads, stamped = _spreads(windows)
    return Times(
        world=float(np.median(world_step_seconds(record))),
        mean=float(np.median(means)),
        latest=None if spreads is None else float(np.median(means + spreads)),
        covered=None if stamped is None else float(np.median(stamped / seconds.sum(axis=1))),
    )


def launched(records: Iterable[Record], *, controls: Set[str] = TRAINING) -> list[Launched]:
    """All cells of those controls, with their launches that gave a number."""
    found: dict[tuple[str, str, str], Launched] = {}
    for record in latest_good(records):
        cell = record.case.cell
        if cell.control not in controls:
            continue
        one = found.setdefault(
            (record.system, cell.id, record.evidence),
            Launched(
                cell=cell,
                family=family_of(cell, system=record.system),
                evidence=record.evidence,
                together=all(window.num_applied is None for window in record.windows),
                times={},
            ),
        )
        one.times[record.study, record.case.block] = times_of(record)
    return [found[key] for key in sorted(found)]


def _spreads(windows: Sequence[Window]) -> tuple[Seconds | None, Seconds | None]:
    """Of each window the mean over steps of (maximum - mean over ranks), and what its stamps add up to.

    The k-th steps of all ranks are compared with each other. None unless all windows have stamps.
    """
    stamps = [window.step_seconds for window in windows if window.step_seconds is not None]
    if len(stamps) < len(windows):
        return None, None
    if len({window.num_steps for window in windows}) == 1:
        matrix = np.array(stamps)  # [W][P][K]
        return (matrix.max(axis=1) - matrix.mean(axis=1)).mean(axis=1), matrix.sum(axis=(1, 2))
    each = [np.array(one) for one in stamps]
    spreads = [np.mean(one.max(axis=0) - one.mean(axis=0)) for one in each]
    return np.array(spreads), np.array([one.sum() for one in each])
