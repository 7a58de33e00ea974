"""Rows of a scaling table as series over ranks: the points, looks and joining lines that the figures have, too."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from dlscale.analysis.figures.curves import Curve, Value, curves_of, dodge, missing_from
from dlscale.analysis.figures.style import looks_of
from dlscale.analysis.page.plot_model import Axis, Look, Point, Series, Tags
from dlscale.analysis.page.words import how, listed, plural
from dlscale.analysis.scaling import Row
from dlscale.analysis.statistics import Interval
from dlscale.analysis.words import backend_name
from dlscale.benchmarks.record import Cell

Say = Callable[[Interval], str]


def tags_of(cell: Cell) -> Tags:
    """What the filters know a cell by."""
    return Tags(workload=cell.workload, framework=cell.framework, backend=cell.backend)


def looks(rows: Iterable[Row]) -> dict[str, Look]:
    """A look for each name of a curve on the page; a backend has that of the figures."""
    curves = curves_of(rows, lambda row: row.throughput or row.efficiency_none or row.efficiency_backend)
    return {
        name: Look(color=look.color, marker=look.marker, dashes=look.dashes[1])
        for name, look in looks_of(curves).items()
    }


def series_of(curves: Sequence[Curve], value: Value, *, say: Say, unit: str) -> tuple[Series, ...]:
    """`say` writes a value; `unit` is what its interval counts: launches or blocks."""
    names = list(dict.fromkeys(curve.name for curve in curves))
    found = []
    for curve in curves:
        factor = dodge(names.index(curve.name), len(names))
        points = [
            Point(
                x=row.cell.num_ranks * factor,
                y=one.center,
                low=one.low,
                high=one.high,
                lines=(*_where(curve, row), say(one), how(one, unit), *_missing(row)),
            )
            for row in curve.rows
            if (one := value(row))
        ]
        found.append(
            Series(
                name=curve.name,
                look=curve.name,
                evidence=curve.evidence,
                points=tuple(points),
                tags=tags_of(curve.rows[0].cell),
                joined=curve.joined,
            )
        )
    return tuple(found)


def says(what: str, rows: Iterable[Row], value: Value, say: Say) -> str:
    """The values on the most ranks, the best one first, in a sentence."""
    trained = [(row.cell, one) for row in rows if row.cell.control == "train" and (one := value(row))]
    most = max((cell.num_ranks for cell, _ in trained), default=0)
    last = [(cell, one) for cell, one in trained if cell.num_ranks == most]
    ordered = sorted(last, key=lambda item: -item[1].center)
    told = listed([f"{backend_name(cell)} {say(one)}" for cell, one in ordered])
    return f"{what} on {plural(most, 'rank')}: {told}."


def rank_axis(rows: Sequence[Row]) -> Axis:
    """Octaves with plain numbers; where nodes differ, the nodes of each number of ranks below it."""
    nodes: dict[int, set[int]] = {}
    for row in rows:
        nodes.setdefault(row.cell.num_ranks, set()).add(row.cell.num_nodes)
    ranks = sorted(nodes)
    kinds = set().union(*nodes.values())
    if len(kinds) == 1:
        title = f"ranks, on {plural(min(kinds), 'node')}"
        labels = {count: f"{count}" for count in ranks}
    else:
        title = "ranks, below them nodes"
        labels = {count: f"{count}\n{'/'.join(map(str, sorted(nodes[count])))}" for count in ranks}
    return Axis(
        title=title,
        kind="log",
        ticks=tuple((float(count), labels[count]) for count in ranks),
        low=ranks[0] * 2**-0.45,
        high=ranks[-1] * 2**0.45,
    )


def without_point(rows: Sequence[Row], curves: Sequence[Curve]) -> tuple[str, ...]:
    """A note about trained cells that have no point in the plot; none if all have."""
    missing = missing_from(rows, curves)
    return (f"No point: {', '.join(missing)}.",) if missing else ()


def _where(curve: Curve, row: Row) -> tuple[str]:
    kind = "" if curve.evidence == "measured" else f", {curve.evidence}"
    return (
        f"{curve.name}, {plural(row.cell.num_ranks, 'rank')} on {plural(row.cell.num_nodes, 'node')}{kind}",
    )


def _missing(row: Row) -> tuple[str, ...]:
    if row.num_launches == row.num_planned:
        return ()
    return (f"{row.num_launches} of {row.num_planned} launches gave a number",)
