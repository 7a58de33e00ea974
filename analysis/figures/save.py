"""Writing a figure as PNG, PDF, SVG and CSV: whole files only, their origin inside, equal bytes on a redraw."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.figure import Figure

from dlscale.analysis.figures.style import DOTS_PER_INCH
from dlscale.analysis.provenance import Provenance, printable
from dlscale.analysis.rows import to_row
from dlscale.analysis.scaling import Row
from dlscale.models.files import write_atomically

# Glyphs are drawn as paths: a viewer without the font must not show another one, whose words are wider. Text to search
# and to copy is in the PDF. Without a salt the names of markers are random.
_SVG: Any = {"svg.fonttype": "path", "svg.hashsalt": "dlscale", "svg.image_inline": True}


def save(
    figure: Figure, stem: Path, *, title: str, rows: Iterable[Row], provenance: Provenance
) -> list[Path]:
    """`save_drawing` of cells: the CSV has the rows as in `--json`, notes joined by "; "."""
    lines = ({**row, "notes": "; ".join(row["notes"])} for row in map(to_row, rows))
    return save_drawing(figure, stem, title=title, rows=lines, provenance=provenance)


def save_drawing(
    figure: Figure, stem: Path, *, title: str, rows: Iterable[dict[str, Any]], provenance: Provenance
) -> list[Path]:
    """`save_pictures` and `save_rows`: the files that were written, the CSV last."""
    return [
        *save_pictures(figure, stem, title=title, provenance=provenance),
        save_rows(stem, rows, provenance),
    ]


def save_pictures(figure: Figure, stem: Path, *, title: str, provenance: Provenance) -> list[Path]:
    """`<stem>.png`, `.pdf` and `.svg`, each whole or not at all, with title and origin in their metadata.

    Nothing in them depends on when they are drawn. The figure is laid out once, and stays as it is.
    """
    said, origin = {"Title": printable(title)}, provenance.line()
    png = {**said, "Description": origin, "Software": "dlscale"}
    # Without None the date of drawing is written, and every redraw is another file.
    pdf = {**said, "Keywords": origin, "Creator": "dlscale", "CreationDate": None}
    svg = {**said, "Description": origin, "Creator": "dlscale", "Date": None}
    written = [_draw(figure, stem, "png", png)]
    figure.set_layout_engine("none")  # places stay; of a heat map, finding them is a third of the work
    return [*written, _draw(figure, stem, "pdf", pdf), _draw(figure, stem, "svg", svg)]


def save_rows(stem: Path, rows: Iterable[dict[str, Any]], provenance: Provenance) -> Path:
    """`<stem>.csv` with the rows, at least one, as in `--json`, and their origin in the last columns."""
    return _write(stem, "csv", _csv(rows, provenance))


def _draw(figure: Figure, stem: Path, form: str, metadata: Mapping[str, str | None]) -> Path:
    buffer = io.BytesIO()
    with matplotlib.rc_context(_SVG):
        # Of vector forms, too, this is the resolution of the images within.
        figure.savefig(buffer, format=form, dpi=DOTS_PER_INCH, metadata=metadata)
    return _write(stem, form, buffer.getvalue())


def _write(stem: Path, form: str, content: bytes) -> Path:
    """By way of a temporary file, so that a reader never finds half a file."""
    path = stem.with_name(f"{stem.name}.{form}")
    write_atomically(path, content, mode=0o644)  # made to be shown
    return path


def _csv(rows: Iterable[dict[str, Any]], provenance: Provenance) -> bytes:
    lines = list(provenance.beside(rows))
    text = io.StringIO()
    writer = csv.DictWriter(text, fieldnames=list(lines[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(lines)
    return text.getvalue().encode()
