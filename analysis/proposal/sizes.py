"""What each size of a curve says to those who give compute time: speed-up, efficiency, what a million samples cost."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Literal

from dlscale.analysis.family import Family
from dlscale.analysis.launches import BASE
from dlscale.analysis.proposal.doubling import Rates, per_doubling
from dlscale.analysis.scaling import Row, ScalingTable
from dlscale.analysis.statistics import Interval
from dlscale.analysis.words import backend_name

MILLION = 1_000_000
HOUR_SECONDS = 3600

Verdict = Literal["surely", "possibly", "not", "unknown"]
Base = Literal["none", "backend", ""]


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """One number of ranks of a curve. None where there is no number."""

    row: Row
    efficiency: Interval | None  # against the curve's base case
    speed_up: Interval | None  # T(p) / T(1)
    per_doubling: Interval | None  # since the size before; 2 is ideal
    node_hours: Interval | None  # of whole nodes, for a million samples
    verdict: Verdict  # whether the efficiency keeps the threshold

    @property
    def num_ranks(self) -> int:
        """Processes that train."""
        return self.row.cell.num_ranks

    @property
    def num_nodes(self) -> int:
        """Nodes that they are on."""
        return self.row.cell.num_nodes


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """One backend of a family, over its sizes in ascending order; at least one has a number."""

    family: Family
    name: str  # of the backend, with options and servers
    evidence: str
    base: Base  # which base case efficiencies are against; "" without any
    base_rate: Interval | None  # its samples/s
    threshold: float
    sizes: tuple[Size, ...]
    others: tuple[str, ...] = ()  # further backends that were measured on several ranks

    @property
    def backend(self) -> str:
        """Its name without options."""
        return self.sizes[0].row.cell.backend

    @property
    def largest(self) -> Size:
        """Of those with a number."""
        return max((one for one in self.sizes if one.row.throughput), key=lambda one: one.num_ranks)

    def keeping(self, *verdicts: Verdict) -> Size | None:
        """The largest size with one of these verdicts."""
        found = [one for one in self.sizes if one.verdict in verdicts]
        return max(found, key=lambda one: one.num_ranks, default=None)


def verdict(efficiency: Interval | None, threshold: float) -> Verdict:
    """Surely, or surely not, where the whole interval lies on one side; unknown without an interval."""
    if efficiency is None:
        return "unknown"
    if efficiency.method == BASE:
        return "surely"
    if efficiency.low is None or efficiency.high is None:
        return "unknown"
    if efficiency.low >= threshold:
        return "surely"
    return "not" if efficiency.high < threshold else "possibly"


def curves(
    table: ScalingTable, rates: Rates, *, threshold: float, backends: Sequence[str] = ()
) -> list[Curve]:
    """The curves to show: of each family those over `backends`, by default the one that is fastest on most ranks.

    `rates` are the launches behind the table, for ratios of sizes.
    """
    found = []
    for family in table.families:
        rows = _with_evidence(row for row in table.of(family) if row.cell.control == "train")
        alone = [row for row in rows if row.cell.num_ranks == 1 and row.throughput]
        groups = [list(group) for _, group in groupby(sorted(rows, key=_order), key=_key)]
        measured = [
            _curve(group, family, alone, rates, threshold=threshold)
            for group in groups
            if any(row.throughput for row in group)
        ]
        exchanging = [one for one in measured if one.backend != "none"]
        chosen = sorted(exchanging or measured, key=_speed)[-1:]
        if backends:
            chosen = [one for one in measured if one.backend in backends]
        several = [one.name for one in exchanging if one.largest.num_ranks > 1]
        for one in chosen:
            others = dict.fromkeys(name for name in several if name != one.name)
            found.append(replace(one, others=tuple(others)))
    return found


def _with_evidence(rows: Iterable[Row]) -> list[Row]:
    """A planned size that left no record stands with the others of its backend."""
    rows = list(rows)
    kinds = {_name(row): row.evidence for row in reversed(rows) if row.evidence}
    return [row if row.evidence else replace(row, evidence=kinds.get(_name(row))) for row in rows]


def _key(row: Row) -> tuple[str, str]:
    return _name(row), row.evidence or ""


def _order(row: Row) -> tuple[object, ...]:
    return *_key(row), row.cell.num_ranks, row.cell.num_nodes


def _name(row: Row) -> str:
    servers = row.cell.num_servers
    return backend_name(row.cell) + (f" with {servers} server{'s' * (servers > 1)}" if servers else "")


def _speed(curve: Curve) -> tuple[int, float, str]:
    """Most ranks first, then samples/s there."""
    largest = curve.largest
    rate = largest.row.throughput
    return largest.num_ranks, rate.center if rate else 0.0, curve.name


def _curve(
    rows: Sequence[Row], family: Family, alone: Sequence[Row], rates: Rates, *, threshold: float
) -> Curve:
    """`alone` are the family's rows of 1 rank with a number."""
    base: Base = "backend" if any(row.efficiency_backend for row in rows) else ""
    if any(row.efficiency_none for row in rows):
        base = "none"
    sizes: list[Size] = []
    for row in rows:
        fewer = [one.row for one in sizes if one.num_ranks < row.cell.num_ranks and one.row.throughput]
        efficiency = row.efficiency_none if base == "none" else row.efficiency_backend
        node_seconds = row.cell.num_nodes * MILLION / HOUR_SECONDS
        sizes.append(
            Size(
                row=row,
                efficiency=efficiency,
                speed_up=efficiency and efficiency.times(row.cell.num_ranks),
                per_doubling=per_doubling(row, fewer[-1] if fewer else None, rates),
                node_hours=row.throughput and row.throughput.rate(node_seconds),
                verdict=verdict(efficiency, threshold),
            )
        )
    return Curve(
        family=family,
        name=_name(rows[0]),
        evidence=rows[0].evidence or "measured",
        base=base,
        base_rate=_base_rate(rows[0], alone, base),
        threshold=threshold,
        sizes=tuple(sizes),
    )


def _base_rate(row: Row, alone: Sequence[Row], base: Base) -> Interval | None:
    wanted = {"none": "none", "backend": backend_name(row.cell), "": ""}[base]
    return next((one.throughput for one in alone if backend_name(one.cell) == wanted), None)
