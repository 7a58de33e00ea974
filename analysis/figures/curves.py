"""What a figure draws: the rows of one family, cut into curves that may be joined by a line."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise

from dlscale.analysis.scaling import Row
from dlscale.analysis.statistics import Interval
from dlscale.analysis.words import backend_name

Value = Callable[[Row], Interval | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """One backend with one set of options and one kind of evidence, over the number of ranks."""

    name: str
    backend: str
    evidence: str
    rows: tuple[Row, ...]

    @property
    def joined(self) -> bool:
        """Whether a line may join the points: two or more, each on more ranks than the one before."""
        ranks = [row.cell.num_ranks for row in self.rows]
        return len(ranks) > 1 and all(fewer < more for fewer, more in pairwise(ranks))


def curves_of(rows: Iterable[Row], value: Value) -> list[Curve]:
    """The curves of those rows that really train and have `value`, in the table's order."""
    drawn = [row for row in rows if row.cell.control == "train" and value(row) is not None]

    def key(row: Row) -> tuple[str, str, str]:
        return backend_name(row.cell), row.cell.backend, str(row.evidence)

    # The table's order groups backends already; kinds of evidence alternate within one.
    order = list(dict.fromkeys(key(row) for row in drawn))
    grouped = groupby(sorted(drawn, key=lambda row: (order.index(key(row)), row.cell.num_ranks)), key=key)
    return [
        Curve(name=name, backend=backend, evidence=evidence, rows=tuple(group))
        for (name, backend, evidence), group in grouped
    ]


def missing_from(rows: Iterable[Row], curves: Sequence[Curve]) -> list[str]:
    """The trained cells that have no point in these curves, and why, in words."""
    shown = {id(row) for curve in curves for row in curve.rows}
    words = []
    for row in rows:
        if row.cell.control == "train" and id(row) not in shown:
            ranks = f"{row.cell.num_ranks} rank{'s' * (row.cell.num_ranks > 1)}"
            launches = f"{row.num_launches} of {row.num_planned} launches"
            words.append(
                f"{backend_name(row.cell)} on {ranks} ({'no base case' if row.num_launches else launches})"
            )
    return words


def dodge(index: int, count: int) -> float:
    """Factor on the number of ranks that moves curve `index` of `count` aside, so that points do not overlap.

    Spread evenly over at most a third of an octave around the true place, which the axis labels.
    """
    step = min(0.07, 0.34 / max(1, count - 1))
    return float(2.0 ** (step * (index - (count - 1) / 2)))
