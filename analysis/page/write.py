"""The page as one file that needs nothing else: no network, no other file, no script but its own.

Everything from records is escaped, by jinja2 in HTML and by `payload.to_json` inside the data. The page forbids itself
all requests and all scripts and styles whose hash it does not state, so that even a mistake here runs nothing.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterable
from functools import cache
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup
from plotly.offline import get_plotlyjs

from dlscale.analysis.page.model import Block, Page
from dlscale.analysis.page.payload import to_json
from dlscale.analysis.page.plot_model import Plot
from dlscale.analysis.page.words import workload_title
from dlscale.models.files import write_atomically

HERE = Path(__file__).parent
TEMPLATE = "page.html.j2"
BEFORE, AFTER = ("filters.js", "tables.js"), ("plots.js", "losses.js", "start.js")
SHOWN_ROWS = 100  # of a table, until somebody asks for all
# Plotly appends an empty style element and fills it rule by rule, which no hash but that of nothing allows.
NOTHING = ""
# A library inside it appends styles of maps, unless there is an element of this name already.
STYLE_OF_MAPS = re.compile(r'if\(!document\.getElementById\("([0-9a-f]{64})"\)\)')


def write_page(page: Page, path: Path) -> None:
    """`path` holds the page, whole or not at all. Raises UsageError if it cannot be written."""
    write_atomically(path, render(page), mode=0o644)


def render(page: Page) -> str:
    """The same page gives the same text."""
    plotly = get_plotlyjs()
    # Filters and tables work while the browser still reads Plotly.
    style, scripts = _own("page.css"), [*map(_own, BEFORE), plotly, *map(_own, AFTER)]
    return (
        _environment()
        .get_template(TEMPLATE)
        .render(
            page=page,
            policy=_policy(style, scripts),
            # Ours, and not from records: what is inside these two elements is no HTML and must not be escaped.
            style=Markup(style),  # noqa: S704
            scripts=[Markup(script) for script in scripts],  # noqa: S704
            data=Markup(to_json(page)),  # noqa: S704
            placeholders=STYLE_OF_MAPS.findall(plotly),
            filters=_filters(page),
            shown_rows=SHOWN_ROWS,
        )
    )


def _environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(HERE),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["kind"] = lambda block: type(block).__name__
    environment.filters["grouped"] = _grouped
    return environment


def _grouped(blocks: Iterable[Block]) -> list[list[Block]]:
    """Plots that follow each other stand together; all else alone."""
    groups: list[list[Block]] = []
    for block in blocks:
        if isinstance(block, Plot) and groups and isinstance(groups[-1][0], Plot):
            groups[-1].append(block)
        else:
            groups.append([block])
    return groups


def _filters(page: Page) -> list[tuple[str, str, list[tuple[str, str]]]]:
    """(tag, its title, (value, label) of each choice), of what there is more than one to choose from."""
    tags = [series.tags for plot in page.first for series in getattr(plot, "series", ())]
    tags += [
        row.tags
        for section in page.sections
        for block in section.blocks
        for row in getattr(block, "rows", ())
    ]
    found = []
    for name, title in (("workload", "Workload"), ("framework", "Framework"), ("backend", "Backend")):
        values = list(
            dict.fromkeys(value for one in tags for value in getattr(one, name).split(" ") if value)
        )
        labels = [(value, workload_title(value) if name == "workload" else value) for value in values]
        if len(labels) > 1:
            found.append((name, title, labels))
    return found


def _policy(style: str, scripts: list[str]) -> str:
    allowed = {
        "default-src": ["'none'"],
        "script-src": [_digest(script) for script in scripts],
        "style-src-elem": [_digest(style), _digest(NOTHING)],
        # Plotly sets attributes of the images in heat maps; ours has none, and none comes from records.
        "style-src-attr": ["'unsafe-inline'"],
        "img-src": ["data:", "blob:"],
        "base-uri": ["'none'"],
        "form-action": ["'none'"],
    }
    return "; ".join(f"{name} {' '.join(values)}" for name, values in allowed.items())


def _digest(content: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()}'"


@cache
def _own(name: str) -> str:
    return (HERE / name).read_text(encoding="utf-8")
