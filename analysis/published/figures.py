"""Published figures in their own layout: what is public of them, and our series beside it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Sequence
from pathlib import Path
from textwrap import wrap

from matplotlib.axes import Axes
from matplotlib.figure import Figure as Drawing
from matplotlib.lines import Line2D

from dlscale.analysis.figures.curves import Curve
from dlscale.analysis.figures.draw import evidence_handles
from dlscale.analysis.figures.page import page
from dlscale.analysis.figures.save import save_drawing
from dlscale.analysis.figures.style import (
    DOUBLE_COLUMN_INCHES,
    IDEAL,
    SINGLE_COLUMN_INCHES,
    Look,
    drawing,
    line_style,
    marker_style,
)
from dlscale.analysis.provenance import Provenance
from dlscale.analysis.published import panel
from dlscale.analysis.published.axes import ideal_lines, x_axis, y_axis
from dlscale.analysis.published.catalogue import Figure
from dlscale.analysis.published.load import Published
from dlscale.analysis.published.marks import Plot, plots_of
from dlscale.analysis.published.rows import rows_of
from dlscale.analysis.published.said import PUBLISHED, is_mark
from dlscale.analysis.published.small_print import small_print
from dlscale.analysis.scaling import ScalingTable
from dlscale.models.files import make_folder

_CHARACTERS_PER_INCH = 21.5  # of small print: names of works have more capitals than other texts


def write_figures(
    published: Published,
    folder: Path,
    *,
    names: Collection[str] = (),
    tables: Sequence[ScalingTable] = (),
    stand_in: str | None = None,
) -> list[Path]:
    """Draw published figures (by default all that can be laid out) into `folder`; the files that were written.

    `<id>.png`, `.pdf`, `.svg` and the `.csv` behind them. `tables` are our own studies, of which those cells join that
    are what the catalogue asks for; `stand_in` is a system of ours in the place of the publication's. Raises UsageError
    for an unknown figure.
    """
    figures = [published.figure(name) for name in names or published.figures]
    make_folder(folder)
    written: list[Path] = []
    for figure in figures:
        if not figure.panels:
            continue
        with drawing():
            plots = plots_of(published, figure, tables, stand_in=stand_in)
            where = provenance(published, figure, plots, tables)
            picture = draw(published, figure, plots, where)
            rows = rows_of(figure, plots, published.statements_of(figure.id))
            written += save_drawing(
                picture, folder / figure.id, title=figure.title, rows=rows, provenance=where
            )
    return written


def provenance(
    published: Published, figure: Figure, plots: Sequence[Plot], tables: Sequence[ScalingTable]
) -> Provenance:
    """Of what is drawn: the hash is over the publication's entry, values and statements, and the records of ours."""
    studies = {point.study for plot in plots for point in plot.ours}
    used = [table.provenance for table in tables if ", ".join(table.provenance.studies) in studies]
    content = [
        figure.model_dump(mode="json"),
        [row.model_dump(mode="json") for row in published.values_of(figure.id)],
        [row.model_dump(mode="json") for row in published.statements_of(figure.id)],
        sorted(one.data_hash for one in used),
    ]
    return Provenance(
        studies=(PUBLISHED, *sorted({study for one in used for study in one.studies})),
        systems=tuple(sorted({system for one in used for system in one.systems})) or (PUBLISHED,),
        commits=tuple(sorted({commit for one in used for commit in one.commits})) or ("none",),
        commands=tuple(sorted({command for one in used for command in one.commands})),
        data_hash=hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest(),
    )


def draw(published: Published, figure: Figure, plots: Sequence[Plot], where: Provenance) -> Drawing:
    """The picture: a panel per plot, side by side."""
    found = panel.looks(figure, plots)
    silent = any(not plot.in_full and not plot.empty for plot in plots)
    width = SINGLE_COLUMN_INCHES if len(plots) == 1 else DOUBLE_COLUMN_INCHES
    below = small_print(published, figure, plots, where)
    picture, axes = page(
        width=width,
        num_panels=1,
        title=figure.title,
        warning=panel.NOT_PUBLISHED if silent else "",
        subtitle=figure.workload,
        handles=_handles(figure, plots, found),
        small_print=[line for text in below for line in wrap(text, int(width * _CHARACTERS_PER_INCH))],
    )
    for one, plot in zip(_panels(picture, axes, plots), plots, strict=True):
        x_axis(one, figure, plots)
        y_axis(one, plot, figure, [other for other in plots if other.panel.layout == plot.panel.layout])
        panel.draw(one, plot, figure, found)
        one.set_title(plot.panel.title, loc="left")
        if _alike(plots):
            one.label_outer(remove_inner_ticks=False)
    return picture


def _panels(picture: Drawing, axes: list[Axes], plots: Sequence[Plot]) -> list[Axes]:
    """As many axes as there are plots; those of one quantity share its scale."""
    if len(plots) == 1:
        return axes
    axes[0].remove()
    return list(picture.subplots(1, len(plots), sharey=_alike(plots), squeeze=False)[0])


def _alike(plots: Sequence[Plot]) -> bool:
    return len({(plot.panel.layout, plot.panel.y_unit) for plot in plots}) == 1


def _handles(figure: Figure, plots: Sequence[Plot], found: dict[str, Look]) -> list[Line2D]:
    handles = [] if figure.named_points else [_handle(name, look, plots) for name, look in found.items()]
    if any(ideal_lines(plot, figure, figure.x_range) for plot in plots):
        handles.append(Line2D([], [], **IDEAL))
    kinds = {str(point.row.evidence) for plot in plots for point in plot.ours}
    if any(plot.marks or any(is_mark(one) for one in plot.said) for plot in plots):
        kinds.add(PUBLISHED)
    curves = [Curve(name="", backend="", evidence=kind, rows=()) for kind in sorted(kinds)]
    return handles + evidence_handles(curves)


def _handle(name: str, look: Look, plots: Sequence[Plot]) -> Line2D:
    series = [(plot, marks) for plot in plots for marks in plot.series.values() if marks[0].label == name]
    if series and all(mark.x is None for _, marks in series for mark in marks):
        return Line2D([], [], label=name, **line_style(look, joined=True))
    evidence = [str(point.row.evidence) for plot in plots for point in plot.ours if point.name == name]
    style = line_style(look, joined=any(plot.joined(marks) for plot, marks in series))
    return Line2D([], [], label=name, **style, **marker_style(look, evidence[0] if evidence else PUBLISHED))
