"""The seconds per step of every window that counts, launch by launch: what a distribution of steps is drawn from."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dlscale.analysis.family import Family, family_of
from dlscale.analysis.frame import world_step_seconds
from dlscale.analysis.statistics import Interval, median_interval
from dlscale.analysis.waterfall.times import latest_good
from dlscale.benchmarks.record import Cell, Record


@dataclass(frozen=True, slots=True, kw_only=True)
class Steps:
    """A cell's launches that gave a number, of one kind of evidence. Seconds are the slowest rank's."""

    cell: Cell
    family: Family
    evidence: str
    launches: tuple[
        tuple[float, ...], ...
    ]  # seconds per step of the steady windows of each, by study and block

    @property
    def pooled(self) -> NDArray[np.float64]:
        """Of all launches together, ascending."""
        return np.sort(np.concatenate(self.launches))

    @property
    def typical(self) -> Interval:
        """The median over launches of each one's own median, as the table of throughput has it."""
        return median_interval([float(np.median(seconds)) for seconds in self.launches])


def steps_of(records: Iterable[Record]) -> list[Steps]:
    """One for each training that gave a number and kind of evidence, ordered by name."""
    found: dict[tuple[str, str, str], list[Record]] = {}
    for record in latest_good(records):
        if record.case.cell.control == "train":
            found.setdefault((record.system, record.case.cell.id, record.evidence), []).append(record)
    return [_steps(found[key]) for key in sorted(found)]


def _steps(records: Sequence[Record]) -> Steps:
    cell = records[0].case.cell
    ordered = sorted(records, key=lambda record: (record.study, record.case.block))
    return Steps(
        cell=cell,
        family=family_of(cell, system=records[0].system),
        evidence=records[0].evidence,
        launches=tuple(tuple(world_step_seconds(record).tolist()) for record in ordered),
    )
