"""Writing a figure as PNG, PDF and CSV: whole files only, the data's hash inside, equal bytes on a redraw."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from dlscale.analysis.figures.style import DOTS_PER_INCH
from dlscale.analysis.provenance import Provenance
from dlscale.analysis.rows import to_row
from dlscale.analysis.scaling import Row
from dlscale.models.files import write_atomically


def save(
    figure: Figure, stem: Path, *, title: str, rows: Iterable[Row], provenance: Provenance
) -> list[Path]:
    """`save_drawing` of cells: the CSV has the rows as in `--json`, notes joined by "; "."""
    lines = ({**row, "notes": "; ".join(row["notes"])} for row in map(to_row, rows))
    return save_drawing(figure, stem, title=title, rows=lines, provenance=provenance)


def save_drawing(
    figure: Figure, stem: Path, *, title: str, rows: Iterable[dict[str, Any]], provenance: Provenance
) -> list[Path]:
    """`<stem>.png`, `.pdf` and `.csv`, each whole or not at all; nothing in them depends on when.

    The CSV has the rows, at least one, and the hash of the data in every line.
    """
    return [
        _write(stem, ".png", _png(figure, title, provenance)),
        _write(stem, ".pdf", _pdf(figure, title, provenance)),
        save_rows(stem, rows, provenance),
    ]


def save_rows(stem: Path, rows: Iterable[dict[str, Any]], provenance: Provenance) -> Path:
    """`<stem>.csv` with the rows as in `--json` and the hash of the records in every line."""
    return _write(stem, ".csv", _csv(rows, provenance))


def _write(stem: Path, suffix: str, content: bytes) -> Path:
    """By way of a temporary file, so that a reader never finds half a file."""
    path = stem.with_name(stem.name + suffix)
    write_atomically(path, content, mode=0o644)  # made to be shown
    return path


def _png(figure: Figure, title: str, provenance: Provenance) -> bytes:
    buffer = io.BytesIO()
    metadata = {"Title": title, "Description": provenance.line(), "Software": "dlscale"}
    figure.savefig(buffer, format="png", dpi=DOTS_PER_INCH, metadata=metadata)
    return buffer.getvalue()


def _pdf(figure: Figure, title: str, provenance: Provenance) -> bytes:
    buffer = io.BytesIO()
    metadata = {"Title": title, "Keywords": provenance.line(), "Creator": "dlscale"}
    # Without None the date of drawing is written, and every redraw is another file.
    figure.savefig(buffer, format="pdf", metadata={**metadata, "CreationDate": None})
    return buffer.getvalue()


def _csv(rows: Iterable[dict[str, Any]], provenance: Provenance) -> bytes:
    where = {"study": ", ".join(provenance.studies), "data_hash": provenance.data_hash}
    lines = [row | where for row in rows]
    text = io.StringIO()
    writer = csv.DictWriter(text, fieldnames=list(lines[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(lines)
    return text.getvalue().encode()
