"""Numbers for a compute-time proposal: each size's speed-up, efficiency and cost of a million samples.

Also the speed-up per doubling of the ranks, from launches of the same blocks, and the node-hours of trainings at one
size.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Literal

from dlscale.analysis.families import Family
from dlscale.analysis.findings import predicted_points, scaling
from dlscale.analysis.findings.predicted_points import PlacedPrediction
from dlscale.analysis.findings.scaling import ScalingRow, rows_of
from dlscale.analysis.measured import Measured
from dlscale.analysis.metrics import BASE_CASE
from dlscale.analysis.statistics import Interval, block_ratio
from dlscale.analysis.text import backend_name, plural
from dlscale.benchmarks.records.record import Record

MILLION = 1_000_000
HOUR_SECONDS = 3600

Verdict = Literal["surely", "possibly", "not", "unknown"]
Base = Literal["none", "backend", ""]


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """One number of ranks of a curve. Unknown values are None."""

    row: ScalingRow
    efficiency: Interval | None  # against the curve's base case
    speed_up: Interval | None  # T(p) / T(b)
    per_doubling: Interval | None  # since the previous size; 2 is ideal
    node_hours: Interval | None  # for a million samples, counting whole nodes
    verdict: Verdict  # whether the efficiency keeps the threshold

    @property
    def num_ranks(self) -> int:
        """The number of processes that train."""
        return self.row.cell.num_ranks

    @property
    def num_nodes(self) -> int:
        """The number of nodes that the ranks run on."""
        return self.row.cell.num_nodes


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """One backend of a family, over its sizes in ascending order; at least one has a number."""

    family: Family
    name: str  # the backend, with options and servers
    evidence: str
    base: Base  # base case of the efficiencies; "" without any
    base_rate: Interval | None  # its samples/s
    threshold: float
    sizes: tuple[Size, ...]
    records: tuple[Record, ...] = ()
    others: tuple[str, ...] = ()  # other backends that were measured on several ranks
    predicted: tuple[PlacedPrediction, ...] = ()  # over the same backend, ascending

    @property
    def backend(self) -> str:
        return self.sizes[0].row.cell.backend

    @property
    def base_ranks(self) -> int:
        """The number of ranks of the base case."""
        return self.sizes[0].row.base_ranks

    @property
    def scaled(self) -> tuple[Size, ...]:
        """The sizes other than the base case's."""
        return tuple(size for size in self.sizes if size.num_ranks != self.base_ranks)

    @property
    def largest(self) -> Size:
        return max((size for size in self.sizes if size.row.throughput), key=lambda size: size.num_ranks)

    def keeping(self, *verdicts: Verdict) -> Size | None:
        """The largest size with one of these verdicts."""
        sizes = [size for size in self.sizes if size.verdict in verdicts]
        return max(sizes, key=lambda size: size.num_ranks, default=None)


def verdict(efficiency: Interval | None, threshold: float) -> Verdict:
    """Surely or not if the whole interval is on one side, possibly if it is not; unknown without an interval."""
    if efficiency is None:
        return "unknown"
    if efficiency.method == BASE_CASE:
        return "surely"
    if efficiency.low is None or efficiency.high is None:
        return "unknown"
    if efficiency.low >= threshold:
        return "surely"
    return "not" if efficiency.high < threshold else "possibly"


def curves(study: Measured, *, threshold: float, backends: Sequence[str] = ()) -> list[Curve]:
    """The curves to show: for each family those of `backends`, by default the fastest one on the most ranks."""
    shown = []
    for family in study.families:
        rows = _with_evidence(
            row for row in rows_of(scaling.FINDING.of(study), family) if row.cell.control == "train"
        )
        alone = [row for row in rows if row.cell.num_ranks == row.base_ranks and row.throughput]
        groups = [list(group) for _, group in groupby(sorted(rows, key=_order), key=_curve_key)]
        measured = [
            _curve(group, alone, study, threshold=threshold)
            for group in groups
            if any(row.throughput for row in group)
        ]
        exchanging = [curve for curve in measured if curve.backend != "none"]
        chosen = sorted(exchanging or measured, key=_speed)[-1:]
        if backends:
            chosen = [curve for curve in measured if curve.backend in backends]
        several = [curve.name for curve in exchanging if any(size.row.throughput for size in curve.scaled)]
        for curve in chosen:
            others = dict.fromkeys(name for name in several if name != curve.name)
            shown.append(replace(curve, others=tuple(others)))
    return shown


def _with_evidence(rows: Iterable[ScalingRow]) -> list[ScalingRow]:
    """The rows; a planned size without records gets the kind of evidence of its backend's other sizes."""
    rows = list(rows)
    kinds = {_name(row): row.evidence for row in reversed(rows) if row.evidence}
    return [row if row.evidence else replace(row, evidence=kinds.get(_name(row))) for row in rows]


def _curve_key(row: ScalingRow) -> tuple[str, str]:
    return _name(row), row.evidence or ""


def _order(row: ScalingRow) -> tuple[object, ...]:
    return *_curve_key(row), row.cell.num_ranks, row.cell.num_nodes


def _name(row: ScalingRow) -> str:
    servers = row.cell.num_servers
    return backend_name(row.cell) + (f" with {plural(servers, 'server')}" if servers else "")


def _speed(curve: Curve) -> tuple[int, float, str]:
    """Sort key: the largest number of ranks, then samples/s there."""
    largest = curve.largest
    rate = largest.row.throughput
    return largest.num_ranks, rate.center if rate else 0.0, curve.name


def _curve(
    rows: Sequence[ScalingRow], alone: Sequence[ScalingRow], study: Measured, *, threshold: float
) -> Curve:
    """The curve of these rows; `alone` are the family's rows of base cases with a throughput."""
    base: Base = "backend" if any(row.efficiency_backend for row in rows) else ""
    if any(row.efficiency_none for row in rows):
        base = "none"
    sizes: list[Size] = []
    for row in rows:
        fewer = [size.row for size in sizes if size.num_ranks < row.cell.num_ranks and size.row.throughput]
        efficiency = row.efficiency_none if base == "none" else row.efficiency_backend
        node_seconds = row.cell.num_nodes * MILLION / HOUR_SECONDS
        sizes.append(
            Size(
                row=row,
                efficiency=efficiency,
                speed_up=efficiency and efficiency.times(row.cell.num_ranks / row.base_ranks),
                per_doubling=per_doubling(row, fewer[-1] if fewer else None, study),
                node_hours=row.throughput and row.throughput.rate(node_seconds),
                verdict=verdict(efficiency, threshold),
            )
        )
    return Curve(
        family=rows[0].family,
        name=_name(rows[0]),
        evidence=rows[0].evidence or "measured",
        base=base,
        base_rate=_base_rate(rows[0], alone, base),
        threshold=threshold,
        sizes=tuple(sizes),
        records=tuple(
            record
            for row in rows
            if (own := study.good_launches_of(row.family, row.cell, row.evidence))
            for record in own.records
        ),
        predicted=tuple(
            point
            for point in predicted_points.FINDING.of(study)
            if (point.family, point.name) == (rows[0].family, backend_name(rows[0].cell))
        ),
    )


def _base_rate(row: ScalingRow, alone: Sequence[ScalingRow], base: Base) -> Interval | None:
    own = [
        candidate.throughput
        for candidate in alone
        if (base == "none" and candidate.cell.backend == "none")
        or (base == "backend" and backend_name(candidate.cell) == backend_name(row.cell))
    ]
    return own[0] if own else None


def per_doubling(row: ScalingRow, before: ScalingRow | None, study: Measured) -> Interval | None:
    """(T(p) / T(q)) ^ (1 / log2(p / q)) for `row` on p and `before` on q < p ranks; 2 is ideal.

    This is the factor on the throughput per doubling of the ranks from q to p. None if one rate is unknown.
    """
    if before is None:
        return None
    over, under = (study.good_launches_of(each.family, each.cell, each.evidence) for each in (row, before))
    if over is None or under is None:
        return None
    ratio = block_ratio(over.samples_per_second, under.samples_per_second)
    return power(ratio, 1 / math.log2(row.cell.num_ranks / before.cell.num_ranks))


def power(ratio: Interval, exponent: float) -> Interval:
    """A positive ratio raised to a positive exponent, which preserves the order of its limits."""
    low, high = (None if end is None else end**exponent for end in (ratio.low, ratio.high))
    return replace(ratio, center=ratio.center**exponent, low=low, high=high)


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeHoursRequest:
    """`runs` trainings on `samples` samples each, at the largest size that surely keeps the threshold."""

    size: Size
    samples: int
    runs: int
    hours: Interval  # per training, from the first step to the last

    @property
    def node_hours(self) -> Interval:
        """Node-hours per training, counting whole nodes."""
        return self.hours.times(self.size.num_nodes)

    @property
    def total(self) -> Interval:
        """Node-hours of all trainings."""
        return self.node_hours.times(self.runs)


def node_hours_request(curve: Curve, *, samples: int, runs: int) -> NodeHoursRequest | None:
    """The request for these trainings; None if no size surely keeps the threshold."""
    size = curve.keeping("surely")
    if size is None or size.row.throughput is None:
        return None
    hours = size.row.throughput.rate(samples / HOUR_SECONDS)
    return NodeHoursRequest(size=size, samples=samples, runs=runs, hours=hours)
