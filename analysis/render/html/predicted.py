"""Predictions on the page: beside the measured points of a plot, as a band and marks without a line, and as a table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

from dlscale.analysis.curves import Value, dodge
from dlscale.analysis.declare import Block, Point, Sentence, Series
from dlscale.analysis.figures.predicted import ASIDE
from dlscale.analysis.findings.predicted_points import (
    PREDICTED_POINTS,
    SimulatedPoint,
    comparison_sentence,
    curve_sentences,
    doubts_of,
    origin_sentence,
)
from dlscale.analysis.text import plural, points, with_limits

LEAD = "What a model expects (docs/prediction.md). No measured number on this page contains any of it."


def predicted_series(every: Sequence[SimulatedPoint], value: Value, measured: Sequence[str]) -> list[Series]:
    """A series for each curve of the points that have `value`; `measured` are the names of the plot's other series."""
    names = list(dict.fromkeys(measured))
    known = [point for point in every if value(point)]
    series = []
    for name, group in groupby(known, key=lambda point: point.name):
        members = tuple(group)
        place = ASIDE * (dodge(names.index(name), len(names)) if name in names else 1.0)
        series.append(
            Series(
                name=f"{name}, predicted",
                look=name,
                evidence=members[0].evidence,
                points=tuple(
                    Point(
                        x=point.record.num_ranks * place,
                        y=interval.center,
                        low=interval.low,
                        high=interval.high,
                        lines=tuple(_lines(point)),
                    )
                    for point in members
                    if (interval := value(point))
                ),
                tags=members[0].tags,
                band=True,
            )
        )
    return series


def predicted_notes(every: Sequence[SimulatedPoint]) -> tuple[str, ...]:
    """What to know of a plot's predictions; nothing without any."""
    doubts = doubts_of(every)
    return tuple(text for text in (origin_sentence(every), doubts and f"{doubts}.") if text)


def predicted_blocks(every: Sequence[SimulatedPoint]) -> Iterator[Block]:
    """The section's sentences and its table; nothing without predictions."""
    if not every:
        return
    if doubts := doubts_of(every):
        yield Sentence(text=f"{doubts}.", strong=True)
    for sentence in (comparison_sentence(every), *curve_sentences(every), origin_sentence(every)):
        if sentence:
            yield Sentence(text=sentence)
    yield PREDICTED_POINTS.of(every)


def _lines(point: SimulatedPoint) -> Iterator[str]:
    """The tooltip."""
    record = point.record
    yield f"{point.where}, simulated: nothing was run"
    yield f"{with_limits(point.throughput)} samples/s"
    if kept := point.efficiency_none:
        yield f"efficiency {with_limits(kept.times(100), '{:.1f}'.format)} %"
    yield (
        f"band: {100 * record.level:.0f} % of {plural(record.num_replicates, 'replicate')}, {record.engine} "
        f"{record.engine_version}"
    )
    if point.error is not None:
        yield f"{points(point.error, sign='+')} % of what was measured"
