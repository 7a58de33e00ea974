"""Our own series beside a published figure: the cells that are what it asks for, in its quantity and on its x axis."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from dlscale.analysis.published.catalogue import Figure, Own, Panel
from dlscale.analysis.scaling import Row, ScalingTable
from dlscale.analysis.statistics import LEVEL, Interval
from dlscale.analysis.words import backend_name
from dlscale.benchmarks.record import Cell

# Where a published ratio begins at more than one device, ours is formed of two medians: no blocks, no interval.
RATIO_OF_MEDIANS = "ratio of medians"


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """A cell's value in a panel. `value` is in the quantity's base unit."""

    row: Row
    study: str
    x: float
    value: Interval
    on: str  # the system, where it stands in for the publication's; else empty

    @property
    def name(self) -> str:
        """In the legend."""
        cell = self.row.cell
        where = f" on {self.on}" if self.on else ""
        return f"{backend_name(cell)}, {cell.framework}{where}"


def points(
    figure: Figure, panel: Panel, tables: Sequence[ScalingTable], *, stand_in: str | None = None
) -> list[Point]:
    """Our points in a panel, in the tables' order; `stand_in` is a system that takes the place of the publication's."""
    if figure.own is None:
        return []
    wanted = figure.own.narrowed(panel.own)
    return list(matching(figure, wanted, panel.layout, tables, stand_in=stand_in))


def matching(
    figure: Figure, wanted: Own, quantity: str, tables: Sequence[ScalingTable], *, stand_in: str | None = None
) -> Iterator[Point]:
    """Every cell that is what is wanted, trains, and has the quantity."""
    on = stand_in if stand_in and stand_in != wanted.system else ""
    if stand_in:
        wanted = wanted.narrowed(Own(system=stand_in))
    for table in tables:
        for row in table.rows:
            if not (_trains(row) and wanted.accepts(row.cell, system=row.family.system)):
                continue
            x = x_of(row.cell, figure.x_unit)
            value = value_of(row, quantity, figure, table) if x is not None else None
            if x is not None and value is not None:
                study = ", ".join(table.provenance.studies)
                yield Point(row=row, study=study, x=x, value=value, on=on)


def _trains(row: Row) -> bool:
    """Real training; backend `none` only on 1 rank, for on more it is no distributed training."""
    return row.cell.control == "train" and (row.cell.backend != "none" or row.cell.num_ranks == 1)


def x_of(cell: Cell, unit: str) -> float | None:
    """Where a cell stands on an axis in that unit; None where there is no such thing in a study of scaling."""
    if unit in ("GPUs", "devices", "processes"):
        return cell.num_ranks
    return {"nodes": cell.num_nodes, "images": cell.global_batch}.get(unit)


def value_of(row: Row, quantity: str, figure: Figure, table: ScalingTable) -> Interval | None:
    """The cell's value of a published quantity; None where it has none."""
    rate = row.throughput
    if rate is None:
        return None
    amounts = {
        "seconds_per_step": row.cell.global_batch,
        "seconds_per_sample": row.cell.num_ranks,
        "seconds_per_epoch": figure.images_per_epoch,
    }
    if quantity == "throughput":
        return rate
    if quantity in amounts:
        amount = amounts[quantity]
        return None if amount is None else rate.rate(amount)
    if quantity == "relative_throughput":
        return _relative(row, table, figure.relative_to)
    if quantity not in ("efficiency", "speed_up"):
        return None
    kept = _efficiency(row, table, figure)
    if kept is None or quantity == "efficiency":
        return kept
    return kept.times((x_of(row.cell, figure.x_unit) or 0) / figure.base_x)


def _efficiency(row: Row, table: ScalingTable, figure: Figure) -> Interval | None:
    """Against 1 rank without a communication layer, or against our own cell where the publication's ratios begin."""
    if figure.base_x == 1:
        return row.efficiency_none
    base = next((one for one in _like(row, table) if x_of(one.cell, figure.x_unit) == figure.base_x), None)
    x = x_of(row.cell, figure.x_unit)
    return _ratio(row, base, figure.base_x / x) if base and x else None


def _relative(row: Row, table: ScalingTable, backend: str | None) -> Interval | None:
    """Our rate over that of another backend of ours on as many ranks."""
    others = [one for one in table.of(row.family) if one.cell.backend == backend and _trains(one)]
    same = [
        one for one in others if one.cell.num_ranks == row.cell.num_ranks and one.evidence == row.evidence
    ]
    return _ratio(row, same[0], 1.0) if same and row.cell.backend != backend else None


def _like(row: Row, table: ScalingTable) -> Iterator[Row]:
    """The cells on the same curve."""
    for one in table.of(row.family):
        if backend_name(one.cell) == backend_name(row.cell) and one.evidence == row.evidence and _trains(one):
            yield one


def _ratio(row: Row, base: Row, scale: float) -> Interval | None:
    if row.throughput is None or base.throughput is None:
        return None
    return Interval(
        center=row.throughput.center / base.throughput.center * scale,
        low=None,
        high=None,
        level=LEVEL,
        method=RATIO_OF_MEDIANS,
        n=min(row.throughput.n, base.throughput.n),
    )
