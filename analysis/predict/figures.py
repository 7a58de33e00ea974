"""Figures of predictions over nodes: efficiency with its band, and the time to a target; a look per curve."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator, PercentFormatter

from dlscale.analysis.curves import Curve
from dlscale.analysis.figures.drawing import (
    IDEAL,
    SINGLE_COLUMN_INCHES,
    drawing,
    evidence_handles,
    line_style,
    looks_of,
    marker_style,
)
from dlscale.analysis.figures.figure import BAND_ALPHA
from dlscale.analysis.figures.layout import figure_with_axes
from dlscale.analysis.figures.write import save_drawing
from dlscale.analysis.predict.loggp import ENGINE, ENGINE_VERSION
from dlscale.analysis.predict.prediction import PredictedCurve, band_of
from dlscale.analysis.predict.render import prediction_rows, rows_digest, title
from dlscale.analysis.predict.solution import PredictedSolution, solution_row, solution_table
from dlscale.analysis.provenance import Provenance
from dlscale.base.files import make_folder
from dlscale.benchmarks.records.prediction import Band

MOST_TICKS = 8


def draw_prediction(
    curves: Sequence[PredictedCurve],
    stem: Path,
    *,
    small_print: Sequence[str],
    commit: str,
    command: str,
) -> list[Path]:
    """Write `<stem>.png`, `.pdf`, `.svg` and `.csv` and return their paths; no content depends on the time."""
    scenario = curves[0].scenario
    bands = {
        (curve.scenario.rule.backend, curve.scenario.rule.backend): {
            point.num_nodes: band_of(point.efficiency) for point in curve.points
        }
        for curve in curves
    }
    doubts = dict.fromkeys(doubt for curve in curves for doubt in curve.scenario.doubts)
    with _drawn(
        bands,
        title=title(scenario),
        warning="; ".join(["predicted, nothing was measured here", *doubts]),
        subtitle=f"engine {ENGINE} {ENGINE_VERSION}; band: 5 to 95 %",
        small_print=small_print,
        handles=[Line2D([], [], **IDEAL)],
    ) as (figure, axes):
        axes.axhline(1.0, **IDEAL)
        axes.set_ylim(0, max(1.1, *(1.05 * band.high for own in bands.values() for band in own.values())))
        axes.yaxis.set_major_formatter(PercentFormatter(1.0, symbol=""))
        axes.set_ylabel("scaling efficiency [%]")
        origin = Provenance(
            studies=(f"prediction of {scenario.scaling_mode} scaling",),
            systems=(scenario.network.name,),
            commits=(commit,),
            commands=(command,),
            data_hash=rows_digest(curves),
        )
        make_folder(stem.parent)
        return save_drawing(
            figure, stem, title=title(scenario), rows=prediction_rows(curves), provenance=origin
        )


def draw_solutions(
    solutions: Sequence[PredictedSolution], stem: Path, *, commit: str, command: str
) -> list[Path]:
    """Write `<stem>.png`, `.pdf`, `.svg` and `.csv` and return their paths; no content depends on the time."""
    bands: dict[tuple[str, str], dict[int, Band]] = {}
    for it in solutions:
        backend = it.curve.scenario.rule.backend
        name = f"{backend}, batch {it.trained.global_batch}"
        bands.setdefault((name, backend), {})[it.point.num_nodes] = it.seconds
    doubts = dict.fromkeys(doubt for it in solutions for doubt in it.curve.scenario.doubts)
    caption, rows = solution_table(solutions).caption, [solution_row(it) for it in solutions]
    with _drawn(
        bands,
        title=caption,
        warning="; ".join(["predicted, nothing was measured there", *doubts]),
        subtitle="band: interval of the samples and of the rate",
        small_print=[f"Samples: {text}." for text in dict.fromkeys(it.trained.source for it in solutions)],
    ) as (figure, axes):
        axes.set_yscale("log")
        axes.set_ylabel("training to the target [s]")
        origin = Provenance(
            studies=("prediction of time to solution",),
            systems=(solutions[0].curve.scenario.network.name,),
            commits=(commit,),
            commands=(command,),
            data_hash=hashlib.sha256(json.dumps(rows, sort_keys=True).encode()).hexdigest(),
        )
        make_folder(stem.parent)
        return save_drawing(figure, stem, title=caption, rows=rows, provenance=origin)


@contextmanager
def _drawn(
    bands: Mapping[tuple[str, str], Mapping[int, Band]],
    *,
    title: str,
    warning: str,
    subtitle: str,
    small_print: Sequence[str],
    handles: Sequence[Line2D] = (),
) -> Iterator[tuple[Figure, Axes]]:
    """A figure with (name, backend) -> nodes -> band; `handles` are shown beside its looks and kinds of evidence."""
    curves = [Curve(name=name, backend=backend, evidence="simulated", rows=()) for name, backend in bands]
    looks = looks_of(curves)
    with drawing():
        figure, (axes,) = figure_with_axes(
            width=SINGLE_COLUMN_INCHES,
            num_panels=1,
            title=title,
            warning=warning,
            subtitle=subtitle,
            handles=[
                *(
                    Line2D(
                        [], [], label=name, **line_style(look, joined=True), **marker_style(look, "simulated")
                    )
                    for name, look in looks.items()
                ),
                *handles,
                *evidence_handles(curves),
            ],
            small_print=small_print,
        )
        nodes = sorted({num_nodes for own in bands.values() for num_nodes in own})
        axes.set_xscale("log", base=2)
        axes.xaxis.set_major_locator(FixedLocator(nodes[:: max(1, -(-len(nodes) // MOST_TICKS))]))
        axes.xaxis.set_minor_locator(NullLocator())
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axes.set_xlabel("nodes")
        for (name, _), own in bands.items():
            look, limits = looks[name], list(own.values())
            low, high = [band.low for band in limits], [band.high for band in limits]
            axes.fill_between(list(own), low, high, color=look.color, alpha=BAND_ALPHA, linewidth=0)
            axes.plot(
                list(own),
                [band.center for band in limits],
                **line_style(look, joined=len(own) > 1),
                **marker_style(look, "simulated"),
            )
        yield figure, axes
