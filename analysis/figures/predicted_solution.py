"""The figure of predicted times to solution: seconds of training over nodes, a look per backend and global batch."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path

from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from dlscale.analysis.figures.drawing import (
    SINGLE_COLUMN_INCHES,
    Curve,
    drawing,
    evidence_handles,
    line_style,
    looks_of,
    marker_style,
)
from dlscale.analysis.figures.layout import figure_with_axes
from dlscale.analysis.figures.predicted import BAND_ALPHA
from dlscale.analysis.figures.write import save_drawing
from dlscale.analysis.predict.solution import PredictedSolution, solution_row, solution_table
from dlscale.analysis.provenance import Provenance
from dlscale.base.files import make_folder


def draw_solutions(
    solutions: Sequence[PredictedSolution], stem: Path, *, commit: str, command: str
) -> list[Path]:
    """Write `<stem>.png`, `.pdf`, `.svg` and `.csv` and return their paths; no content depends on the time."""
    make_folder(stem.parent)
    curves: dict[str, list[PredictedSolution]] = {}
    for it in solutions:
        curves.setdefault(f"{it.curve.scenario.rule.backend}, batch {it.trained.global_batch}", []).append(it)
    names = [
        Curve(name=name, backend=points[0].curve.scenario.rule.backend, evidence="simulated", rows=())
        for name, points in curves.items()
    ]
    looks = looks_of(names)
    title = solution_table(solutions).caption
    rows = [solution_row(it) for it in solutions]
    doubts = dict.fromkeys(doubt for it in solutions for doubt in it.curve.scenario.doubts)
    with drawing():
        figure, (axes,) = figure_with_axes(
            width=SINGLE_COLUMN_INCHES,
            num_panels=1,
            title=title,
            warning="; ".join(["predicted, nothing was measured there", *doubts]),
            subtitle="band: interval of the samples and of the rate",
            handles=[
                *(
                    Line2D(
                        [], [], label=name, **line_style(look, joined=True), **marker_style(look, "simulated")
                    )
                    for name, look in looks.items()
                ),
                *evidence_handles(names),
            ],
            small_print=[
                f"Samples: {text}." for text in dict.fromkeys(it.trained.source for it in solutions)
            ],
        )
        axes.set_xscale("log", base=2)
        axes.set_yscale("log")
        axes.xaxis.set_major_locator(FixedLocator(sorted({it.point.num_nodes for it in solutions})))
        axes.xaxis.set_minor_locator(NullLocator())
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        for name, points in curves.items():
            nodes, look = [it.point.num_nodes for it in points], looks[name]
            bands = [it.seconds for it in points]
            axes.fill_between(
                nodes,
                [band.low for band in bands],
                [band.high for band in bands],
                color=look.color,
                alpha=BAND_ALPHA,
                linewidth=0,
            )
            axes.plot(
                nodes,
                [band.center for band in bands],
                **line_style(look, joined=len(nodes) > 1),
                **marker_style(look, "simulated"),
            )
        axes.set_xlabel("nodes")
        axes.set_ylabel("training to the target [s]")
        origin = Provenance(
            studies=("prediction of time to solution",),
            systems=(solutions[0].curve.scenario.network.name,),
            commits=(commit,),
            commands=(command,),
            data_hash=hashlib.sha256(json.dumps(rows, sort_keys=True).encode()).hexdigest(),
        )
        return save_drawing(figure, stem, title=title, rows=rows, provenance=origin)
