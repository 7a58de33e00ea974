"""Figures of a scaling study: PNG, PDF and the CSV behind each, redrawn to the byte from the same records."""

from __future__ import annotations

import hashlib
from collections import Counter
from pathlib import Path

from dlscale.analysis.figures import efficiency, throughput
from dlscale.analysis.figures.page import warning
from dlscale.analysis.figures.save import save, save_rows
from dlscale.analysis.figures.style import drawing
from dlscale.analysis.rows import to_backend_rows
from dlscale.analysis.scaling import ScalingTable
from dlscale.models.files import make_folder

FIGURES = {"throughput": throughput.draw, "efficiency": efficiency.draw}


def write_figures(table: ScalingTable, folder: Path) -> list[Path]:
    """Draw every figure of a study into `folder`, which is made if needed; the files that were written.

    Named `<workload>-<preset>-<framework>-<scaling mode>-<precision>-<figure>.{png,pdf,csv}`, with `-compiled`
    and an unusual memory format after the precision; families that differ in something else, such as cores
    per rank, get a short digest of it in front of the figure's name.
    Cells without a rate give no throughput figure, and without a base case there is none of the efficiency.
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
        if lines := [line for one in table.comparisons_of(family) for line in to_backend_rows(one)]:
            written.append(save_rows(folder / f"{stem}-backends", lines, table.provenance))
    return written
