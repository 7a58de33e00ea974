"""Draws all figures of a study and writes each as PNG, PDF, SVG and CSV.

Only whole files are written, with their origin inside; a redraw gives equal bytes.
"""

from __future__ import annotations

import csv
import hashlib
import io
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.figure import Figure

from dlscale.analysis.efficiency import ScalingRow, ScalingTable, scaling_row
from dlscale.analysis.families import Family
from dlscale.analysis.figures import (
    busbw,
    ecdf,
    efficiency,
    heatmap,
    startup,
    step_time,
    throughput,
    waterfall,
)
from dlscale.analysis.figures.drawing import DOTS_PER_INCH, drawing
from dlscale.analysis.figures.layout import warning
from dlscale.analysis.findings.backends import to_backend_rows
from dlscale.analysis.provenance import Provenance, printable
from dlscale.base.files import make_folder, write_atomically

FIGURES = {"throughput": throughput.draw, "efficiency": efficiency.draw}


def write_figures(table: ScalingTable, folder: Path) -> list[Path]:
    """Draw every figure of a study into `folder`, which is made if needed; the files that were written.

    Named `<workload>-<preset>-<framework>-<scaling mode>-<precision>-<figure>.{png,pdf,svg,csv}`, with `-compiled`
    and an unusual memory format after the precision; families that differ in something else, such as cores
    per rank, get a short digest of it in front of the figure's name.
    Cells without a rate give no throughput figure, and without a base case there is none of the efficiency.
    Of several ranks there is a figure `step-time`, under strong scaling with the speed-up; `ecdf` has the distribution
    of steps, and of each framework `start-up-<framework>` what a launch costs before it trains.
    Where controls say where the speed goes there is a figure `waterfall`, and of several ranks `heatmap`; where
    exchanges were measured by themselves `busbw`.
    Where backends were compared, `-backends.csv` has the numbers.
    """
    make_folder(folder)
    stems = Counter(family.file_stem for family in table.families)
    written: list[Path] = []
    for family in table.families:
        stem = family.file_stem
        if stems[stem] > 1:
            stem += "-" + hashlib.sha256(repr(family).encode()).hexdigest()[:6]
        for name, draw in FIGURES.items():
            with drawing():
                drawn = draw(family, table.of(family), table.provenance)
                if drawn is None:
                    continue
                figure, rows = drawn
                title = ": ".join(filter(None, (name, warning(rows), family.title)))
                written += save(
                    figure, folder / f"{stem}-{name}", title=title, rows=rows, provenance=table.provenance
                )
        for name, (figure, lines) in _further(table, family).items():
            title = ": ".join(filter(None, (name, warning(table.of(family)), family.title)))
            with drawing():
                written += save_drawing(
                    figure, folder / f"{stem}-{name}", title=title, rows=lines, provenance=table.provenance
                )
        if lines := [
            line for comparison in table.comparisons_of(family) for line in to_backend_rows(comparison)
        ]:
            written.append(save_rows(folder / f"{stem}-backends", lines, table.provenance))
    return written + _starts(table, folder)


def _starts(table: ScalingTable, folder: Path) -> list[Path]:
    """A figure per framework."""
    written = []
    for framework in sorted({start_up.framework for start_up in table.start_ups}):
        with drawing():
            drawn = startup.draw(framework, table.start_ups, table.provenance)
            if drawn:
                figure, lines = drawn
                stem, title = folder / f"start-up-{framework}", f"start of a launch, {framework}"
                written += save_drawing(figure, stem, title=title, rows=lines, provenance=table.provenance)
    return written


def _further(table: ScalingTable, family: Family) -> dict[str, tuple[Figure, list[dict[str, Any]]]]:
    """The figures of more than the table's rows, each with the lines behind it."""
    common = (family, table.of(family), table.provenance)
    with drawing():
        figures = {
            "step-time": step_time.draw(*common),
            "ecdf": ecdf.draw(*common, table.steps),
            "waterfall": waterfall.draw(*common, table.waterfalls),
            "busbw": busbw.draw(*common, table.exchanges),
            "heatmap": heatmap.draw(*common, table.heats, table.lateness),
        }
    return {name: drawn for name, drawn in figures.items() if drawn}


# Glyphs are drawn as paths: a viewer without the font must not show another one, whose words are wider. Text to search
# and to copy is in the PDF. Without a salt the names of markers are random.
_SVG: Any = {"svg.fonttype": "path", "svg.hashsalt": "dlscale", "svg.image_inline": True}


def save(
    figure: Figure, stem: Path, *, title: str, rows: Iterable[ScalingRow], provenance: Provenance
) -> list[Path]:
    """`save_drawing` of cells: the CSV has the rows as in `--json`, notes joined by "; "."""
    lines = ({**row, "notes": "; ".join(row["notes"])} for row in map(scaling_row, rows))
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
    title_entry, origin = {"Title": printable(title)}, provenance.line()
    png = {**title_entry, "Description": origin, "Software": "dlscale"}
    # Without None the date of drawing is written, and every redraw is another file.
    pdf = {**title_entry, "Keywords": origin, "Creator": "dlscale", "CreationDate": None}
    svg = {**title_entry, "Description": origin, "Creator": "dlscale", "Date": None}
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
