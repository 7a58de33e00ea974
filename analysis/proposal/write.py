"""Writes a proposal's folder: text as markdown and LaTeX, tables as CSV, figures as PNG, PDF and SVG."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from dlscale.analysis.figures.write import save_figure, save_rows
from dlscale.analysis.findings import scaling
from dlscale.analysis.findings.predicted_points import placed_row
from dlscale.analysis.findings.scaling import rows_of
from dlscale.analysis.findings.step_time import step_time_figure
from dlscale.analysis.findings.throughput import MAKERS
from dlscale.analysis.form import Form
from dlscale.analysis.measured import Measured
from dlscale.analysis.plots import Figure, Guide, Plot
from dlscale.analysis.proposal.document import to_latex, to_markdown
from dlscale.analysis.proposal.section import FIGURE_INCHES, document, table_line
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
        files.append(
            save_rows(folder / stem, [table_line(curve, size) for size in curve.sizes], study.provenance)
        )
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
    common = (curve.family, rows, study.provenance)
    form = Form(width=FIGURE_INCHES)
    drawn = [make(*common, form, curve.predicted) for make in MAKERS.values()]
    drawn += [step_time_figure(*common, form)] if curve.family.scaling_mode == "strong" else []
    names, files = [], []
    for figure in filter(None, drawn):
        marked = _with_threshold(figure, curve) if figure.name == "efficiency" else figure
        names.append(figure.name)
        files += save_figure(marked, _with(stem, figure.name), study.provenance, form, captioned=False)
    return names, files


def _with_threshold(figure: Figure, curve: Curve) -> Figure:
    line = Guide(label=f"{100 * curve.threshold:g} %", y=curve.threshold)
    plots = (plot for plot in figure.panels if isinstance(plot, Plot))
    return replace(figure, panels=tuple(replace(plot, guides=(*plot.guides, line)) for plot in plots))


def _with(stem: Path, name: str) -> Path:
    return stem.with_name(f"{stem.name}-{name}")
