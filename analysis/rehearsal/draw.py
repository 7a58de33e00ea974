"""The figure of a rehearsal: efficiency that the network allows, and room for what is predicted and measured."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator, PercentFormatter

from dlscale.analysis.figures.page import page
from dlscale.analysis.figures.style import DOTS_PER_INCH, IDEAL, REFERENCE, SINGLE_COLUMN_INCHES, drawing
from dlscale.analysis.rehearsal.bound import Bound
from dlscale.models.files import make_folder, write_atomically

BAND: dict[str, Any] = {"color": "#bbbbbb", "alpha": 0.5, "linewidth": 0}


def draw(
    found: Sequence[Bound], stem: Path, *, title: str, subtitle: str, small_print: Sequence[str]
) -> list[Path]:
    """`<stem>.png`, `.pdf` and `.csv`; what was written. Nothing in them depends on when."""
    make_folder(stem.parent)
    with drawing():
        handles = [
            Line2D([], [], **REFERENCE | {"label": "everything hidden"}),
            Line2D([], [], color="#bbbbbb", linewidth=5, alpha=0.5, label="down to nothing hidden"),
            Line2D([], [], **IDEAL),
        ]
        figure, (axes,) = page(
            width=SINGLE_COLUMN_INCHES,
            num_panels=1,
            title=title,
            warning="bounds, nothing was measured",
            subtitle=subtitle,
            handles=handles,
            small_print=small_print,
        )
        nodes = [bound.num_nodes for bound in found]
        axes.set_xscale("log", base=2)
        axes.xaxis.set_major_locator(FixedLocator(nodes))
        axes.xaxis.set_minor_locator(NullLocator())
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axes.axhline(1.0, **IDEAL)
        hidden, exposed = [bound.hidden for bound in found], [bound.exposed for bound in found]
        axes.fill_between(nodes, exposed, hidden, **BAND)
        axes.plot(nodes, hidden, **REFERENCE)
        axes.set_ylim(0, 1.1)
        axes.yaxis.set_major_formatter(PercentFormatter(1.0, symbol=""))
        axes.set_xlabel("nodes")
        axes.set_ylabel("scaling efficiency [%]")
        png, pdf = io.BytesIO(), io.BytesIO()
        figure.savefig(png, format="png", dpi=DOTS_PER_INCH, metadata={"Title": title, "Software": "dlscale"})
        figure.savefig(
            pdf, format="pdf", metadata={"Title": title, "Creator": "dlscale", "CreationDate": None}
        )
    written = []
    for suffix, content in ((".png", png.getvalue()), (".pdf", pdf.getvalue()), (".csv", _csv(found))):
        path = stem.with_name(stem.name + suffix)
        write_atomically(path, content, mode=0o644)  # made to be shown
        written.append(path)
    return written


def _csv(found: Sequence[Bound]) -> bytes:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(
        [
            "num_nodes",
            "num_ranks",
            "compute_seconds",
            "wire_seconds",
            "efficiency_hidden",
            "efficiency_exposed",
        ]
    )
    for bound in found:
        numbers = (bound.compute_seconds, bound.wire_seconds, bound.hidden, bound.exposed)
        writer.writerow([bound.num_nodes, bound.num_ranks, *(f"{number:.6g}" for number in numbers)])
    return text.getvalue().encode()
