"""Published figures in their own layout: their public data, what is predicted of them, and our series.

The small print says which data are public, what is only stated in words, and which of our series are drawn.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from textwrap import wrap
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure as Drawing
from matplotlib.lines import Line2D

from dlscale.analysis.curves import Curve
from dlscale.analysis.figures.drawing import (
    DOUBLE_COLUMN_INCHES,
    IDEAL,
    SINGLE_COLUMN_INCHES,
    evidence_handles,
    line_style,
    marker_style,
)
from dlscale.analysis.figures.drawing import drawing as figure_style
from dlscale.analysis.figures.layout import figure_with_axes
from dlscale.analysis.figures.write import save_drawing
from dlscale.analysis.measured import Measured
from dlscale.analysis.provenance import Provenance
from dlscale.analysis.published.catalogue import Figure, Published
from dlscale.analysis.published.drawing import (
    NOT_PUBLISHED,
    PUBLISHED,
    SIMULATED,
    draw_panel,
    ideal_lines,
    panel_looks,
    stated_labels,
    x_axis,
    y_axis,
)
from dlscale.analysis.published.panels import Plot, PredictedCurve, plots_of
from dlscale.analysis.published.values import HALF_WIDTH, Statement
from dlscale.analysis.render.theme import Look
from dlscale.base.files import all_or_nothing

_CHARACTERS_PER_INCH = 21.5  # of small print, where names of works have many wide capitals
COLUMNS = (
    *("figure", "panel", "evidence", "series", "system", "x", "x_unit", "quantity", "y", "low", "high"),
    *("y_unit", "kind", "source", "note"),
)


def write_figures(
    published: Published,
    folder: Path,
    *,
    names: Collection[str] = (),
    studies: Sequence[Measured] = (),
    predicted: Sequence[PredictedCurve] = (),
    stand_in: str | None = None,
    alone: bool = True,
) -> list[Path]:
    """Draw published figures (by default all with a layout) into `folder` and return the paths of the files.

    Files are `<id>.png`, `.pdf`, `.svg` and the `.csv` behind them. `studies` are our own; their cells are drawn if
    they match the catalogue. `stand_in` is a system of ours that replaces the publication's. Without `alone`, only
    figures with cells of ours or a predicted curve are drawn. Raises UsageError for an unknown figure, and where one
    file cannot be written; those of an earlier call then stay, all of them.
    """
    figures = [published.figure(name) for name in names or published.figures]
    written: list[Path] = []
    with all_or_nothing(folder) as place:
        for figure in figures:
            plots = plots_of(published, figure, studies, stand_in=stand_in, predicted=predicted)
            if not plots or not (alone or any(plot.ours or plot.predicted for plot in plots)):
                continue
            where = provenance(published, figure, plots, studies)
            with figure_style():
                picture = draw(published, figure, plots, where)
                rows = csv_rows(figure, plots, published.statements_of(figure.id))
                stem = place / figure.id
                written += save_drawing(picture, stem, title=figure.title, rows=rows, provenance=where)
    return [folder / path.name for path in written]


def provenance(
    published: Published, figure: Figure, plots: Sequence[Plot], studies: Sequence[Measured]
) -> Provenance:
    """The origin of the figure; the hash covers the publication's entry, values, statements, and our records."""
    names = {point.study for plot in plots for point in plot.ours}
    used = [study.provenance for study in studies if ", ".join(study.provenance.studies) in names]
    content = [
        figure.model_dump(mode="json"),
        [row.model_dump(mode="json") for row in published.values_of(figure.id)],
        [row.model_dump(mode="json") for row in published.statements_of(figure.id)],
        sorted(origin.data_hash for origin in used),
        # What is assumed is words, no data.
        *(_rounded(asdict(curve) | {"assumed": ()}) for plot in plots for curve in plot.predicted),
    ]
    return Provenance(
        studies=(PUBLISHED, *sorted({study for origin in used for study in origin.studies})),
        systems=tuple(sorted({system for origin in used for system in origin.systems})) or (PUBLISHED,),
        commits=tuple(sorted({commit for origin in used for commit in origin.commits})) or ("none",),
        commands=tuple(sorted({command for origin in used for command in origin.commands})),
        data_hash=hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest(),
    )


def _rounded(value: Any) -> Any:
    """With floats to 9 digits: the last ones of what is computed depend on the CPU's vector instructions."""
    if isinstance(value, dict):
        return {name: _rounded(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [_rounded(part) for part in value]
    return float(f"{value:.9g}") if isinstance(value, float) else value


def draw(published: Published, figure: Figure, plots: Sequence[Plot], where: Provenance) -> Drawing:
    """The picture: a panel per plot, side by side; those of the same quantity share a scale."""
    looks = panel_looks(figure, plots)
    width = SINGLE_COLUMN_INCHES if len(plots) == 1 else DOUBLE_COLUMN_INCHES
    below = small_print(published, figure, plots, where)
    picture, axes = figure_with_axes(
        width=width,
        num_panels=1,
        title=figure.title,
        warning=NOT_PUBLISHED if any(not (plot.in_full or plot.empty) for plot in plots) else "",
        subtitle=figure.workload,
        handles=_handles(figure, plots, looks),
        small_print=[line for text in below for line in wrap(text, int(width * _CHARACTERS_PER_INCH))],
    )
    alike = len({(plot.panel.layout, plot.panel.y_unit) for plot in plots}) == 1
    panels: list[Axes] = axes
    if len(plots) > 1:
        axes[0].remove()
        panels = list(picture.subplots(1, len(plots), sharey=alike, squeeze=False)[0])
    for panel, plot in zip(panels, plots, strict=True):
        x_axis(panel, figure, plots)
        y_axis(panel, plot, figure, [peer for peer in plots if peer.panel.layout == plot.panel.layout])
        draw_panel(panel, plot, figure, looks)
        panel.set_title(plot.panel.title, loc="left")
        if alike:
            panel.label_outer(remove_inner_ticks=False)
    return picture


def _handles(figure: Figure, plots: Sequence[Plot], looks: dict[str, Look]) -> list[Line2D]:
    handles = (
        [] if figure.named_points else [_handle(name, look, figure, plots) for name, look in looks.items()]
    )
    if any(ideal_lines(plot, figure, figure.x_range) for plot in plots):
        handles.append(Line2D([], [], **IDEAL))
    kinds = {str(point.row.evidence) for plot in plots for point in plot.ours}
    if any(plot.predicted for plot in plots):
        kinds.add(SIMULATED)
    if any(plot.marks for plot in plots) or list(stated_labels(figure, plots)):
        kinds.add(PUBLISHED)
    curves = [Curve(name="", backend="", evidence=kind, rows=()) for kind in sorted(kinds)]
    return handles + evidence_handles(curves)


def _handle(name: str, look: Look, figure: Figure, plots: Sequence[Plot]) -> Line2D:
    series = [(plot, marks) for plot in plots for marks in plot.series if marks[0].label == name]
    if series and all(mark.x is None for _, marks in series for mark in marks):
        return Line2D([], [], label=name, **line_style(look, joined=True))
    evidence = [str(point.row.evidence) for plot in plots for point in plot.ours if point.name == name]
    predicted = any(curve.label == name for plot in plots for curve in plot.predicted)
    if predicted and not series and name not in stated_labels(figure, plots):
        evidence.append(SIMULATED)
    joined = predicted or any(plot.joined(marks) for plot, marks in series)
    style = line_style(look, joined=joined)
    return Line2D([], [], label=name, **style, **marker_style(look, evidence[0] if evidence else PUBLISHED))


def small_print(
    published: Published, figure: Figure, plots: Sequence[Plot], where: Provenance
) -> Iterator[str]:
    """Paragraphs of small print: sources, statements, and the origin of our data."""
    yield f"Public: {figure.public} {figure.publication}."
    if sentences := [_sentence(statement) for statement in published.statements_of(figure.id)]:
        yield f"Said: {'. '.join(sentences)}."
    if not all(plot.in_full for plot in plots):
        yield "The ends of axes without published values are ours."
    yield from _of_values(published, figure, plots)
    yield from _of_predictions(figure, plots)
    yield f"{_of_ours(figure, plots, where)} Data {where.data_hash[:12]}."


def _sentence(statement: Statement) -> str:
    mark = "" if statement.kind == "text" else f" ({statement.kind})"
    about = "About: " if statement.about and "about" not in statement.statement.lower() else ""
    return f"{about}{statement.statement}{mark}"


def _of_values(published: Published, figure: Figure, plots: Sequence[Plot]) -> Iterator[str]:
    """Sentences about values that the panels do not show, and about derived or shifted ones."""
    marks = [mark for plot in plots for mark in plot.marks]
    if unplaced := [mark.value for mark in marks if mark.x is None and figure.named_points]:
        words = [f"{row.series} {row.printed} {row.y_unit} on a {row.system}" for row in unplaced]
        yield f"Not on the axes, for the number of devices is not given: {', '.join(words)}."
    for plot in plots:
        if plot.marks and all(mark.value.kind == "derived" for mark in plot.marks):
            yield f"{plot.panel.y_label.capitalize()}: derived from the published values."
    if any(plot.panel.aside for plot in plots):
        yield "Points at the same place are offset."
    drawn, rows = {mark.value for mark in marks}, published.values_of(figure.id)
    rest = [row for row in rows if row not in drawn and not row.quantity.endswith(HALF_WIDTH)]
    if rest:
        quantities = dict.fromkeys(row.quantity.replace("_", " ") for row in rest)
        yield f"Published besides, in results/published/{figure.id}.csv: {', '.join(quantities)}."
    if any(mark.half_width for mark in marks):
        note = next(row.note for row in rows if row.quantity.endswith(HALF_WIDTH))
        yield f"Bars: {note.split('; ')[-1]}."


def _of_predictions(figure: Figure, plots: Sequence[Plot]) -> Iterator[str]:
    """Where the predicted curves are from, or what is missing for one."""
    curves = [curve for plot in plots for curve in plot.predicted]
    if curves:
        names = ", ".join(dict.fromkeys(curve.publication for curve in curves))
        yield (
            f"Simulated: claims/{names}.toml, from single-node facts and the network's description alone; "
            "nothing is fitted to this figure; bands: 5 to 95 % of replicates; dotted beside a published line."
        )
        if texts := dict.fromkeys(text for curve in curves for text in curve.assumed):
            yield f"Assumed, where nothing is public: {'; '.join(texts)}."
    elif figure.missing:
        yield f"Not predicted: {figure.missing}"


def _of_ours(figure: Figure, plots: Sequence[Plot], where: Provenance) -> str:
    if any(plot.ours for plot in plots):
        studies = ", ".join(where.studies[1:])
        commits = ", ".join(commit[:12] for commit in where.commits)
        systems = ", ".join(where.systems)
        return f"Ours: study {studies}; system {systems}; commit {commits}; bars as in docs/metrics.md."
    if figure.own is None:
        return "No study of ours measures this."
    of_ours = "measured here" if any(plot.predicted for plot in plots) else "of ours"
    return f"Nothing {of_ours} yet; what would join: {figure.own.text}."


def csv_rows(figure: Figure, plots: Sequence[Plot], statements: Sequence[Statement]) -> list[dict[str, Any]]:
    """Rows with the content of each panel, in its unit, then the statements without a mark."""
    rows = [row for plot in plots for row in _panel_rows(plot)]
    drawn = {mark.statement for plot in plots for mark in plot.statements}
    rows += [
        _in_words(statement)
        | {"quantity": statement.quantity or "statement", "x_unit": statement.x_unit}
        | {"low": statement.low, "high": statement.high, "y_unit": statement.unit}
        for statement in statements
        if statement not in drawn
    ]
    return [dict.fromkeys(COLUMNS) | {"figure": figure.id, "x_unit": figure.x_unit} | row for row in rows]


def _panel_rows(plot: Plot) -> Iterator[dict[str, Any]]:
    panel, unit = plot.panel, plot.panel.unit
    common = {"panel": panel.title or panel.layout, "quantity": panel.layout, "y_unit": panel.y_unit}
    for mark in plot.marks:
        value, half = mark.value, mark.half_width
        ends = {} if half is None else {"low": mark.y - half, "high": mark.y + half}
        texts = {name: getattr(value, name) for name in ("series", "system", "kind", "source", "note")}
        yield common | texts | ends | {"evidence": PUBLISHED, "x": mark.x, "y": mark.y}
    for stated in plot.statements:
        y = stated.low if stated.low == stated.high else None
        yield common | _in_words(stated.statement) | {"y": y, "low": stated.low, "high": stated.high}
    for curve in plot.predicted:
        source = {"source": f"claims/{curve.publication}.toml", "note": "median and 5 to 95 % of replicates"}
        for x, band in curve.points:
            numbers = {"x": x, "y": band.median / unit, "low": band.low / unit, "high": band.high / unit}
            yield common | numbers | source | {"evidence": SIMULATED, "series": curve.label}
    for point in plot.ours:
        own, row = point.value, point.row
        known = {"y": own.center, "low": own.low, "high": own.high}
        numbers = {name: end / unit for name, end in known.items() if end is not None}
        origin = {"series": point.name, "system": row.family.system, "source": f"study {point.study}"}
        note = f"{own.method}, n = {own.n}"
        yield common | numbers | origin | {"evidence": row.evidence, "x": point.x, "note": note}


def _in_words(statement: Statement) -> dict[str, Any]:
    low, high = statement.x_low, statement.x_high
    return {
        "evidence": PUBLISHED,
        "series": statement.series,
        "quantity": statement.quantity,
        "x": low if low == high else f"{low:g} to {high:g}",
        "kind": statement.kind,
        "source": statement.source,
        "note": statement.statement,
    }
