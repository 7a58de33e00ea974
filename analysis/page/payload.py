"""What the page's scripts need: plots, losses, heat maps, and the rows that a table downloads; plain JSON."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from typing import Any

from dlscale.analysis.page.model import Block, Page, Table
from dlscale.analysis.page.plot_model import Axis, Guide, HeatMap, Look, Loss, Losses, Plot, Series, Tags
from dlscale.analysis.page.words import kept, milliseconds, share

# Plotly's names of matplotlib's markers.
SYMBOLS = {
    "o": "circle",
    "s": "square",
    "^": "triangle-up",
    "v": "triangle-down",
    "D": "diamond",
    "P": "cross",
    "X": "x",
    "h": "hexagon",
}
# Of a marker by kind of evidence; figures fill halves, which Plotly has not.
FILLINGS = {"measured": "", "emulated": "-open", "simulated": "-open-dot", "published": "-dot"}
LINE_PIXELS = 2
DIGITS = 6  # of what is drawn; tables keep all


def to_json(page: Page) -> str:
    """Safe inside a script element: no `<` is left, so nothing in it ends the element or begins a comment."""
    text = json.dumps(payload(page), allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def payload(page: Page) -> dict[str, Any]:
    """`{"looks": ..., "plots": ..., "losses": ..., "heatMaps": ..., "tables": ...}`, each by name."""
    blocks = list(blocks_of(page))
    return {
        "looks": {name: _look(look) for name, look in page.looks.items()},
        "plots": {one.name: _plot(one) for one in blocks if isinstance(one, Plot)},
        "losses": {
            f"{one.name}-{index}": _loss(loss, among=one.losses)
            for one in blocks
            if isinstance(one, Losses)
            for index, loss in enumerate(one.losses)
        },
        "heatMaps": {one.name: _heat_map(one) for one in blocks if isinstance(one, HeatMap)},
        "tables": {one.name: _table(one) for one in blocks if isinstance(one, Table)},
    }


def blocks_of(page: Page) -> Iterator[Block]:
    """All of them, in the order of the page."""
    yield from page.first
    for section in page.sections:
        yield from section.blocks


def _look(look: Look) -> dict[str, str]:
    dashes = ",".join(f"{LINE_PIXELS * dash:g}px" for dash in look.dashes)
    return {"color": look.color, "symbol": SYMBOLS.get(look.marker, "circle"), "dash": dashes or "solid"}


def _plot(plot: Plot) -> dict[str, Any]:
    scale = 100.0 if plot.y.kind == "percent" else 1.0
    return {
        "x": _axis(plot.x, 1.0),
        "y": _axis(plot.y, scale),
        "series": [_series(series, scale) for series in plot.series],
        "guides": [_guide(guide, scale) for guide in plot.guides],
    }


def _axis(axis: Axis, scale: float) -> dict[str, Any]:
    return {
        "title": axis.title,
        "kind": "linear" if axis.kind == "percent" else axis.kind,
        "places": [place for place, _ in axis.ticks],
        "labels": [label for _, label in axis.ticks],
        "low": _drawn(axis.low, scale),
        "high": _drawn(axis.high, scale),
    }


def _series(series: Series, scale: float) -> dict[str, Any]:
    known = any(point.low is not None for point in series.points)
    return {
        "name": series.name,
        "look": series.look,
        "filling": FILLINGS.get(series.evidence, ""),
        "joined": series.joined,
        "tags": _tags(series.tags),
        "x": [round(point.x, 6) for point in series.points],
        "y": [_drawn(point.y, scale) for point in series.points],
        "low": [_drawn(point.low, scale) for point in series.points] if known else [],
        "high": [_drawn(point.high, scale) for point in series.points] if known else [],
        "text": ["\n".join(point.lines) for point in series.points],
        "flagged": [index for index, point in enumerate(series.points) if point.flagged],
    }


def _guide(guide: Guide, scale: float) -> dict[str, Any]:
    return {
        "label": guide.label,
        "y": _drawn(guide.y, scale),
        "xs": [x for x, _ in guide.points],
        "ys": [_drawn(y, scale) for _, y in guide.points],
        "bound": guide.bound,
    }


def _loss(loss: Loss, *, among: Sequence[Loss]) -> dict[str, Any]:
    """With the scale that all losses share, in percent."""
    ends = [end for one in among for end in _ends(one)]
    parts = [
        {
            "label": part.label,
            "center": _drawn(part.share.center, 100),
            "low": _drawn(part.share.low, 100),
            "high": _drawn(part.share.high, 100),
            "value": share(part.share),
            "text": "\n".join(
                [
                    part.label,
                    f"{share(part.share)} of the ideal speed",
                    *([f"{milliseconds(part.milliseconds)} ms per step"] if part.milliseconds else []),
                    f"{part.share.method}, n = {part.share.n}",
                ]
            ),
            "largest": part.label in loss.largest,
        }
        for part in loss.parts
    ]
    total = loss.kept.complement()
    return {
        "parts": parts,
        "total": {
            "center": _drawn(total.center, 100),
            "value": share(total),
            "text": f"in total\n{share(total)} lost\n{kept(loss.kept)} kept\n{total.method}, n = {total.n}",
        },
        "from": _drawn(min(0.0, *ends), 100),
        "to": _drawn(max(0.01, *ends), 100),
    }


def _ends(loss: Loss) -> Iterator[float]:
    """Where the waterfall's bars and whiskers end, as shares."""
    begin = 0.0
    for part in loss.parts:
        one = part.share
        yield from (begin + end for end in (one.center, one.low, one.high) if end is not None)
        begin += one.center
    yield 1 - loss.kept.center


def _heat_map(one: HeatMap) -> dict[str, Any]:
    return {
        "values": [[_drawn(value) for value in row] for row in one.values],
        "hosts": list(one.hosts),
        "ranks": list(one.ranks),
        "late": list(one.late),
    }


def _table(table: Table) -> dict[str, Any]:
    columns = list(dict.fromkeys(name for row in table.rows for name in row.data))
    return {"columns": columns, "rows": [[row.data.get(name) for name in columns] for row in table.rows]}


def _tags(tags: Tags) -> list[str]:
    return [tags.workload, tags.framework, tags.backend]


def _drawn(value: float | None, scale: float = 1.0) -> float | None:
    if value is None or not math.isfinite(value):
        return None
    return float(f"{scale * value:.{DIGITS}g}")
