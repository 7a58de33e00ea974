"""Our cells that match a published figure, as points in its quantity and on its x axis."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from dlscale.analysis.findings import scaling
from dlscale.analysis.findings.scaling import ScalingRow, rows_of
from dlscale.analysis.measured import Measured
from dlscale.analysis.published.catalogue import Figure, Own
from dlscale.analysis.statistics import Interval, block_ratio
from dlscale.analysis.text import backend_name
from dlscale.benchmarks.records.cell import Cell


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnPoint:
    """The value of one of our cells in a published quantity, in its base unit."""

    row: ScalingRow
    study: str
    x: float
    value: Interval
    on: str  # the system, if it replaces the publication's; else empty

    @property
    def name(self) -> str:
        """The point's name in the legend."""
        cell = self.row.cell
        where = f" on {self.on}" if self.on else ""
        return f"{backend_name(cell)}, {cell.framework}{where}"


def own_points(
    figure: Figure,
    wanted: Own,
    quantity: str,
    studies: Sequence[Measured],
    *,
    stand_in: str | None = None,
) -> Iterator[OwnPoint]:
    """A point for every training cell that meets the requirements and has the quantity, in the tables' order.

    `stand_in` is a system of ours that replaces the publication's.
    """
    on = stand_in if stand_in and stand_in != wanted.system else ""
    if stand_in:
        wanted = wanted.narrowed(Own(system=stand_in))
    for study in studies:
        for row in scaling.FINDING.of(study):
            if not (_trains(row) and wanted.accepts(row.cell, system=row.family.system)):
                continue
            x = x_of(row.cell, figure.x_unit)
            value = value_of(row, quantity, figure, study) if x is not None else None
            if x is not None and value is not None:
                name = ", ".join(study.provenance.studies)
                yield OwnPoint(row=row, study=name, x=x, value=value, on=on)


def _trains(row: ScalingRow) -> bool:
    """Whether a row is a real training; backend `none` on several ranks is no distributed training."""
    return row.cell.control == "train" and (row.cell.backend != "none" or row.cell.num_ranks == 1)


def x_of(cell: Cell, unit: str) -> float | None:
    """The x of a cell on an axis in that unit; None if scaling studies have no such quantity."""
    if unit in ("GPUs", "devices", "processes"):
        return cell.num_ranks
    return {"nodes": cell.num_nodes, "images": cell.global_batch}.get(unit)


def value_of(row: ScalingRow, quantity: str, figure: Figure, study: Measured) -> Interval | None:
    """The cell's value of a published quantity; None if unknown."""
    rate = row.throughput
    if rate is None or quantity == "throughput":
        return rate
    amounts = {
        "seconds_per_step": row.cell.global_batch,
        "seconds_per_sample": row.cell.num_ranks,
        "seconds_per_epoch": figure.images_per_epoch,
    }
    if amount := amounts.get(quantity):
        return rate.rate(amount)
    if quantity == "relative_throughput":
        return _relative(row, study, figure.relative_to)
    if quantity not in ("efficiency", "speed_up"):
        return None
    kept = _efficiency(row, study, figure)
    if kept is None or quantity == "efficiency":
        return kept
    return kept.times((x_of(row.cell, figure.x_unit) or 0) / figure.base_x)


def _efficiency(row: ScalingRow, study: Measured, figure: Figure) -> Interval | None:
    """Efficiency against 1 rank without a communication layer, or against our cell at the publication's base x."""
    if figure.base_x == 1:
        return row.efficiency_none
    x = x_of(row.cell, figure.x_unit)
    for base in rows_of(scaling.FINDING.of(study), row.family):
        like = backend_name(base.cell) == backend_name(row.cell) and base.evidence == row.evidence
        if x and like and _trains(base) and x_of(base.cell, figure.x_unit) == figure.base_x:
            kept = ratio_of(study, row, base)
            return kept and kept.times(figure.base_x / x)
    return None


def _relative(row: ScalingRow, study: Measured, backend: str | None) -> Interval | None:
    """The rate relative to that of another backend on the same number of ranks."""
    if row.cell.backend == backend:
        return None
    for base in rows_of(scaling.FINDING.of(study), row.family):
        same = base.cell.num_ranks == row.cell.num_ranks and base.evidence == row.evidence
        if base.cell.backend == backend and same and _trains(base):
            return ratio_of(study, row, base)
    return None


def ratio_of(study: Measured, row: ScalingRow, base: ScalingRow) -> Interval | None:
    """The rate of a cell over that of another, paired where they ran in the same blocks; None without a number."""
    pair = [study.good_launches_of(one.family, one.cell, one.evidence) for one in (row, base)]
    over, under = (launches and launches.samples_per_second for launches in pair)
    return block_ratio(over, under) if over and under else None
