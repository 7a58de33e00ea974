"""The figure of a rehearsal: the efficiency that the network allows."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator, PercentFormatter

from dlscale.analysis.figures.drawing import IDEAL, REFERENCE, SINGLE_COLUMN_INCHES, drawing
from dlscale.analysis.figures.layout import figure_with_axes
from dlscale.analysis.figures.write import save_drawing
from dlscale.analysis.findings.bounds import NetworkBound
from dlscale.analysis.provenance import Provenance
from dlscale.base.files import make_folder

BAND: dict[str, Any] = {"color": "#bbbbbb", "alpha": 0.5, "linewidth": 0}


def draw_rehearsal(
    bounds: Sequence[NetworkBound],
    stem: Path,
    *,
    title: str,
    subtitle: str,
    small_print: Sequence[str],
    provenance: Provenance,
) -> list[Path]:
    """Write `<stem>.png`, `.pdf`, `.svg` and `.csv` and return their paths; no content depends on the time."""
    make_folder(stem.parent)
    with drawing():
        handles = [
            Line2D([], [], **REFERENCE | {"label": "everything hidden"}),
            Line2D([], [], color="#bbbbbb", linewidth=5, alpha=0.5, label="down to nothing hidden"),
            Line2D([], [], **IDEAL),
        ]
        figure, (axes,) = figure_with_axes(
            width=SINGLE_COLUMN_INCHES,
            num_panels=1,
            title=title,
            warning="bounds, nothing was measured",
            subtitle=subtitle,
            handles=handles,
            small_print=small_print,
        )
        nodes = [bound.num_nodes for bound in bounds]
        axes.set_xscale("log", base=2)
        axes.xaxis.set_major_locator(FixedLocator(nodes))
        axes.xaxis.set_minor_locator(NullLocator())
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axes.axhline(1.0, **IDEAL)
        hidden, exposed = [bound.hidden for bound in bounds], [bound.exposed for bound in bounds]
        axes.fill_between(nodes, exposed, hidden, **BAND)
        axes.plot(nodes, hidden, **REFERENCE)
        axes.set_ylim(0, 1.1)
        axes.yaxis.set_major_formatter(PercentFormatter(1.0, symbol=""))
        axes.set_xlabel("nodes")
        axes.set_ylabel("scaling efficiency [%]")
        return save_drawing(figure, stem, title=title, rows=_rows(bounds), provenance=provenance)


def rehearsal_origin(
    bounds: Sequence[NetworkBound], *, study: str, system: str, commit: str, command: str
) -> Provenance:
    """The origin of bounds, which have no records: the hash covers the bounds themselves."""
    content = json.dumps([asdict(bound) for bound in bounds]).encode()
    return Provenance(
        studies=(study,),
        systems=(system,),
        commits=(commit,),
        commands=(command,),
        data_hash=hashlib.sha256(content).hexdigest(),
    )


def _rows(bounds: Sequence[NetworkBound]) -> Iterator[dict[str, Any]]:
    for bound in bounds:
        numbers = {
            "compute_seconds": bound.compute_seconds,
            "wire_seconds": bound.wire_seconds,
            "efficiency_hidden": bound.hidden,
            "efficiency_exposed": bound.exposed,
        }
        rounded = {name: f"{number:.6g}" for name, number in numbers.items()}
        yield {"num_nodes": bound.num_nodes, "num_ranks": bound.num_ranks} | rounded
