"""Writes a proposal's folder: text as markdown and LaTeX, tables as CSV, figures as PNG, PDF and SVG."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from dlscale.analysis.figures import step_time
from dlscale.analysis.figures.drawing import GREY, drawing
from dlscale.analysis.figures.figure import draw
from dlscale.analysis.figures.write import save_drawing, save_rows
from dlscale.analysis.findings import scaling
from dlscale.analysis.findings.predicted_points import placed_row
from dlscale.analysis.findings.scaling import rows_of
from dlscale.analysis.findings.scaling_figures import MAKERS
from dlscale.analysis.measured import Measured
from dlscale.analysis.proposal.document import to_latex, to_markdown
from dlscale.analysis.proposal.section import document, table_lines
from dlscale.analysis.proposal.sizes import Curve, curves
from dlscale.base.files import make_folder, write_atomically

NAME = "proposal"


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """The curves of a proposal and the files written; both empty if no training has a result."""

    curves: tuple[Curve, ...]
    files: tuple[Path, ...]


def write_proposal(
    study: Measured,
    folder: Path,
    *,
    threshold: float,
    backends: Sequence[str] = (),
    samples: int | None = None,
    runs: int = 1,
) -> Written:
    """Write `proposal.md`, `proposal.tex` and their tables and figures to `folder`; equal records give equal bytes.

    Nothing is written if no training has a result.
    """
    shown = curves(study, threshold=threshold, backends=backends)
    if not shown:
        return Written(curves=(), files=())
    make_folder(folder)
    files: list[Path] = []
    sections = []
    for curve, stem in zip(shown, _stems(shown), strict=True):
        files.append(save_rows(folder / stem, table_lines(curve), study.provenance))
        if curve.predicted:
            lines = map(placed_row, curve.predicted)
            files.append(save_rows(folder / f"{stem}-predicted", lines, study.provenance))
        names, drawn = _figures(curve, study, folder / stem)
        files += drawn
        sections.append((curve, stem, names))
    text = document(sections, study.provenance, samples=samples, runs=runs)
    for suffix, content in ((".md", to_markdown(text)), (".tex", to_latex(text))):
        path = folder / f"{NAME}{suffix}"
        remedy = "free space or choose another folder with --out"
        write_atomically(path, content, mode=0o644, remedy=remedy)
        files.append(path)
    return Written(curves=tuple(shown), files=tuple(files))


def _stems(shown: Sequence[Curve]) -> list[str]:
    stems = [f"{curve.family.file_stem}-{curve.backend}" for curve in shown]
    times = Counter(stems)
    return [
        stem
        + (f"-{hashlib.sha256(repr(_identity(curve)).encode()).hexdigest()[:6]}" if times[stem] > 1 else "")
        for stem, curve in zip(stems, shown, strict=True)
    ]


def _identity(curve: Curve) -> tuple[object, ...]:
    return curve.family, curve.name, curve.evidence


def _figures(curve: Curve, study: Measured, stem: Path) -> tuple[list[str], list[Path]]:
    """Draw the figures of a curve, with backend `none` for comparison; their names and files."""
    own = {size.row.cell.id for size in curve.sizes}
    rows = [
        row
        for row in rows_of(scaling.FINDING.of(study), curve.family)
        if row.cell.control == "train" and (row.cell.id in own or row.cell.backend == "none")
    ]
    names, files = [], []
    with drawing():
        common = (curve.family, rows, study.provenance)
        timed = step_time.draw(*common) if curve.family.scaling_mode == "strong" else None
        for name, make in MAKERS.items():
            if declared := make(*common, predicted=curve.predicted):
                figure = draw(declared)
                if name == "efficiency":
                    _mark_threshold(figure, curve)
                names.append(name)
                files += _save_lines(figure, declared.rows, stem, name, curve, study)
        if timed:
            names.append("step-time")
            files += _save_lines(*timed, stem, "step-time", curve, study)
    return names, files


def _mark_threshold(figure: Figure, curve: Curve) -> None:
    for panel in figure.axes:
        panel.axhline(curve.threshold, color=GREY, linewidth=0.8, linestyle=(0, (6, 2)), zorder=1)
    panel = figure.axes[0]
    panel.annotate(
        f"{100 * curve.threshold:g} %",
        (0.01, curve.threshold),
        xycoords=("axes fraction", "data"),
        xytext=(0, -2),
        textcoords="offset points",
        va="top",
        fontsize=6.5,
        color=GREY,
    )


def _save_lines(
    figure: Figure, rows: Sequence[Mapping[str, Any]], stem: Path, name: str, curve: Curve, study: Measured
) -> list[Path]:
    title = f"{name}: {curve.family.title}"
    return save_drawing(figure, _with(stem, name), title=title, rows=rows, provenance=study.provenance)


def _with(stem: Path, name: str) -> Path:
    return stem.with_name(f"{stem.name}-{name}")
