"""Rank times: each rank's time relative to that of the others in the same window, rank x window."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dlscale.analysis.families import Family
from dlscale.analysis.launches import Block, CellLaunches, good_launches
from dlscale.analysis.records import has_rank_steps, steady_windows
from dlscale.analysis.statistics import median
from dlscale.benchmarks.records.record import Cell, Record


def to_heat_rows(heat: RankTimes) -> list[dict[str, Any]]:
    """One flat row per cell of a heat-map: a rank in one window, or in several neighbouring windows, of a launch."""
    ends = (*heat.first_columns[1:], heat.values.shape[1])
    return [
        {
            "backend": heat.cell.backend,
            "num_ranks": heat.cell.num_ranks,
            "evidence": heat.evidence,
            "host": heat.hosts[rank] if heat.hosts and not heat.moved else None,
            "rank": rank,
            "block": block,
            "column": column - first,
            "slower": float(heat.values[rank, column]),
        }
        for (_, block), first, end in zip(heat.blocks, heat.first_columns, ends, strict=True)
        for rank in range(len(heat.values))
        for column in range(first, end)
    ]


MAX_COLUMNS = 240  # of a heat-map; with more, neighbouring windows of a launch are merged
Matrix = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RankTimes:
    """All launches of a cell side by side, in the order of their blocks.

    `values` [P][columns]: a rank's seconds over the median over ranks in the same window, minus 1; 0.1 is 10 % slower.
    A column is a window, or the median over neighbouring ones. `hosts` [P] are those of the first launch; `moved` is
    true if another launch ran on other hosts.
    """

    cell: Cell
    family: Family
    evidence: str
    values: Matrix
    first_columns: tuple[int, ...]  # of each launch
    blocks: tuple[Block, ...]  # of each launch
    hosts: tuple[str, ...]
    moved: bool
    waiting: bool  # whether its ranks wait for each other
    num_windows: int

    def __eq__(self, other: object) -> bool:
        """Whether everything is equal."""
        if not isinstance(other, RankTimes):
            return NotImplemented
        names = (field.name for field in fields(self))
        return all(np.array_equal(getattr(self, name), getattr(other, name)) for name in names)

    __hash__ = None  # type: ignore[assignment]


def relative_seconds(record: Record) -> Matrix:
    """[P][W]: each rank's seconds per own step over the median over ranks, in each steady window.

    In asynchronous training, a rank that took no step in a window counts as if it had taken one.
    """
    windows = record.counted
    steps = windows.num_steps[:, np.newaxis]  # [W][1]
    if has_rank_steps(record):
        steps = np.array(
            [window.rank_steps or [window.num_steps] for window in steady_windows(record)]
        )  # [W][P]
    own = windows.seconds / np.maximum(steps, 1)
    relative: Matrix = (own / median(own, keepdims=True)).T
    return relative


def hosts_of(record: Record) -> tuple[str, ...]:
    """The node of each rank; empty if the record does not name them all."""
    nodes = tuple(rank.node for rank in sorted(record.ranks, key=lambda rank: rank.rank))
    return nodes if len(nodes) == record.case.cell.num_ranks else ()


def rank_times(measured: Iterable[CellLaunches], *, max_columns: int = MAX_COLUMNS) -> tuple[RankTimes, ...]:
    """One for each training on more than 1 rank that gave a number, by family, ranks and backend, `none` first."""
    trained = good_launches(measured, controls={"train"})
    heats = [_rank_times(launches, max_columns) for launches in trained if launches.cell.num_ranks > 1]
    return tuple(sorted(heats, key=_rank_times_order))


def _rank_times(launches: CellLaunches, max_columns: int) -> RankTimes:
    records = launches.records
    room = max(1, max_columns // len(records))
    parts = [_condensed(relative_seconds(record), room) for record in records]
    ends = np.cumsum([part.shape[1] for part in parts])
    hosts = [hosts_of(record) for record in records]
    return RankTimes(
        cell=launches.cell,
        family=launches.family,
        evidence=launches.evidence,
        values=np.concatenate(parts, axis=1) - 1,
        first_columns=(0, *(int(end) for end in ends[:-1])),
        blocks=tuple(case.block for case in launches.cases),
        hosts=hosts[0],
        moved=len(set(hosts)) > 1,
        waiting=launches.cell.backend != "none" and not has_rank_steps(records[0]),
        num_windows=sum(len(record.counted) for record in records),
    )


def _condensed(matrix: Matrix, room: int) -> Matrix:
    if matrix.shape[1] <= room:
        return matrix
    # As np.array_split: the first parts have one column more.
    each, num_longer = divmod(matrix.shape[1], room)
    longer, rest = np.split(matrix, [num_longer * (each + 1)], axis=1)
    shapes = (longer.reshape(len(matrix), num_longer, each + 1), rest.reshape(len(matrix), -1, each))
    return np.concatenate([median(parts) for parts in shapes], axis=1)


def _rank_times_order(heat: RankTimes) -> tuple[object, ...]:
    cell = heat.cell
    options = tuple(sorted((name, str(value)) for name, value in cell.options.items()))
    return (
        heat.family,
        cell.num_ranks,
        cell.num_nodes,
        cell.backend != "none",
        cell.method,
        options,
        heat.evidence,
    )
