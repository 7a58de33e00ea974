"""How tests read what the analysis says of a study: data, rows, blocks of its page, text of a terminal, drawings."""

from __future__ import annotations

import io
from typing import Any, TypeVar

from matplotlib.figure import Figure
from rich.console import Console, RenderableType

from dlscale.analysis.finding import collect
from dlscale.analysis.findings import load_all, scaling
from dlscale.analysis.findings.scaling import ScalingRow
from dlscale.analysis.measured import Measured
from dlscale.analysis.render.data import study_json
from dlscale.analysis.render.html.content import Page
from dlscale.analysis.render.html.page import page_of
from dlscale.analysis.render.screen import render_full, render_screen

Block = TypeVar("Block")


def data_of(study: Measured) -> dict[str, Any]:
    """What `dlscale report --json` has."""
    return study_json(collect(load_all(), study))


def row_of(study: Measured, **fields: object) -> ScalingRow:
    """The one row whose cell has these fields."""
    (row,) = (
        row
        for row in scaling.FINDING.of(study)
        if all(getattr(row.cell, name) == value for name, value in fields.items())
    )
    return row


def page_for(study: Measured) -> Page:
    """The page of `dlscale report`."""
    return page_of(study, collect(load_all(), study))


def blocks_of(page: Page, kind: type[Block]) -> list[Block]:
    """All blocks of that kind, in the order of the page."""
    return [block for section in page.sections for block in section.blocks if isinstance(block, kind)]


def printed(*renderables: RenderableType, width: int = 100) -> str:
    """What a terminal of that width shows."""
    console = Console(file=io.StringIO(), width=width)
    console.print(*renderables, sep="\n")
    return console.file.getvalue()  # type: ignore[attr-defined]


def table_text(study: Measured, width: int = 100) -> str:
    """What the terminal shows of a study with --full, every run of white space as one blank."""
    return " ".join(printed(render_full(study, collect(load_all(), study)), width=width).split())


def screen_text(study: Measured) -> str:
    """What the terminal shows of a study without --full, every run of white space as one blank."""
    return " ".join(printed(render_screen(study, collect(load_all(), study))).split())


def assert_inside(figure: Figure, *more: Any, name: str = "") -> None:
    """Nothing of a figure that was drawn is cut off at its edges: texts, legends, panels, and `more` of it."""
    for part in (*figure.texts, *figure.legends, *figure.axes, *more):
        box = part.get_window_extent()
        assert box.x0 >= -0.5, (name, part)
        assert box.x1 <= figure.bbox.x1 + 0.5, (name, part)
        assert box.y0 >= 0, (name, part)
        assert box.y1 <= figure.bbox.y1, (name, part)
