"""Figures: what a drawing draws, a file per training, as PNG, PDF and SVG with a CSV of what is drawn."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from io import StringIO
from pathlib import Path

import matplotlib.pyplot as plt
import pandas as pd
from matplotlib.figure import Figure

from dlscale.analysis.frames import theme
from dlscale.analysis.frames.finding import Drawing, Finding, of_trainings
from dlscale.analysis.frames.load import Study
from dlscale.base.files import write_atomically

FORMATS = ("png", "pdf", "svg")
MOST_PANELS = 8
NO_DATE: dict[str, dict[str, None]] = {"png": {}, "pdf": {"CreationDate": None}, "svg": {"Date": None}}


def drawn(study: Study, finding: Finding) -> Iterator[tuple[str, Drawing, pd.DataFrame, Figure]]:
    """The name, the drawing, the rows and the figure of each training that a finding can draw."""
    frame = finding.of(study)
    for drawing in finding.drawings if len(frame) else ():
        for training, rows in of_trainings(drawing.rows(frame)):
            if len(rows):
                stem = "-".join(filter(None, (file_name(training), drawing.name)))
                figure = figure_of(drawing, rows, title=training)
                yield stem, drawing, rows, figure
                plt.close(figure)


def file_name(text: str) -> str:
    """The text as part of a file's name."""
    return re.sub(r"[^\w.]+", "-", text).strip("-")


def figure_of(drawing: Drawing, rows: pd.DataFrame, *, title: str = "") -> Figure:
    """The figure of these rows, a panel for each value of `drawing.panels`."""
    panels = list(rows.groupby(drawing.panels, sort=False)) if drawing.panels else [("", rows)]
    panels = panels[:MOST_PANELS]
    num_columns = min(len(panels), 4)
    num_lines = -(-len(panels) // num_columns)
    width, height = drawing.size[0] * num_columns, drawing.size[1] * num_lines
    figure, axes = plt.subplots(
        num_lines, num_columns, figsize=(width, height), squeeze=False, sharex=True, sharey=True
    )
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


def write(study: Study, findings: Iterable[Finding], folder: Path) -> list[Path]:
    """Write all figures, each with the origin of its data; returns the paths of the pictures."""
    theme.use()
    folder.mkdir(parents=True, exist_ok=True)
    paths: list[Path] = []
    for finding in findings:
        for stem, _, rows, figure in drawn(study, finding):
            paths += save(figure, folder / stem, origin=study.origin)
            table = finding.exported(rows)
            write_atomically(folder / f"{stem}.csv", table.to_csv(index=False).encode())
    return paths


def save(figure: Figure, stem: Path, *, origin: str) -> list[Path]:
    """Write a figure as PNG, PDF and SVG, with the origin of its numbers below it; returns the paths."""
    figure.text(0.005, 0.005, origin, fontsize=4, color="grey", va="bottom")
    paths = []
    for ending in FORMATS:
        path = stem.with_name(f"{stem.name}.{ending}")
        figure.savefig(path, metadata=NO_DATE[ending], dpi=200)
        paths.append(path)
    return paths


def svg(figure: Figure) -> str:
    """The figure as an element of a page; an artist whose id begins with `tip:` gets the rest as its tooltip."""
    text = StringIO()
    figure.savefig(text, format="svg", metadata={"Date": None}, transparent=True)
    body = text.getvalue()
    body = re.sub(
        r"<metadata>.*?</metadata>|<defs>\s*<style[^>]*>.*?</style>\s*</defs>", "", body, flags=re.DOTALL
    )
    return re.sub(r'<g id="tip:([^"]*)">', r"<g><title>\1</title>", body[body.index("<svg") :])
