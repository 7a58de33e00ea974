"""The staleness of asynchronous trainings: how many updates the weights behind a push had missed when it arrived.

Servers count it for every push (`collectives.algorithms`); with several servers each counts those of its shard.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from dlscale.analysis.declare import Block, Column, Sentence, TableOf, tags_of
from dlscale.analysis.families import on_most_ranks
from dlscale.analysis.finding import Finding
from dlscale.analysis.launches import good_by_cell
from dlscale.analysis.measured import Measured
from dlscale.analysis.text import backend_name, number, plural, workload_title
from dlscale.benchmarks.records.record import Cell, Record


@dataclass(frozen=True, slots=True, kw_only=True)
class Staleness:
    """All pushes of a cell's good launches. `histogram`: {updates that were missed: pushes}, ascending."""

    cell: Cell
    num_launches: int
    histogram: dict[int, int]

    @property
    def num_pushes(self) -> int:
        """Over all servers."""
        return sum(self.histogram.values())

    @property
    def mean(self) -> float:
        """Updates that a push had missed."""
        return sum(steps * pushes for steps, pushes in self.histogram.items()) / self.num_pushes

    def quantile(self, share: float) -> int:
        """The least number of updates that so large a share of the pushes had missed at most."""
        passed = 0
        for steps, pushes in self.histogram.items():
            passed += pushes
            if passed >= share * self.num_pushes:
                return steps
        raise ValueError(f"{share} is no share")

    @property
    def text(self) -> str:
        """A sentence with the result."""
        place = f"{backend_name(self.cell)} on {plural(self.cell.num_ranks, 'rank')}"
        if self.quantile(1) == 0:
            return f"{place}: no push had missed an update of the weights that it was computed with."
        return (
            f"{place}: a push had missed {number(self.mean)} updates of the weights that it was computed with in the "
            f"mean, half of them at most {self.quantile(0.5)}, 99 % at most {self.quantile(0.99)}, none more than "
            f"{self.quantile(1)}."
        )


def stalenesses(records: Iterable[Record]) -> list[Staleness]:
    """One per cell with records of it, in their order."""
    return [
        Staleness(
            cell=members[0].case.cell,
            num_launches=len(members),
            histogram=_total(r.staleness for r in members),
        )
        for members in good_by_cell(records, lambda record: record.staleness)
    ]


def _total(histograms: Iterable[dict[int, int]]) -> dict[int, int]:
    total: Counter[int] = Counter()
    for histogram in histograms:
        total.update(histogram)
    return dict(sorted(total.items()))


def to_staleness_row(staleness: Staleness) -> dict[str, Any]:
    """The row of a cell; `histogram` is `0: 10, 1: 5`, updates that were missed and pushes."""
    cell = staleness.cell
    return {
        "workload": cell.workload,
        "framework": cell.framework,
        "backend": cell.backend,
        "curve": backend_name(cell),
        "num_ranks": cell.num_ranks,
        "num_servers": cell.num_servers,
        "num_launches": staleness.num_launches,
        "num_pushes": staleness.num_pushes,
        "mean_staleness": staleness.mean,
        "median_staleness": staleness.quantile(0.5),
        "staleness_99": staleness.quantile(0.99),
        "largest_staleness": staleness.quantile(1),
        "histogram": ", ".join(f"{steps}: {pushes}" for steps, pushes in staleness.histogram.items()),
    }


STALENESS = TableOf[Staleness](
    name="staleness",
    caption="Staleness of what was pushed to servers",
    columns=(
        Column("workload", lambda item: workload_title(item.cell.workload), numeric=False, common=True),
        Column("framework", lambda item: item.cell.framework, numeric=False, common=True),
        Column("backend", lambda item: backend_name(item.cell), numeric=False),
        Column("ranks", lambda item: item.cell.num_ranks),
        Column("servers", lambda item: item.cell.num_servers),
        Column("pushes", lambda item: item.num_pushes),
        Column("mean", lambda item: item.mean, unit="updates"),
        Column("half", lambda item: item.quantile(0.5), unit="<="),
        Column("99 %", lambda item: item.quantile(0.99), unit="<="),
        Column("all", lambda item: item.quantile(1), unit="<="),
    ),
    data=to_staleness_row,
    legend="Staleness: updates of the servers' weights between those that a push was computed with and the push. "
    "Counted for every push and server, over all launches, warm-up and audits included.",
    tags=lambda item: tags_of(item.cell),
)


def _screen(study: Measured) -> Iterator[Block]:
    return (Sentence(text=one.text) for one in on_most_ranks(FINDING.of(study)))


FINDING = Finding(
    name="staleness",
    title="Staleness of updates",
    compute=lambda study: stalenesses(study.records),
    table=STALENESS,
    screen=_screen,
)
FINDINGS = (FINDING,)
