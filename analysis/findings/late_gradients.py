"""Gradients that came too late for their update and were dropped: what backup workers cost.

Servers that accept the first gradients to come say to each rank whether its own are in an update
(`collectives.mpi_ps.trainers.BackedUpTrainer`); with several servers each decides for its shard.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from dlscale.analysis.declare import Block, Column, Sentence, TableOf, tags_of
from dlscale.analysis.families import on_most_ranks
from dlscale.analysis.finding import Finding
from dlscale.analysis.launches import good_by_cell
from dlscale.analysis.measured import Measured
from dlscale.analysis.text import backend_name, plural, points, workload_title
from dlscale.benchmarks.records.record import Cell, Record


@dataclass(frozen=True, slots=True, kw_only=True)
class LateShare:
    """All gradients of a cell's good launches. `computed` and `dropped` are of each rank, [P], over all servers."""

    cell: Cell
    num_launches: int
    computed: tuple[int, ...]
    dropped: tuple[int, ...]

    @property
    def share(self) -> float:
        """Gradients that were dropped, of all that were computed."""
        return sum(self.dropped) / sum(self.computed)

    @property
    def latest_rank(self) -> int:
        """The one of which most were dropped."""
        return max(range(len(self.dropped)), key=lambda rank: self.dropped[rank])

    @property
    def text(self) -> str:
        """A sentence with the result."""
        place = f"{backend_name(self.cell)} on {plural(self.cell.num_ranks, 'rank')}"
        if not any(self.dropped):
            return f"{place}: no gradient came too late."
        rank = self.latest_rank
        return (
            f"{place}: {points(self.share)} % of the gradients came too late and were dropped, most of them "
            f"rank {rank}'s ({self.dropped[rank]} of {self.computed[rank]})."
        )


def late_gradients(records: Iterable[Record]) -> list[LateShare]:
    """One per cell with records of it, in their order."""
    return [_of_cell(members) for members in good_by_cell(records, lambda record: record.late_gradients)]


def _of_cell(members: list[Record]) -> LateShare:
    cell = members[0].case.cell
    found = [record.late_gradients for record in members if record.late_gradients]
    each = max(cell.num_servers, 1)  # every server gets a part of every gradient
    return LateShare(
        cell=cell,
        num_launches=len(members),
        computed=tuple(each * sum(ranks) for ranks in zip(*(one.computed for one in found), strict=True)),
        dropped=tuple(sum(ranks) for ranks in zip(*(one.dropped for one in found), strict=True)),
    )


def to_late_row(late: LateShare) -> dict[str, Any]:
    """The row of a cell."""
    cell = late.cell
    return {
        "workload": cell.workload,
        "framework": cell.framework,
        "backend": cell.backend,
        "curve": backend_name(cell),
        "num_ranks": cell.num_ranks,
        "num_servers": cell.num_servers,
        "num_launches": late.num_launches,
        "num_computed": sum(late.computed),
        "num_dropped": sum(late.dropped),
        "dropped_share": late.share,
        "latest_rank": late.latest_rank,
    }


LATE_GRADIENTS = TableOf[LateShare](
    name="late_gradients",
    caption="Gradients that came too late",
    columns=(
        Column("workload", lambda item: workload_title(item.cell.workload), numeric=False, common=True),
        Column("framework", lambda item: item.cell.framework, numeric=False, common=True),
        Column("backend", lambda item: backend_name(item.cell), numeric=False),
        Column("ranks", lambda item: item.cell.num_ranks),
        Column("servers", lambda item: item.cell.num_servers),
        Column("computed", lambda item: sum(item.computed)),
        Column("dropped", lambda item: sum(item.dropped)),
        Column("share", lambda item: 100 * item.share, unit="%"),
        Column("most of rank", lambda item: item.latest_rank),
    ),
    data=to_late_row,
    legend="An update takes the first gradients to come, of all ranks but the backup workers; later ones are dropped "
    "and count in no throughput and no samples to a target. Counted for every server, over all launches, warm-up and "
    "audits included; a rank that is so late that an update is there already computes no gradient.",
    tags=lambda item: tags_of(item.cell),
)


def _screen(study: Measured) -> Iterator[Block]:
    return (Sentence(text=one.text) for one in on_most_ranks(FINDING.of(study)))


FINDING = Finding(
    name="late_gradients",
    title="Late gradients",
    compute=lambda study: late_gradients(study.records),
    table=LATE_GRADIENTS,
    screen=_screen,
)
FINDINGS = (FINDING,)
