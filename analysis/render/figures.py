"""Figures: what a drawing draws, a file per training, as PNG, PDF and SVG with a CSV of what is drawn."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Collection, Iterable, Iterator
from io import BytesIO, StringIO
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd

from dlscale.analysis import theme
from dlscale.analysis.finding import Drawing, Finding, of_trainings
from dlscale.analysis.load import Study
from dlscale.analysis.render.text import as_csv
from dlscale.analysis.text import error_text, escape_latex
from dlscale.base.files import make_folder, write_atomically

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FORMATS = ("png", "pdf", "svg")
MOST_PANELS = 8
NO_DATE: dict[str, dict[str, None]] = {"png": {}, "pdf": {"CreationDate": None}, "svg": {"Date": None}}
PAPER_INCHES = 3.3  # a column of most journals
PAPER = {"font.size": 8, "axes.labelsize": 8, "legend.fontsize": 7, "lines.markersize": 3.5}
PAPER["pdf.fonttype"] = 42  # TrueType, which publishers accept, and which takes 0.2 s a file


def drawn(
    study: Study,
    findings: Iterable[Finding],
    *,
    only: Collection[str] = (),
    backends: Collection[str] = (),
    width: float | None = None,
) -> Iterator[tuple[str, Drawing, Finding, pd.DataFrame, Figure]]:
    """The file name, the drawing, its finding, the rows and the figure of each training that a finding can draw.

    `only` are names of drawings, `backends` those that are drawn; by default all. With `width`, in inches, a figure is
    for a printed page: that wide, and without a title.
    """
    for finding in findings:
        frame = finding.of(study)
        if backends and "backend" in frame:
            frame = frame[frame["backend"].isin([*backends])]
        for drawing in finding.drawings if len(frame) else ():
            if only and drawing.name not in only:
                continue
            for training, rows in of_trainings(drawing.rows(frame)):
                if len(rows):
                    stem = stem_of(training, drawing)
                    try:
                        figure = figure_of(drawing, rows, title=training, width=width)
                    except Exception as error:
                        study.errors.append(error_text(f"Figure {drawing.name} could not be drawn", error))
                        continue
                    yield stem, drawing, finding, rows, figure


def stem_of(training: str, drawing: Drawing) -> str:
    """The name of a figure's files, without an ending."""
    return "-".join(filter(None, (file_name(training), drawing.name)))


def file_name(text: str) -> str:
    """The text as part of a file's name."""
    return re.sub(r"[^\w.]+", "-", text).strip("-")


def figure_of(drawing: Drawing, rows: pd.DataFrame, *, title: str = "", width: float | None = None) -> Figure:
    """The figure of these rows, a panel for each value of `drawing.panels`; `width` inches wide if it is printed."""
    from matplotlib.figure import Figure

    panels = list(rows.groupby(drawing.panels, sort=False)) if drawing.panels else [("", rows)]
    panels = panels[:MOST_PANELS]
    num_columns = min(len(panels), 1 if width and width < drawing.size[0] else 3)
    num_lines = -(-len(panels) // num_columns)
    height = drawing.size[1] * num_lines
    if width:
        title, height = "", height * min(1.0, width / (drawing.size[0] * num_columns))
    else:
        width = drawing.size[0] * num_columns
    figure = Figure(figsize=(width, height))
    axes = figure.subplots(num_lines, num_columns, squeeze=False, sharex=True, sharey=True)
    # Fixed margins in inches: matplotlib's own layouts draw every figure twice.
    above = 0.1 + 0.25 * bool(title) + 0.2 * (len(panels) > 1)
    figure.subplots_adjust(drawing.left / width, 0.45 / height, 1 - 0.1 / width, 1 - above / height, 0.1, 0.3)
    for place in axes.flat[len(panels) :]:
        place.set_visible(False)
    for (name, own), place in zip(panels, axes.flat, strict=False):
        drawing.draw(own, place)
        place.label_outer()
        if len(panels) > 1:
            place.set_title(str(name), fontsize=8)
    if title:
        figure.suptitle(title, fontsize=9, y=1 - 0.05 / height, va="top")
    return figure


def write(
    study: Study,
    findings: Iterable[Finding],
    folder: Path,
    *,
    only: Collection[str] = (),
    backends: Collection[str] = (),
    width: float | None = None,
    warning: str = "",
) -> list[Path]:
    """Write figures as PNG, PDF and SVG, each with the CSV of its rows; returns the paths of the PNG files.

    A printed one (`width`) has a LaTeX file with its caption, which begins with `warning`. Raises UsageError where one
    cannot be written.
    """
    paths, found = [], drawn(study, findings, only=only, backends=backends, width=width)
    make_folder(folder, option="--out or --results")
    with theme.used(PAPER if width else {}):
        for stem, drawing, finding, rows, figure in found:
            save(figure, folder / stem, origin=study.origin)
            if not width:  # the page has the same drawing
                study.drawn[stem] = as_element((folder / f"{stem}.svg").read_text(encoding="utf-8"))
            write_atomically(folder / f"{stem}.csv", as_csv(finding.exported(rows)), mode=0o644)
            if width:
                training = str(rows["training"].iloc[0]) if "training" in rows else finding.title
                caption = " ".join(filter(None, (warning, f"{training}.", drawing.about)))
                text = latex(caption, name=stem, width=width, origin=f"{study.origin}; {study.commands}")
                write_atomically(folder / f"{stem}.tex", text, mode=0o644)
            paths.append(folder / f"{stem}.png")
    return paths


def latex(caption: str, *, name: str, width: float, origin: str) -> str:
    """A LaTeX figure that shows `name`.pdf with a caption; the origin of its numbers is a comment."""
    return "\n".join(
        [
            *(f"% {line}" for line in textwrap.wrap(origin, 118)),
            r"\begin{figure}",
            r"  \centering",
            rf"  \includegraphics[width={width:.4g}in]{{{name}.pdf}}",
            rf"  \caption{{{escape_latex(caption)}}}",
            rf"  \label{{fig:{name}}}",
            r"\end{figure}",
            "",
        ]
    )


def save(figure: Figure, stem: Path, *, origin: str) -> list[Path]:
    """Write a figure as PNG, PDF and SVG, which have the origin of their numbers inside; equal ones are equal bytes."""
    paths = [stem.with_name(f"{stem.name}.{ending}") for ending in FORMATS]
    for path, ending in zip(paths, FORMATS, strict=True):
        content = BytesIO()
        where = {"Description": origin} if ending != "pdf" else {"Subject": origin}
        figure.savefig(content, format=ending, metadata={**NO_DATE[ending], **where}, dpi=200)
        write_atomically(path, content.getvalue(), mode=0o644)
    return paths


def svg(figure: Figure) -> str:
    """The figure as an element of a page."""
    text = StringIO()
    figure.savefig(text, format="svg", metadata=NO_DATE["svg"])
    return as_element(text.getvalue())


def as_element(body: str) -> str:
    """A file's SVG as an element of a page; an artist whose id begins with `tip:` gets the rest as its tooltip."""
    body = re.sub(
        r"<metadata>.*?</metadata>|<defs>\s*<style[^>]*>.*?</style>\s*</defs>", "", body, flags=re.DOTALL
    )
    return re.sub(r'<g id="tip:([^"]*)">', r"<g><title>\1</title>", body[body.index("<svg") :])
