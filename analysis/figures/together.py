"""One figure of several studies: throughput and efficiency of the same training, each curve of one study."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from dlscale.analysis.curves import missing_from
from dlscale.analysis.declare import Figure
from dlscale.analysis.families import Family
from dlscale.analysis.figures.drawing import drawing
from dlscale.analysis.figures.figure import draw as draw_figure
from dlscale.analysis.figures.layout import Captioned
from dlscale.analysis.figures.write import save_drawing
from dlscale.analysis.findings.curve_plots import throughput_of
from dlscale.analysis.findings.scaling import ScalingRow
from dlscale.analysis.findings.scaling_figures import csv_rows
from dlscale.analysis.findings.small_print import span, warning
from dlscale.analysis.provenance import Provenance
from dlscale.analysis.render.html.together import (
    UNPAIRED,
    Member,
    bases_text,
    efficiency_of,
    named_curves,
    together_plot,
    trainings_of,
)
from dlscale.analysis.statistics import LEVEL
from dlscale.base.files import all_or_nothing


@dataclass(frozen=True, slots=True, kw_only=True)
class FigureTogether:
    """A figure and what it shows: rows, each with its study."""

    figure: Captioned
    title: str
    rows: Sequence[tuple[Member, ScalingRow]]


def write_together(members: Sequence[Member], folder: Path, provenance: Provenance) -> list[Path]:
    """Draw a figure per training that the studies may share into `folder`, created if needed, and return the files.

    Names are `<workload>-<preset>-<framework>-<scaling mode>-<precision>-together.{png,pdf,svg,csv}`, as those of a
    study's figures. `provenance` is that of all records.
    """
    with all_or_nothing(folder) as place:
        written = _write_together(members, place, provenance)
    return [folder / path.name for path in written]


def _write_together(members: Sequence[Member], folder: Path, provenance: Provenance) -> list[Path]:
    trainings = trainings_of(members)
    stems = Counter(alike.file_stem for alike, _ in trainings)
    written: list[Path] = []
    for alike, own in trainings:
        with drawing():
            drawn = draw(alike, own)
            if drawn is None:
                continue
            stem = alike.file_stem
            if stems[stem] > 1:
                stem += "-" + hashlib.sha256(repr(alike).encode()).hexdigest()[:6]
            written += save_drawing(
                drawn.figure,
                folder / f"{stem}-together",
                title=drawn.title,
                rows=_csv_rows(drawn.rows),
                provenance=provenance,
            )
    return written


def draw(alike: Family, own: Sequence[tuple[Member, Sequence[ScalingRow]]]) -> FigureTogether | None:
    """The figure of that training in the studies; None if none of them has a rate.

    Efficiency has a panel where a study has it on more ranks than its base case's.
    """
    plots = [plot for what in ("throughput", "efficiency") if (plot := together_plot(alike, own, what))]
    if not plots or not plots[0].name.startswith("throughput"):
        return None
    value, _ = efficiency_of(own)
    rates = [curve for member, rows in own for curve in named_curves(member, rows, throughput_of)]
    ratios = [curve for member, rows in own for curve in named_curves(member, rows, value)]
    drawn = [*rates, *(ratios if len(plots) > 1 else [])]
    intervals = [row.throughput for curve in rates for row in curve.rows if row.throughput]
    text = [
        f"Throughput: median over n = {span([interval.n for interval in intervals])} launches, bars: its "
        "order-statistic interval."
    ]
    if len(plots) > 1:
        text.append(f"Efficiency: geometric mean over blocks, bars: {100 * LEVEL:.0f} % t interval.")
        text += bases_text(own, value)
    if missing := [f"{member.label}: {what}" for member, rows in own for what in missing_from(rows, rates)]:
        text.append(f"No point: {', '.join(missing)}.")
    kept = {id(row) for curve in drawn for row in curve.rows}
    figure = Figure(
        name="together",
        title=plots[0].title,
        warning=next(filter(None, (warning(rows) for _, rows in own if rows)), ""),
        subtitle=alike.constants,
        small_print=(
            " ".join([*text, UNPAIRED]),
            *(f"{member.label}: {member.study.provenance.short_line()}." for member, rows in own if rows),
        ),
        panels=tuple(replace(plot, title="") for plot in plots),
        rows=(),
    )
    lines = [(member, row) for member, rows in own for row in rows if id(row) in kept]
    return FigureTogether(figure=draw_figure(figure), title=figure.title, rows=lines)


def _csv_rows(rows: Sequence[tuple[Member, ScalingRow]]) -> list[dict[str, Any]]:
    """The rows of `--json`, each with its own study: `study` names all of the figure, as in every figure's CSV."""
    lines = csv_rows(row for _, row in rows)
    return [
        {"label": member.label, "of_study": member.name, **line}
        for (member, _), line in zip(rows, lines, strict=True)
    ]
