"""Plots of predictions over nodes: a band per backend."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dlscale.analysis.declare import Tags
from dlscale.analysis.plots import Axis, Guide, Plot, Point, Series
from dlscale.benchmarks.records.prediction import Band, PredictionRecord

Bands = Mapping[tuple[str, str], Mapping[int, Band]]
"""(name, backend) of a curve -> nodes -> the band there."""


def efficiency_plot(
    records: Sequence[PredictionRecord], *, name: str = "predicted", title: str = "", says: str
) -> Plot:
    """The efficiencies of one training."""
    bands: dict[tuple[str, str], dict[int, Band]] = {}
    for record in records:
        bands.setdefault((record.carrier, record.backend), {})[record.num_nodes] = record.efficiency
    high = max((1.1, *(1.05 * record.efficiency.high for record in records)))
    return plot_over_nodes(
        bands,
        name=name,
        title=title,
        says=says,
        y=Axis(title="scaling efficiency [%]", kind="percent", low=0, high=high),
        guides=(Guide(label="ideal", y=1.0),),
    )


def plot_over_nodes(
    bands: Bands,
    *,
    y: Axis,
    says: str,
    name: str = "predicted",
    title: str = "",
    guides: tuple[Guide, ...] = (),
) -> Plot:
    """The bands of these curves."""
    nodes = sorted({num_nodes for own in bands.values() for num_nodes in own})
    return Plot(
        name=name,
        title=title,
        says=says,
        x=Axis(title="nodes", kind="log", ticks=tuple((float(count), f"{count}") for count in nodes)),
        y=y,
        series=tuple(
            Series(
                name=name,
                look=name,
                evidence="simulated",
                points=tuple(
                    Point(x=count, y=band.center, low=band.low, high=band.high) for count, band in own.items()
                ),
                tags=Tags(backend=backend),
                joined=len(own) > 1,
                band=True,
            )
            for (name, backend), own in bands.items()
        ),
        guides=guides,
    )
