"""Everything about a published figure as flat rows: the CSV behind it, and ready for `--json`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from dlscale.analysis.published.catalogue import Figure
from dlscale.analysis.published.marks import Mark, Plot, Said
from dlscale.analysis.published.ours import Point
from dlscale.analysis.published.values import Statement

COLUMNS = (
    *(
        "figure",
        "panel",
        "evidence",
        "series",
        "system",
        "x",
        "x_unit",
        "quantity",
        "y",
        "low",
        "high",
        "y_unit",
    ),
    *("kind", "source", "note"),
)


def rows_of(figure: Figure, plots: Sequence[Plot], statements: Sequence[Statement]) -> list[dict[str, Any]]:
    """What each panel shows, in its unit, and last the statements that are words alone."""
    rows = [row for plot in plots for row in _panel_rows(plot)]
    drawn = {one.statement for plot in plots for one in plot.said}
    rows += [_in_words(one) for one in statements if one not in drawn]
    return [dict.fromkeys(COLUMNS) | {"figure": figure.id, "x_unit": figure.x_unit} | row for row in rows]


def _panel_rows(plot: Plot) -> Iterator[dict[str, Any]]:
    common = {"panel": plot.panel.title or plot.panel.layout, "quantity": plot.panel.layout}
    common |= {"y_unit": plot.panel.y_unit, "evidence": "published"}
    for mark in plot.marks:
        yield common | _published(mark)
    for one in plot.said:
        yield common | _statement(one)
    for point in plot.ours:
        yield common | _own(plot, point)


def _published(mark: Mark) -> dict[str, Any]:
    half, value = mark.half_width, mark.value
    return {
        "series": value.series,
        "system": value.system,
        "x": mark.x,
        "y": mark.y,
        "low": None if half is None else mark.y - half,
        "high": None if half is None else mark.y + half,
        "kind": value.kind,
        "source": value.source,
        "note": value.note,
    }


def _statement(one: Said) -> dict[str, Any]:
    return {
        "series": one.statement.series,
        "quantity": one.quantity,
        "x": _place(one.x_low, one.x_high),
        "y": one.low if one.low == one.high else None,
        "low": one.low,
        "high": one.high,
        "kind": one.statement.kind,
        "source": one.statement.source,
        "note": one.statement.statement,
    }


def _own(plot: Plot, point: Point) -> dict[str, Any]:
    value = point.value
    return {
        "evidence": point.row.evidence,
        "series": point.name,
        "system": point.row.family.system,
        "x": point.x,
        "y": plot.shown(value.center),
        "low": None if value.low is None else plot.shown(value.low),
        "high": None if value.high is None else plot.shown(value.high),
        "source": f"study {point.study}",
        "note": f"{value.method}, n = {value.n}",
    }


def _in_words(one: Statement) -> dict[str, Any]:
    return {
        "evidence": "published",
        "series": one.series,
        "quantity": one.quantity or "statement",
        "x": _place(one.x_low, one.x_high),
        "x_unit": one.x_unit,
        "low": one.low,
        "high": one.high,
        "y_unit": one.unit,
        "kind": one.kind,
        "source": one.source,
        "note": one.statement,
    }


def _place(low: float | None, high: float | None) -> float | str | None:
    return low if low == high else f"{low:g} to {high:g}"
