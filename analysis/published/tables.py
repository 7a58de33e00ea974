"""Published figures as tables: the CSV behind each (also `--json`), and the overview in the docs.

`python -m dlscale.analysis.published.tables PAGE` rewrites the overview (docs/published-figures.md) from the
catalogue.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from dlscale.analysis.published.catalogue import Figure, Published, load_published
from dlscale.analysis.published.panels import (
    Mark,
    Plot,
    Point,
    SimulatedCurve,
    SimulatedPoint,
    StatementMark,
    plots_of,
)
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
    """Rows with the content of each panel, in its unit, then the statements without a mark."""
    rows = [row for plot in plots for row in _panel_rows(plot)]
    drawn = {mark.statement for plot in plots for mark in plot.statements}
    rows += [_in_words(statement) for statement in statements if statement not in drawn]
    return [dict.fromkeys(COLUMNS) | {"figure": figure.id, "x_unit": figure.x_unit} | row for row in rows]


def _panel_rows(plot: Plot) -> Iterator[dict[str, Any]]:
    common = {"panel": plot.panel.title or plot.panel.layout, "quantity": plot.panel.layout}
    common |= {"y_unit": plot.panel.y_unit, "evidence": "published"}
    for mark in plot.marks:
        yield common | _published(mark)
    for statement_mark in plot.statements:
        yield common | _statement(statement_mark)
    for curve in plot.simulated:
        for place in curve.points:
            yield common | _simulated(plot, curve, place)
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


def _statement(mark: StatementMark) -> dict[str, Any]:
    return {
        "series": mark.statement.series,
        "quantity": mark.quantity,
        "x": _place(mark.x_low, mark.x_high),
        "y": mark.low if mark.low == mark.high else None,
        "low": mark.low,
        "high": mark.high,
        "kind": mark.statement.kind,
        "source": mark.statement.source,
        "note": mark.statement.statement,
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


def _simulated(plot: Plot, curve: SimulatedCurve, place: SimulatedPoint) -> dict[str, Any]:
    return {
        "evidence": "simulated",
        "series": curve.label,
        "x": place.x,
        "y": plot.shown(place.center),
        "low": plot.shown(place.low),
        "high": plot.shown(place.high),
        "source": f"landmark {curve.landmark}",
        "note": "median and 5 to 95 % of replicates",
    }


def _in_words(statement: Statement) -> dict[str, Any]:
    return {
        "evidence": "published",
        "series": statement.series,
        "quantity": statement.quantity or "statement",
        "x": _place(statement.x_low, statement.x_high),
        "x_unit": statement.x_unit,
        "low": statement.low,
        "high": statement.high,
        "y_unit": statement.unit,
        "kind": statement.kind,
        "source": statement.source,
        "note": statement.statement,
    }


def _place(low: float | None, high: float | None) -> float | str | None:
    return low if low == high else f"{low:g} to {high:g}"


BEGIN, END = "<!-- figures -->", "<!-- end of figures -->"
PREDICTED = "predicted"
IN_FULL, IN_WORDS, NOT_DRAWN = "in full", "in words", "not drawn"


def what_is_public(published: Published, figure: Figure) -> str:
    """Whether all panels have a public curve, not all have one, or there are no panels."""
    plots = plots_of(published, figure, [])
    if not plots:
        return NOT_DRAWN
    return IN_FULL if all(plot.in_full for plot in plots) else IN_WORDS


def overview_table(published: Published) -> str:
    """A row per figure, in the catalogue's order."""
    rows = [
        f"| `{figure.id}` | {figure.title} | {what_is_public(published, figure)} | {figure.public} | "
        f"{what_is_missing(figure)} |"
        for figure in published.figures.values()
    ]
    columns = (
        "figure",
        "of",
        "public",
        "what is public, and what is not",
        "predicted, or what is missing for it",
    )
    return "\n".join([f"| {' | '.join(columns)} |", f"|{' --- |' * len(columns)}", *rows])


def what_is_missing(figure: Figure) -> str:
    """What a prediction of the figure lacks; where a landmark predicts it, that."""
    return figure.missing or (PREDICTED if figure.panels else "")


def written_into(page: str, published: Published) -> str:
    """The page with the table between its markers, replacing the previous one."""
    before, rest = page.split(BEGIN)
    _, after = rest.split(END)
    return f"{before}{BEGIN}\n{overview_table(published)}\n{END}{after}"


def main(arguments: Sequence[str]) -> None:
    """Write the table into the page."""
    (name,) = arguments
    path = Path(name)
    path.write_text(written_into(path.read_text(encoding="utf-8"), load_published()), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
