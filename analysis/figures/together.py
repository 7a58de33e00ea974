"""One figure of several studies: throughput and efficiency of the same training, each curve of one study."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from matplotlib.lines import Line2D

from dlscale.analysis.curves import Curve, missing_from
from dlscale.analysis.families import Family
from dlscale.analysis.figures.drawing import (
    DOUBLE_COLUMN_INCHES,
    IDEAL,
    curve_handles,
    draw_curves,
    drawing,
    evidence_handles,
    rank_axis,
)
from dlscale.analysis.figures.efficiency import percent_axis
from dlscale.analysis.figures.layout import Captioned, figure_with_axes
from dlscale.analysis.figures.throughput import rate_axis, throughput
from dlscale.analysis.figures.write import csv_rows, save_drawing
from dlscale.analysis.findings.scaling import ScalingRow
from dlscale.analysis.findings.small_print import span, warning
from dlscale.analysis.form import SCREEN
from dlscale.analysis.provenance import Provenance
from dlscale.analysis.render.html.together import (
    UNPAIRED,
    Member,
    bases_text,
    efficiency_of,
    named_curves,
    trainings_of,
)
from dlscale.analysis.statistics import LEVEL
from dlscale.analysis.text import workload_title
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
    rates = [curve for member, rows in own for curve in named_curves(member, rows, throughput)]
    if not rates:
        return None
    value, _ = efficiency_of(own)
    ratios = [curve for member, rows in own for curve in named_curves(member, rows, value)]
    ratio_rows = _rows(ratios)
    if all(row.cell.num_ranks == row.base_ranks for row in ratio_rows):
        ratios = []
    among = [
        curve
        for member, rows in own
        for curve in named_curves(member, rows, lambda row: throughput(row) or value(row))
    ]
    shown = _rows(rates)
    title = (
        f"{workload_title(alike.workload)} {alike.preset}, {alike.framework}, {alike.scaling_mode} scaling"
    )
    text = [
        f"Throughput: median over n = {span([row.throughput.n for row in shown if row.throughput])} launches, bars: "
        "its order-statistic interval."
    ]
    if ratios:
        text.append(f"Efficiency: geometric mean over blocks, bars: {100 * LEVEL:.0f} % t interval.")
        text += bases_text(own, value)
    if missing := [f"{member.label}: {what}" for member, rows in own for what in missing_from(rows, rates)]:
        text.append(f"No point: {', '.join(missing)}.")
    figure, axes = figure_with_axes(
        width=DOUBLE_COLUMN_INCHES,
        num_panels=1 + bool(ratios),
        title=title,
        warning=next(filter(None, (warning(rows) for _, rows in own if rows)), ""),
        subtitle=alike.constants,
        handles=[
            *curve_handles(among),
            *([Line2D([], [], **IDEAL)] if ratios else []),
            *evidence_handles(among, SCREEN),
        ],
        small_print=[
            " ".join([*text, UNPAIRED]),
            *(f"{member.label}: {member.study.provenance.short_line()}." for member, rows in own if rows),
        ],
        shared=False,
    )
    rank_axis(axes[0], shown)
    draw_curves(axes[0], rates, throughput, among=among)
    rate_axis(axes[0], shown)
    if ratios:
        rank_axis(axes[1], ratio_rows)
        axes[1].axhline(1.0, **IDEAL)
        draw_curves(axes[1], ratios, value, among=among)
        percent_axis(axes[1], [interval for row in ratio_rows if (interval := value(row))])
    kept = {id(row) for row in [*shown, *ratio_rows]}
    lines = [(member, row) for member, rows in own for row in rows if id(row) in kept]
    return FigureTogether(figure=figure, title=title, rows=lines)


def _rows(curves: Sequence[Curve]) -> list[ScalingRow]:
    return [row for curve in curves for row in curve.rows]


def _csv_rows(rows: Sequence[tuple[Member, ScalingRow]]) -> list[dict[str, Any]]:
    """The rows of `--json`, each with its own study: `study` names all of the figure, as in every figure's CSV."""
    lines = csv_rows(row for _, row in rows)
    return [
        {"label": member.label, "of_study": member.name, **line}
        for (member, _), line in zip(rows, lines, strict=True)
    ]
