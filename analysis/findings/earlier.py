"""The newest of several studies beside the earlier ones: what each cell reached in them, and how much that varied."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from statistics import median

from dlscale.analysis.declare import Column, TableOf, Value, shown_number
from dlscale.analysis.finding import place_columns
from dlscale.analysis.findings.scaling import ScalingRow
from dlscale.analysis.records import setting_columns
from dlscale.analysis.statistics import Interval
from dlscale.analysis.text import interval_columns, number


@dataclass(frozen=True, slots=True, kw_only=True)
class BesideEarlier:
    """A training's samples per second in the newest study, and those of each earlier study that has it."""

    row: ScalingRow
    rate: Interval
    earlier: tuple[float, ...]

    @property
    def change(self) -> float:
        """The newest rate over the median of the earlier ones, less 1."""
        return self.rate.center / median(self.earlier) - 1

    @property
    def outside(self) -> bool:
        """Whether it is faster or slower than each of them."""
        return not min(self.earlier) <= self.rate.center <= max(self.earlier)


def beside_earlier(
    newest: Iterable[ScalingRow], earlier: Iterable[Sequence[ScalingRow]]
) -> list[BesideEarlier]:
    """A row for each training of the newest study that an earlier one has too."""
    known: dict[str, list[float]] = {}
    for row in chain.from_iterable(earlier):
        if row.throughput:
            known.setdefault(row.cell.id, []).append(row.throughput.center)
    return [
        BesideEarlier(row=row, rate=row.throughput, earlier=tuple(known[row.cell.id]))
        for row in newest
        if row.throughput and row.cell.control == "train" and row.cell.id in known
    ]


def _percent(change: float) -> Value:
    return shown_number(change, lambda value: f"{100 * value:+.1f}")


def _row(cell: BesideEarlier) -> dict[str, object]:
    return setting_columns(cell.row.family, cell.row.cell) | {
        **interval_columns("samples_per_second", cell.rate),
        "earlier_median": median(cell.earlier),
        "earlier_low": min(cell.earlier),
        "earlier_high": max(cell.earlier),
        "num_earlier": len(cell.earlier),
        "change": cell.change,
        "outside": cell.outside,
    }


EARLIER = TableOf[BesideEarlier](
    name="earlier",
    caption="The newest study beside the earlier ones",
    columns=(
        *place_columns(lambda cell: cell.row),
        Column("newest", lambda cell: cell.rate, unit="samples/s"),
        Column("earlier median", lambda cell: median(cell.earlier), unit="samples/s"),
        Column("from, to", lambda cell: f"{number(min(cell.earlier))}, {number(max(cell.earlier))}"),
        Column("studies", lambda cell: len(cell.earlier)),
        Column("change", lambda cell: _percent(cell.change), unit="%"),
        Column("", lambda cell: "outside" if cell.outside else "", numeric=False),
    ),
    data=_row,
    strong=lambda cell: cell.outside,
    legend="newest: median [95 % interval] over launches; outside: faster or slower than in each earlier study. Not a "
    "test: the machine changes between studies.",
)
