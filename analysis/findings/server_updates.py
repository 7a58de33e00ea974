"""Asynchronous and backed-up servers: how stale the pushed updates were, and which gradients came too late for one.

Servers count for every push how many updates the weights behind it had missed (`collectives.algorithms`). Servers that
accept the first gradients to come say to each rank whether its own are in an update
(`collectives.mpi_ps.trainers.BackedUpTrainer`). With several servers each counts for its shard.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from dlscale.analysis.declare import Column, Sentence, TableOf, tags_of
from dlscale.analysis.families import on_most_ranks
from dlscale.analysis.finding import Finding
from dlscale.analysis.launches import good_by_cell
from dlscale.analysis.measured import Measured
from dlscale.analysis.plots import Block
from dlscale.analysis.records import attributes
from dlscale.analysis.text import backend_name, number, plural, points, workload_title
from dlscale.benchmarks.records.cell import Cell
from dlscale.benchmarks.records.record import Record


@dataclass(frozen=True, slots=True, kw_only=True)
class CellUpdates:
    """What the servers counted in a cell's good launches."""

    cell: Cell
    num_launches: int

    @property
    def place(self) -> str:
        """`mpi_ps downpour on 4 ranks`."""
        return f"{backend_name(self.cell)} on {plural(self.cell.num_ranks, 'rank')}"

    @property
    def text(self) -> str:
        raise NotImplementedError


@dataclass(frozen=True, slots=True, kw_only=True)
class Staleness(CellUpdates):
    """All pushes of a cell. `histogram`: {updates that were missed: pushes}, ascending."""

    histogram: dict[int, int]

    @property
    def num_pushes(self) -> int:
        return sum(self.histogram.values())

    @property
    def mean(self) -> float:
        """Updates that a push had missed."""
        return sum(steps * pushes for steps, pushes in self.histogram.items()) / self.num_pushes

    def quantile(self, share: float) -> int:
        """The least number of updates that so large a share of the pushes had missed at most."""
        passed = np.cumsum(list(self.histogram.values()))
        return list(self.histogram)[int(np.searchsorted(passed, share * self.num_pushes))]

    @property
    def text(self) -> str:
        if self.quantile(1) == 0:
            return f"{self.place}: no push had missed an update of the weights that it was computed with."
        return (
            f"{self.place}: a push had missed {number(self.mean)} updates of the weights that it was computed with in "
            f"the mean, half of them at most {self.quantile(0.5)}, 99 % at most {self.quantile(0.99)}, none more than "
            f"{self.quantile(1)}."
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class LateShare(CellUpdates):
    """All gradients of a cell. `computed` and `dropped` are of each rank, [P], over all servers."""

    computed: tuple[int, ...]
    dropped: tuple[int, ...]

    @property
    def share(self) -> float:
        """Gradients that were dropped, of all that were computed."""
        return sum(self.dropped) / sum(self.computed)

    @property
    def latest_rank(self) -> int:
        """The one of which most were dropped."""
        return int(np.argmax(self.dropped))

    @property
    def text(self) -> str:
        if not any(self.dropped):
            return f"{self.place}: no gradient came too late."
        rank = self.latest_rank
        return (
            f"{self.place}: {points(self.share)} % of the gradients came too late and were dropped, most of them "
            f"rank {rank}'s ({self.dropped[rank]} of {self.computed[rank]})."
        )


def stalenesses(records: Iterable[Record]) -> list[Staleness]:
    """One per cell with records of it, in their order."""
    found = []
    for members in good_by_cell(records, lambda record: record.staleness):
        total: Counter[int] = Counter()
        for record in members:
            total.update(record.staleness)
        histogram = dict(sorted(total.items()))
        found.append(Staleness(cell=members[0].case.cell, num_launches=len(members), histogram=histogram))
    return found


def late_gradients(records: Iterable[Record]) -> list[LateShare]:
    """One per cell with records of it, in their order."""
    found = []
    for members in good_by_cell(records, lambda record: record.late_gradients):
        cell, counts = members[0].case.cell, [one.late_gradients for one in members if one.late_gradients]
        each = max(cell.num_servers, 1)  # every server gets a part of every gradient
        found.append(
            LateShare(
                cell=cell,
                num_launches=len(members),
                computed=tuple(
                    each * sum(rank) for rank in zip(*(one.computed for one in counts), strict=True)
                ),
                dropped=tuple(sum(rank) for rank in zip(*(one.dropped for one in counts), strict=True)),
            )
        )
    return found


def _setting(found: CellUpdates) -> dict[str, Any]:
    return {
        **attributes(found.cell, "workload framework backend num_ranks num_servers"),
        "curve": backend_name(found.cell),
        "num_launches": found.num_launches,
    }


def _staleness_row(found: Staleness) -> dict[str, Any]:
    """`histogram` is `0: 10, 1: 5`, updates that were missed and pushes."""
    return {
        **_setting(found),
        "num_pushes": found.num_pushes,
        "mean_staleness": found.mean,
        "median_staleness": found.quantile(0.5),
        "staleness_99": found.quantile(0.99),
        "largest_staleness": found.quantile(1),
        "histogram": ", ".join(f"{steps}: {pushes}" for steps, pushes in found.histogram.items()),
    }


def _late_row(found: LateShare) -> dict[str, Any]:
    return {
        **_setting(found),
        "num_computed": sum(found.computed),
        "num_dropped": sum(found.dropped),
        "dropped_share": found.share,
        "latest_rank": found.latest_rank,
    }


PLACE: tuple[Column[Any], ...] = (
    Column("workload", lambda item: workload_title(item.cell.workload), numeric=False, common=True),
    Column("framework", lambda item: item.cell.framework, numeric=False, common=True),
    Column("backend", lambda item: backend_name(item.cell), numeric=False),
    Column("ranks", lambda item: item.cell.num_ranks),
    Column("servers", lambda item: item.cell.num_servers),
)
STALENESS = TableOf[Staleness](
    name="staleness",
    caption="Staleness of what was pushed to servers",
    columns=(
        *PLACE,
        Column("pushes", lambda item: item.num_pushes),
        Column("mean", lambda item: item.mean, unit="updates"),
        Column("half", lambda item: item.quantile(0.5), unit="<="),
        Column("99 %", lambda item: item.quantile(0.99), unit="<="),
        Column("all", lambda item: item.quantile(1), unit="<="),
    ),
    data=_staleness_row,
    legend="Staleness: updates of the servers' weights between those that a push was computed with and the push. "
    "Counted for every push and server, over all launches, warm-up and audits included.",
    tags=lambda item: tags_of(item.cell),
)
LATE_GRADIENTS = TableOf[LateShare](
    name="late_gradients",
    caption="Gradients that came too late",
    columns=(
        *PLACE,
        Column("computed", lambda item: sum(item.computed)),
        Column("dropped", lambda item: sum(item.dropped)),
        Column("share", lambda item: 100 * item.share, unit="%"),
        Column("most of rank", lambda item: item.latest_rank),
    ),
    data=_late_row,
    legend="An update takes the first gradients to come, of all ranks but the backup workers; later ones are dropped "
    "and count in no throughput and no samples to a target. Counted for every server, over all launches, warm-up and "
    "audits included; a rank that is so late that an update is there already computes no gradient.",
    tags=lambda item: tags_of(item.cell),
)
U = TypeVar("U", bound=CellUpdates)


def _finding(table: TableOf[U], title: str, of: Callable[[Iterable[Record]], list[U]]) -> Finding[U]:
    def compute(study: Measured) -> list[U]:
        return of(study.records)

    def screen(study: Measured) -> Iterator[Block]:
        return (Sentence(text=one.text) for one in on_most_ranks(study.once(compute)))

    return Finding(name=table.name, title=title, compute=compute, table=table, screen=screen)


FINDINGS = (
    _finding(STALENESS, "Staleness of updates", stalenesses),
    _finding(LATE_GRADIENTS, "Late gradients", late_gradients),
)
