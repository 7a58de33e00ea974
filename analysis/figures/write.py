"""Draws the figures of a study and writes each as PNG, PDF, SVG and CSV, in print with its caption for LaTeX.

Files are written atomically, with their origin inside; a redraw gives equal bytes.
"""

from __future__ import annotations

import hashlib
import io
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.figure import Figure

from dlscale.analysis.figures.drawing import DOTS_PER_INCH, drawing
from dlscale.analysis.figures.figure import draw, on_pages
from dlscale.analysis.figures.layout import finish_printed
from dlscale.analysis.findings import load_all
from dlscale.analysis.form import SCREEN, Form, figure_latex
from dlscale.analysis.measured import Measured
from dlscale.analysis.plots import Figure as Declared
from dlscale.analysis.provenance import Provenance, printable
from dlscale.base.files import all_or_nothing, write_atomically
from dlscale.base.strings import to_csv

NAMES = (
    "throughput",
    "efficiency",
    "step-time",
    "ecdf",
    "waterfall",
    "memory",
    "busbw",
    "heatmap",
    "start-up",
    "time-to-solution",
    "algorithms",
    "learning-curves",
    "frameworks",
    "pareto",
    "backends",
)


def write_figures(
    study: Measured, folder: Path, *, form: Form = SCREEN, only: Collection[str] = NAMES
) -> list[Path]:
    """Draw the figures `only` of a study into `folder`, created if needed, and return the paths of the files.

    Names are `<workload>-<preset>-<framework>-<scaling mode>-<precision>-<figure>.{png,pdf,svg,csv}`, with `-compiled`
    after the precision; families that differ in something else, such as cores per rank, get a short digest of it
    before the figure's name. What the table has `predicted` is in `throughput` and
    `efficiency`, and in their CSV.
    `throughput` needs a rate, `efficiency` a base case. `step-time` needs more than one rank and includes the speed-up
    under strong scaling; `ecdf` is the distribution of step times; `start-up-<framework>` is the time before training.
    `waterfall` needs controls, `heatmap` more than one rank, `busbw` runs with communication only.
    `curves-throughput` and `curves-efficiency` have all curves of a study whose axes make several families.
    `time-to-solution` needs trainings with a target;
    `-evaluations.csv` has all of their evaluations, which `learning-curves` draws; `algorithms` compares several ways
    of training; `frameworks` has the same training in both frameworks side by side. `pareto` is what
    the target costs. If backends
    were compared, `backends` is a CSV with the numbers. Beside a printed figure `.tex` has its caption.
    Where one file cannot be written, UsageError is raised and those of an earlier call stay, all of them.
    """
    with all_or_nothing(folder) as place:
        written = _write_figures(study, place, form=form, only=only)
    return [folder / path.name for path in written]


def _write_figures(study: Measured, folder: Path, *, form: Form, only: Collection[str]) -> list[Path]:
    stems = Counter(family.file_stem for family in study.families)
    declared = {name: make for finding in load_all() for name, make in finding.figures.items()}
    written: list[Path] = []
    for family in study.families:
        stem = family.file_stem
        if stems[stem] > 1:
            stem += "-" + hashlib.sha256(repr(family).encode()).hexdigest()[:6]
        for name in (name for name in NAMES if name in only):
            if name in declared and (figure := declared[name](study, family, form)):
                written += save_figure(figure, folder / f"{stem}-{name}", study.provenance, form)
                for beside, rows in figure.beside.items() if form == SCREEN else ():
                    written += [save_rows(folder / f"{stem}-{beside}", rows, study.provenance)]
    others = (named for finding in load_all() for named in finding.files(study, form))
    for stem, figure in others:
        if figure.name in only:
            written += save_figure(figure, folder / stem, study.provenance, form)
    return list(dict.fromkeys(written))


def save_figure(
    declared: Declared, stem: Path, provenance: Provenance, form: Form = SCREEN, *, captioned: bool = True
) -> list[Path]:
    """Draw a figure and write its files; one without panels is for screens, and has a CSV alone.

    A printed figure that is higher than a page is several: `<stem>`, `<stem>-2` and so on. Beside each is its caption,
    if it is to be `captioned`.
    """
    if not declared.panels:
        return [save_rows(stem, declared.rows, provenance)] if form == SCREEN else []
    written: list[Path] = []
    for number, page in enumerate(on_pages(declared, form), 1):
        own = stem.with_name(f"{stem.name}-{number}") if number > 1 else stem
        title = ": ".join(filter(None, (page.name, page.warning, page.title)))
        with drawing(form):
            figure = draw(page, form)
            if form.printed:
                finish_printed(figure)
            written += save_drawing(figure, own, title=title, rows=page.rows, provenance=provenance)
        if form.width is not None and captioned:
            where = provenance.short_line()
            text = figure_latex(figure.caption, name=own.name, width=form.width, origin=where)
            written.append(_write(own, "tex", text.encode()))
    return written


# Glyphs are drawn as paths: without the font a viewer would use a wider one. The PDF has text to search and copy.
# Without a salt the ids of markers are random.
_SVG: Any = {"svg.fonttype": "path", "svg.hashsalt": "dlscale", "svg.image_inline": True}


def save_drawing(
    figure: Figure, stem: Path, *, title: str, rows: Iterable[Mapping[str, Any]], provenance: Provenance
) -> list[Path]:
    """Call `save_pictures` and `save_rows` and return the paths of the files, the CSV last.

    Without rows there is no CSV: a file of several figures has them.
    """
    rows = list(rows)
    pictures = save_pictures(figure, stem, title=title, provenance=provenance)
    return [*pictures, save_rows(stem, rows, provenance)] if rows else pictures


def save_pictures(figure: Figure, stem: Path, *, title: str, provenance: Provenance) -> list[Path]:
    """Write `<stem>.png`, `.pdf` and `.svg` atomically, with title and origin in their metadata.

    No content depends on the time of drawing. The figure is laid out only once.
    """
    title_entry, origin = {"Title": printable(title)}, provenance.line()
    png = {**title_entry, "Description": origin, "Software": "dlscale"}
    # None keeps the date of drawing out of the file, so that a redraw gives equal bytes.
    pdf = {**title_entry, "Keywords": origin, "Creator": "dlscale", "CreationDate": None}
    svg = {**title_entry, "Description": origin, "Creator": "dlscale", "Date": None}
    written = [_draw(figure, stem, "png", png)]
    figure.set_layout_engine(None)  # the layout is kept; with an engine each form would be drawn twice
    return [*written, _draw(figure, stem, "pdf", pdf), _draw(figure, stem, "svg", svg)]


def save_rows(stem: Path, rows: Iterable[Mapping[str, Any]], provenance: Provenance) -> Path:
    """Write `<stem>.csv`: the rows of `--json`, at least one, with their origin in the last columns."""
    return _write(stem, "csv", to_csv(list(provenance.beside(rows))).encode())


def _draw(figure: Figure, stem: Path, form: str, metadata: Mapping[str, str | None]) -> Path:
    buffer = io.BytesIO()
    with matplotlib.rc_context(_SVG):
        # In vector formats this is the resolution of embedded images.
        figure.savefig(buffer, format=form, dpi=DOTS_PER_INCH, metadata=metadata)
    return _write(stem, form, buffer.getvalue())


def _write(stem: Path, form: str, content: bytes) -> Path:
    """Write through a temporary file, so that readers never see a partial one."""
    path = stem.with_name(f"{stem.name}.{form}")
    write_atomically(path, content, mode=0o644)  # readable by everybody
    return path
