"""What the rules are judged by."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from dlscale.analysis.contrasts.contrast import Contrasts
from dlscale.analysis.family import base_cell
from dlscale.analysis.page.launches import Launch
from dlscale.analysis.page.plot_model import Plot
from dlscale.analysis.page.sound import StudyFacts
from dlscale.analysis.scaling import Row, ScalingTable
from dlscale.analysis.words import backend_name
from dlscale.benchmarks.record import Record
from dlscale.benchmarks.record_files import BadFile

NAMED = 3  # of many examples


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """A study's numbers, and what is shown of them. `plots` are all of the page's, `efficiency` those of that."""

    table: ScalingTable
    launches: Sequence[Launch]
    groups: Mapping[tuple[str, str, str], Sequence[Launch]]  # of `launches.by_cell`
    records: Sequence[Record]
    bad_files: Sequence[BadFile] = ()
    study: StudyFacts = field(default_factory=StudyFacts)
    efficiency: Sequence[Plot] = ()
    plots: Sequence[Plot] = ()
    contrasts: Contrasts | None = None  # None: there were no two to compare

    @property
    def trained(self) -> list[Row]:
        """Rows of real training that gave a number."""
        return [row for row in self.table.rows if row.cell.control == "train" and row.throughput]

    @property
    def scaled(self) -> list[Row]:
        """Those on more than 1 rank."""
        return [row for row in self.trained if row.cell.num_ranks > 1]


def where(row: Row) -> str:
    """`ring on 8 ranks`, for a list of examples."""
    ranks = row.cell.num_ranks
    return f"{backend_name(row.cell)} on {ranks} rank{'s' * (ranks > 1)} ({row.cell.workload}, {row.cell.framework})"


def examples(names: Sequence[str]) -> str:
    """The first of them, and how many more there are."""
    more = len(names) - NAMED
    return ", ".join(names[:NAMED]) + (f" and {more} more" if more > 0 else "")


def log_ratios(row: Row, facts: Facts) -> NDArray[np.float64]:
    """Of each block that the row has in common with its base case (a): log of the efficiency, [B]; may be empty."""
    base = base_cell(
        row.cell, [one.cell for one in facts.table.rows if one.family == row.family], same_backend=False
    )
    if base is None or row.efficiency_none is None:
        return np.empty(0)
    over, under = (_by_block(facts, row, cell.id) for cell in (row.cell, base))
    common = [block for block in over if block in under]
    ratios = [over[block] / under[block] / row.cell.num_ranks for block in common]
    return np.log(np.array(ratios, dtype=np.float64))


def _by_block(facts: Facts, row: Row, cell_id: str) -> dict[Hashable, float]:
    group = facts.groups.get((row.family.system, cell_id, str(row.evidence)), ())
    return {(one.study, one.block): one.samples_per_second for one in group}
