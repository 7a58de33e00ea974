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
from dlscale.analysis.published import panel_drawing
from dlscale.analysis.published.catalogue import REAL, SYNTHETIC, Figure, Own, Published
from dlscale.analysis.published.panel_drawing import (
    PUBLISHED,
    SIMULATED,
    ideal_lines,
    is_mark,
    x_axis,
    y_axis,
)
from dlscale.analysis.published.panels import Plot, SimulatedCurve, plots_of
from dlscale.analysis.published.tables import rows_of
from dlscale.analysis.published.values import HALF_WIDTH
from dlscale.analysis.render.theme import Look
from dlscale.base.files import all_or_nothing

_CHARACTERS_PER_INCH = 21.5  # of small print, where names of works have many wide capitals


def write_figures(
    published: Published,
    folder: Path,
    *,
    names: Collection[str] = (),
    studies: Sequence[Measured] = (),
    simulated: Sequence[SimulatedCurve] = (),
    stand_in: str | None = None,
    alone: bool = True,
) -> list[Path]:
    """Draw published figures (by default all with a layout) into `folder` and return the paths of the files.

    Files are `<id>.png`, `.pdf`, `.svg` and the `.csv` behind them. `studies` are our own; their cells are drawn if
    they match the catalogue. `simulated` are predicted curves, `stand_in` is a system of ours that replaces the
    publication's. Without `alone`, only figures with cells of ours or a predicted curve are drawn. Raises UsageError
    for an unknown figure, and where one file cannot be written; those of an earlier call then stay, all of them.
    """
    figures = [published.figure(name) for name in names or published.figures]
    with all_or_nothing(folder) as place:
        written = _write_figures(
            published,
            place,
            figures=figures,
            studies=studies,
            simulated=simulated,
            stand_in=stand_in,
            alone=alone,
        )
    return [folder / path.name for path in written]


def _write_figures(
    published: Published,
    folder: Path,
    *,
    figures: Sequence[Figure],
    studies: Sequence[Measured],
    simulated: Sequence[SimulatedCurve],
    stand_in: str | None,
    alone: bool,
) -> list[Path]:
    written: list[Path] = []
    for figure in figures:
        if not figure.panels:
            continue
        with figure_style():
            plots = plots_of(published, figure, studies, stand_in=stand_in, simulated=simulated)
            if not alone and not any(plot.ours or plot.simulated for plot in plots):
                continue
            where = provenance(published, figure, plots, studies)
            picture = draw(published, figure, plots, where)
            rows = rows_of(figure, plots, published.statements_of(figure.id))
            written += save_drawing(
                picture, folder / figure.id, title=figure.title, rows=rows, provenance=where
            )
    return written


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
        *(
            # What is assumed is words, no data.
            {name: _rounded(part) for name, part in asdict(curve).items() if name != "assumed"}
            for plot in plots
            for curve in plot.simulated
        ),
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
    """The picture: a panel per plot, side by side."""
    looks = panel_drawing.panel_looks(figure, plots)
    silent = any(not plot.in_full and not plot.empty for plot in plots)
    width = SINGLE_COLUMN_INCHES if len(plots) == 1 else DOUBLE_COLUMN_INCHES
    below = small_print(published, figure, plots, where)
    picture, axes = figure_with_axes(
        width=width,
        num_panels=1,
        title=figure.title,
        warning=panel_drawing.NOT_PUBLISHED if silent else "",
        subtitle=figure.workload,
        handles=_handles(figure, plots, looks),
        small_print=[line for text in below for line in wrap(text, int(width * _CHARACTERS_PER_INCH))],
    )
    for panel, plot in zip(_panels(picture, axes, plots), plots, strict=True):
        x_axis(panel, figure, plots)
        y_axis(panel, plot, figure, [peer for peer in plots if peer.panel.layout == plot.panel.layout])
        panel_drawing.draw_panel(panel, plot, figure, looks)
        panel.set_title(plot.panel.title, loc="left")
        if _alike(plots):
            panel.label_outer(remove_inner_ticks=False)
    return picture


def _panels(picture: Drawing, axes: list[Axes], plots: Sequence[Plot]) -> list[Axes]:
    """Axes for each plot; plots of the same quantity share a scale."""
    if len(plots) == 1:
        return axes
    axes[0].remove()
    return list(picture.subplots(1, len(plots), sharey=_alike(plots), squeeze=False)[0])


def _alike(plots: Sequence[Plot]) -> bool:
    return len({(plot.panel.layout, plot.panel.y_unit) for plot in plots}) == 1


def _handles(figure: Figure, plots: Sequence[Plot], looks: dict[str, Look]) -> list[Line2D]:
    handles = (
        [] if figure.named_points else [_handle(name, look, figure, plots) for name, look in looks.items()]
    )
    if any(ideal_lines(plot, figure, figure.x_range) for plot in plots):
        handles.append(Line2D([], [], **IDEAL))
    kinds = {str(point.row.evidence) for plot in plots for point in plot.ours}
    if any(plot.simulated for plot in plots):
        kinds.add(SIMULATED)
    if any(plot.marks or any(is_mark(mark) for mark in plot.statements) for plot in plots):
        kinds.add(PUBLISHED)
    curves = [Curve(name="", backend="", evidence=kind, rows=()) for kind in sorted(kinds)]
    return handles + evidence_handles(curves)


def _handle(name: str, look: Look, figure: Figure, plots: Sequence[Plot]) -> Line2D:
    series = [(plot, marks) for plot in plots for marks in plot.series.values() if marks[0].label == name]
    if series and all(mark.x is None for _, marks in series for mark in marks):
        return Line2D([], [], label=name, **line_style(look, joined=True))
    evidence = [str(point.row.evidence) for plot in plots for point in plot.ours if point.name == name]
    predicted = [curve for plot in plots for curve in plot.simulated if curve.label == name]
    if predicted and not series and not _is_stated(name, figure, plots):
        evidence.append(SIMULATED)
    joined = bool(predicted) or any(plot.joined(marks) for plot, marks in series)
    style = line_style(look, joined=joined)
    return Line2D([], [], label=name, **style, **marker_style(look, evidence[0] if evidence else PUBLISHED))


def _is_stated(name: str, figure: Figure, plots: Sequence[Plot]) -> bool:
    """Whether a statement's mark has that name in the legend."""
    marks = [mark for plot in plots for mark in plot.statements if is_mark(mark)]
    return any(figure.label(mark.statement.series) == name for mark in marks)


def small_print(published: Published, figure: Figure, plots: Sequence[Plot], where: Provenance) -> list[str]:
    """Paragraphs of small print: sources, statements, and the origin of our data."""
    lines = [f"Public: {figure.public} {figure.publication}."]
    if sentences := [
        _sentence(statement.statement, statement.kind, statement.about)
        for statement in published.statements_of(figure.id)
    ]:
        lines.append(f"Said: {'. '.join(sentences)}.")
    if not all(plot.in_full for plot in plots):
        lines.append("The ends of axes without published values are ours.")
    lines += _not_drawn(published, figure, plots)
    lines += _predicted(figure, plots)
    lines.append(_ours(figure, plots, where))
    return lines


def _sentence(statement: str, kind: str, about: bool) -> str:
    mark = "" if kind == "text" else f" ({kind})"
    return f"{statement}{mark}" if not about or "about" in statement.lower() else f"About: {statement}{mark}"


def _not_drawn(published: Published, figure: Figure, plots: Sequence[Plot]) -> list[str]:
    """Sentences about values that the panels do not show, and about derived or shifted ones."""
    drawn = {mark.value for plot in plots for mark in plot.marks}
    lines = []
    if unplaced := [
        mark.value for plot in plots for mark in plot.marks if mark.x is None and figure.named_points
    ]:
        words = [f"{row.series} {row.printed} {row.y_unit} on a {row.system}" for row in unplaced]
        lines.append(f"Not on the axes, for the number of devices is not given: {', '.join(words)}.")
    lines += [
        f"{plot.panel.y_label.capitalize()}: derived from the published values."
        for plot in plots
        if plot.marks and all(mark.value.kind == "derived" for mark in plot.marks)
    ]
    if any(plot.panel.aside for plot in plots):
        lines.append("Points at the same place are offset.")
    rest = [
        row
        for row in published.values_of(figure.id)
        if row not in drawn and not row.quantity.endswith(HALF_WIDTH)
    ]
    if rest:
        quantities = dict.fromkeys(row.quantity.replace("_", " ") for row in rest)
        lines.append(f"Published besides, in results/published/{figure.id}.csv: {', '.join(quantities)}.")
    if any(mark.half_width for plot in plots for mark in plot.marks):
        notes = dict.fromkeys(
            row.note for row in published.values_of(figure.id) if row.quantity.endswith(HALF_WIDTH)
        )
        lines.append(f"Bars: {next(iter(notes)).split('; ')[-1]}.")
    return lines


def _predicted(figure: Figure, plots: Sequence[Plot]) -> Iterator[str]:
    """Where the predicted curves are from, or what is missing for one."""
    names = dict.fromkeys(curve.landmark for plot in plots for curve in plot.simulated)
    if names:
        yield (
            f"Simulated: landmark {', '.join(names)}, from single-node facts and the network's description alone; "
            "nothing is fitted to this figure; bands: 5 to 95 % of replicates; dotted beside a published line."
        )
        if texts := dict.fromkeys(
            text for plot in plots for curve in plot.simulated for text in curve.assumed
        ):
            yield f"Assumed, where nothing is public: {'; '.join(texts)}."
    elif figure.missing:
        yield f"Not predicted: {figure.missing}"


def _ours(figure: Figure, plots: Sequence[Plot], where: Provenance) -> str:
    points = [point for plot in plots for point in plot.ours]
    data = f"Data {where.data_hash[:12]}."
    if points:
        studies = ", ".join(where.studies[1:])
        commits = ", ".join(commit[:12] for commit in where.commits)
        systems = ", ".join(where.systems)
        return (
            f"Ours: study {studies}; system {systems}; commit {commits}; bars as in docs/metrics.md. {data}"
        )
    if figure.own is None:
        return f"No study of ours measures this. {data}"
    if figure.own.unfillable:
        return f"Nothing of ours can join: {figure.own.unfillable}. {data}"
    of_ours = "measured here" if any(plot.simulated for plot in plots) else "of ours"
    return f"Nothing {of_ours} yet; what would join: {wanted(figure.own)}. {data}"


def wanted(own: Own) -> str:
    """The required properties of our cells, in words."""
    words = [
        own.workload,
        own.preset and f"preset {own.preset}",
        own.scaling_mode and f"{own.scaling_mode} scaling",
        own.framework,
        own.backend,
        own.system and f"on {own.system}",
        own.device and f"device {own.device}",
        own.precision,
        own.local_batch and f"{own.local_batch} samples per rank",
        own.global_batch and f"{own.global_batch} samples over all ranks",
        own.data and (f"{own.data} data" if own.data in (REAL, SYNTHETIC) else f"data {own.data}"),
        own.ranks_per_node and f"{own.ranks_per_node} rank{'s' * (own.ranks_per_node > 1)} per node",
    ]
    return ", ".join(word for word in words if word)
