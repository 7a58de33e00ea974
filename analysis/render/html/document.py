"""The page as one self-contained file: no network, no other file, no external script.

Everything from records is escaped, by jinja2 in HTML and by `to_json` inside the data that the page's scripts
read. The content security policy forbids all requests, and all scripts and styles except by hash, so that even a
mistake here runs no script.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import math
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup
from plotly.offline import get_plotlyjs

from dlscale.analysis.declare import Table, Tags
from dlscale.analysis.plots import Axis, Block, Guide, HeatMap, Loss, Losses, Plot, Series
from dlscale.analysis.render.html.content import Page
from dlscale.analysis.render.theme import Look
from dlscale.analysis.text import efficiency_text, rate, share_text, workload_title
from dlscale.base.files import write_atomically

HERE = Path(__file__).parent
TEMPLATE = "page.html.j2"
STYLE = "page.css"
SCRIPTS = ("filters.js", "tables.js", "unpack.js", "plots.js", "losses.js", "start.js")
SHOWN_ROWS = 100  # of a table, until all are requested
# Plotly appends an empty style element and fills it rule by rule, which no hash but that of nothing allows.
NOTHING = ""
# A library inside it appends styles of maps, unless there is an element of this name already.
STYLE_OF_MAPS = re.compile(r'if\(!document\.getElementById\("([0-9a-f]{64})"\)\)')


def write_page(page: Page, path: Path) -> None:
    """Write the page to `path` atomically. Raises UsageError if it cannot be written."""
    write_atomically(path, render(page), mode=0o644)


def render(page: Page) -> str:
    """The page as HTML; equal pages give equal text."""
    plotly = get_plotlyjs()
    style, scripts = _own(STYLE), list(map(_own, SCRIPTS))
    return (
        _environment()
        .get_template(TEMPLATE)
        .render(
            page=page,
            policy=_policy(style, [*scripts, plotly]),
            plotly=packed(plotly),
            license=plotly[: plotly.index("*/") + 2],
            # Our own content, not from records: these two elements contain no HTML and must not be escaped.
            style=Markup(style),  # noqa: S704
            scripts=[Markup(script) for script in scripts],  # noqa: S704
            data=Markup(to_json(page)),  # noqa: S704
            placeholders=STYLE_OF_MAPS.findall(plotly),
            filters=_filters(page),
            shown_rows=SHOWN_ROWS,
        )
    )


def _environment() -> Environment:
    """Our templates, with everything escaped."""
    made = Environment(
        loader=FileSystemLoader(HERE),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters["kind"] = lambda block: type(block).__name__
    made.filters["grouped"] = _grouped
    return made


def _grouped(blocks: Iterable[Block]) -> list[list[Block]]:
    """Blocks in groups: consecutive plots together, all others alone."""
    groups: list[list[Block]] = []
    for block in blocks:
        if isinstance(block, Plot) and groups and isinstance(groups[-1][0], Plot):
            groups[-1].append(block)
        else:
            groups.append([block])
    return groups


def _filters(page: Page) -> list[tuple[str, str, list[tuple[str, str]]]]:
    """(tag, title, (value, label) of each choice) of every filter with more than one choice."""
    tags = [
        item.tags
        for section in page.sections
        for block in section.blocks
        for item in (*getattr(block, "series", ()), *getattr(block, "rows", ()))
    ]
    filters = []
    for name, title in (("workload", "Workload"), ("framework", "Framework"), ("backend", "Backend")):
        values = list(
            dict.fromkeys(value for tag_set in tags for value in getattr(tag_set, name).split(" ") if value)
        )
        labels = [(value, workload_title(value) if name == "workload" else value) for value in values]
        if len(labels) > 1:
            filters.append((name, title, labels))
    return filters


def _policy(style: str, scripts: list[str]) -> str:
    """The content security policy of a page with exactly this style and these scripts."""
    allowed = {
        "default-src": ["'none'"],
        "script-src": [_digest(script) for script in scripts],
        "style-src-elem": [_digest(style), _digest(NOTHING)],
        # Plotly sets style attributes on the images of heat maps; our HTML has none, and records cannot add any.
        "style-src-attr": ["'unsafe-inline'"],
        "img-src": ["data:", "blob:"],
        "base-uri": ["'none'"],
        "form-action": ["'none'"],
    }
    return "; ".join(f"{name} {' '.join(values)}" for name, values in allowed.items())


def _digest(content: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()}'"


# All that is printed, but `<`, which could end the element.
ALPHABET = "".join(map(chr, range(ord(" "), ord("~") + 1))).replace("<", "")
BYTES, CHARACTERS = 9, 11  # of a group: 256^9 is less than 94^11


@dataclass(frozen=True, slots=True, kw_only=True)
class Packed:
    """A script as text: gzip in base 94, with the alphabet and the number of bytes."""

    text: str
    alphabet: str
    num_bytes: int


@cache
def packed(script: str) -> Packed:
    """A script for `unpack.js`."""
    content = gzip.compress(script.encode(), 9, mtime=0)
    padded = content + bytes(-len(content) % BYTES)
    groups = np.frombuffer(padded, dtype=np.uint8).reshape(-1, BYTES).astype(np.int64)
    first, last = (part @ 256 ** np.arange(part.shape[1])[::-1] for part in np.split(groups, [5], axis=1))
    high, low = first >> 4, ((first & 15) << 32) + last  # 36 bits each
    base, digits = len(ALPHABET), []
    for _ in range(CHARACTERS):  # long division, the last digit first
        high, rest = np.divmod(high, base)
        low, digit = np.divmod((rest << 36) + low, base)
        digits.append(digit)
    letters = np.frombuffer(ALPHABET.encode(), dtype=np.uint8)
    text = letters[np.stack(digits[::-1], axis=1)].tobytes().decode()
    return Packed(text=text, alphabet=ALPHABET, num_bytes=len(content))


@cache
def _own(name: str) -> str:
    """The text of a file beside this one."""
    return (HERE / name).read_text(encoding="utf-8")


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
# Suffix of a marker by kind of evidence; figures fill halves, which Plotly cannot.
FILLINGS = {"measured": "", "emulated": "-open", "simulated": "-open-dot", "published": "-dot"}
LINE_PIXELS = 2
DIGITS = 6  # of drawn numbers; tables keep all


def to_json(page: Page) -> str:
    """The page's data as JSON that is safe inside a script element: without `<` it can neither end it nor comment."""
    text = json.dumps(payload(page), allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def payload(page: Page) -> dict[str, Any]:
    """`{"looks": ..., "plots": ..., "losses": ..., "heatMaps": ..., "tables": ...}`, each by name."""
    blocks = list(blocks_of(page))
    return {
        "looks": {name: _look(look) for name, look in page.looks.items()},
        "plots": {block.name: _plot(block) for block in blocks if isinstance(block, Plot)},
        "losses": {
            f"{block.name}-{index}": _loss(loss, among=block.losses)
            for block in blocks
            if isinstance(block, Losses)
            for index, loss in enumerate(block.losses)
        },
        "heatMaps": {block.name: _heat_map(block) for block in blocks if isinstance(block, HeatMap)},
        "tables": {block.name: _table(block) for block in blocks if isinstance(block, Table)},
    }


def blocks_of(page: Page) -> Iterator[Block]:
    """All blocks, in the order of the page."""
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
        **({"band": True} if series.band else {}),
    }


def _guide(guide: Guide, scale: float) -> dict[str, Any]:
    return {
        "label": guide.label,
        "y": _drawn(guide.y, scale),
        "xs": [x for x, _ in guide.points],
        "ys": [_drawn(y, scale) for _, y in guide.points],
    }


def _loss(loss: Loss, *, among: Sequence[Loss]) -> dict[str, Any]:
    """A loss as data, in percent; `among` sets the scale that all losses share."""
    ends = [end for member in among for end in _ends(member)]
    parts = [
        {
            "label": part.label,
            "center": _drawn(part.share.center, 100),
            "low": _drawn(part.share.low, 100),
            "high": _drawn(part.share.high, 100),
            "value": part.share_text,
            "text": "\n".join(
                [
                    part.label,
                    f"{part.share_text} of the ideal speed",
                    *([f"{rate(part.milliseconds)} ms per step"] if part.milliseconds else []),
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
            "value": share_text(total),
            "text": f"in total\n{share_text(total)} lost\n{efficiency_text(loss.kept)} of the ideal speed\n"
            f"{total.method}, n = {total.n}",
        },
        "from": _drawn(min(0.0, *ends), 100),
        "to": _drawn(max(0.01, *ends), 100),
    }


def _ends(loss: Loss) -> Iterator[float]:
    """Where the waterfall's bars and whiskers end, as shares."""
    begin = 0.0
    for part in loss.parts:
        share = part.share
        yield from (begin + end for end in (share.center, share.low, share.high) if end is not None)
        begin += share.center
    yield 1 - loss.kept.center


def _heat_map(heat_map: HeatMap) -> dict[str, Any]:
    return {
        "values": [[_drawn(value) for value in row] for row in heat_map.values],
        "hosts": list(heat_map.hosts),
        "ranks": list(heat_map.ranks),
        "late": list(heat_map.late),
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
