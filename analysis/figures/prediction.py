"""The figure of a prediction: efficiency over nodes with its band, a look per backend, markers of simulated points."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator, PercentFormatter

from dlscale.analysis.figures.drawing import (
    IDEAL,
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
from dlscale.analysis.predict.loggp import ENGINE, ENGINE_VERSION
from dlscale.analysis.predict.prediction import PredictedCurve
from dlscale.analysis.provenance import Provenance
from dlscale.analysis.render.prediction import prediction_rows, rows_digest, title
from dlscale.base.files import make_folder


def draw_prediction(
    curves: Sequence[PredictedCurve],
    stem: Path,
    *,
    small_print: Sequence[str],
    commit: str,
    command: str,
) -> list[Path]:
    """Write `<stem>.png`, `.pdf`, `.svg` and `.csv` and return their paths; no content depends on the time."""
    make_folder(stem.parent)
    scenario = curves[0].scenario
    names = [
        Curve(
            name=curve.scenario.rule.backend,
            backend=curve.scenario.rule.backend,
            evidence="simulated",
            rows=(),
        )
        for curve in curves
    ]
    looks = looks_of(names)
    doubts = dict.fromkeys(doubt for curve in curves for doubt in curve.scenario.doubts)
    with drawing():
        figure, (axes,) = figure_with_axes(
            width=SINGLE_COLUMN_INCHES,
            num_panels=1,
            title=title(scenario),
            warning="; ".join(["predicted, nothing was measured here", *doubts]),
            subtitle=f"engine {ENGINE} {ENGINE_VERSION}; band: 5 to 95 %",
            handles=[
                *(
                    Line2D(
                        [], [], label=name, **line_style(look, joined=True), **marker_style(look, "simulated")
                    )
                    for name, look in looks.items()
                ),
                Line2D([], [], **IDEAL),
                *evidence_handles(names),
            ],
            small_print=small_print,
        )
        nodes = [point.num_nodes for point in curves[0].points]
        axes.set_xscale("log", base=2)
        axes.xaxis.set_major_locator(FixedLocator(nodes[:: max(1, -(-len(nodes) // 8))]))
        axes.xaxis.set_minor_locator(NullLocator())
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axes.axhline(1.0, **IDEAL)
        highest = 1.1
        for curve in curves:
            look = looks[curve.scenario.rule.backend]
            efficiencies = [point.efficiency for point in curve.points]
            low, high = ([getattr(it, side) for it in efficiencies] for side in ("low", "high"))
            axes.fill_between(nodes, low, high, color=look.color, alpha=BAND_ALPHA, linewidth=0)
            axes.plot(
                nodes,
                [it.center for it in efficiencies],
                **line_style(look, joined=len(nodes) > 1),
                **marker_style(look, "simulated"),
            )
            highest = max(highest, 1.05 * max(high))
        axes.set_ylim(0, highest)
        axes.yaxis.set_major_formatter(PercentFormatter(1.0, symbol=""))
        axes.set_xlabel("nodes")
        axes.set_ylabel("scaling efficiency [%]")
        origin = Provenance(
            studies=(f"prediction of {scenario.scaling_mode} scaling",),
            systems=(scenario.network.name,),
            commits=(commit,),
            commands=(command,),
            data_hash=rows_digest(curves),
        )
        return save_drawing(
            figure, stem, title=title(scenario), rows=prediction_rows(curves), provenance=origin
        )
