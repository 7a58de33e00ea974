"""Figures of a scaling study: PNG, PDF, SVG and the CSV behind each, redrawn to the byte from the same records."""

from __future__ import annotations

import hashlib
from collections import Counter
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from dlscale.analysis.family import Family
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
from dlscale.analysis.figures.page import warning
from dlscale.analysis.figures.save import save, save_drawing, save_rows
from dlscale.analysis.figures.style import drawing
from dlscale.analysis.rows import to_backend_rows
from dlscale.analysis.scaling import ScalingTable
from dlscale.models.files import make_folder

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
        if lines := [line for one in table.comparisons_of(family) for line in to_backend_rows(one)]:
            written.append(save_rows(folder / f"{stem}-backends", lines, table.provenance))
    return written + _starts(table, folder)


def _starts(table: ScalingTable, folder: Path) -> list[Path]:
    """A figure per framework."""
    written = []
    for framework in sorted({one.framework for one in table.start_ups}):
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
        found = {
            "step-time": step_time.draw(*common),
            "ecdf": ecdf.draw(*common, table.steps),
            "waterfall": waterfall.draw(*common, table.waterfalls),
            "busbw": busbw.draw(*common, table.exchanges),
            "heatmap": heatmap.draw(*common, table.heats, table.lateness),
        }
    return {name: drawn for name, drawn in found.items() if drawn}
