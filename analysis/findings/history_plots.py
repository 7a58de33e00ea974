"""Plots of a history: all cells of a training relative to how they began, and each cell with the usual spread."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import groupby
from statistics import median
from typing import Any

from dlscale.analysis.declare import family_tags, tags_of
from dlscale.analysis.families import Family
from dlscale.analysis.finding import Finding
from dlscale.analysis.findings.history import (
    HISTORY,
    STUDIES,
    HistoryRow,
    cell_text,
    date_of,
    history_data,
    history_rows,
    neighbours,
    sentences,
    signed,
    value_text,
)
from dlscale.analysis.plots import Area, Axis, Figure, Guide, Plot, Point, Series
from dlscale.analysis.provenance import Provenance
from dlscale.analysis.records import start_time
from dlscale.analysis.text import backend_name, plural, training_title, workload_title
from dlscale.benchmarks.records.expectations import PastStudy

BAND = 2.0  # standard deviations to either side


def history_findings(studies: Sequence[PastStudy]) -> tuple[Finding[Any], ...]:
    """What is shown of a history, as findings of its newest study."""
    rows = history_rows(studies)
    return (
        Finding(
            name="history",
            title="Over time",
            answers=True,
            compute=lambda _: rows,
            table=HISTORY,
            sentences=sentences,
            plots=plots,
        ),
        Finding(
            name="studies",
            title="Studies",
            answers=True,
            compute=lambda _: neighbours(studies),
            table=STUDIES,
        ),
    )


def plots(rows: Sequence[HistoryRow]) -> Iterator[Plot]:
    """All cells of a training and metric in one plot, relative to how they began; then a plot of each."""
    for index, own in enumerate(trained(rows)):
        yield replace(overview(own), name=f"overview-{index}")
    several = len({row.family for row in rows}) > 1
    for index, row in enumerate(rows):
        yield history_plot(row, name=f"history-{index}", training=several)


def trained(rows: Sequence[HistoryRow]) -> list[list[HistoryRow]]:
    """The rows of each training and metric."""
    groups: dict[tuple[Family, str], list[HistoryRow]] = {}
    for row in rows:
        groups.setdefault((row.family, row.metric.name), []).append(row)
    return list(groups.values())


def overview(rows: Sequence[HistoryRow]) -> Plot:
    """The cells of one training and metric over time, relative to their first stretch, with the usual spread."""
    first, moments = rows[0], _moments(rows[0].studies)
    spread = BAND * median(row.shift.spread if row.shift else 0.0 for row in rows)
    changed = sum(row.changed for row in rows)
    values = [point.y for row in rows for point in _relative(row, moments).points]
    low, high = min([math.exp(-spread), *values]), max([math.exp(spread), *values])
    room = 0.05 * (high - low)
    y = Axis(title="of the beginning [%]", kind="percent", low=low - room, high=high + room)
    title = first.metric.title.capitalize()
    return Plot(
        name="overview",
        title=f"{title}, {training_title(first.family)}",
        says=f"{title} of {plural(len(rows), 'cell')} over {len(moments)} studies: {changed} changed.",
        x=Axis(title="begin of the study (UTC)", kind="time"),
        y=y,
        series=tuple(_relative(row, moments) for row in rows),
        guides=_version_lines(first.studies, y),
        areas=(Area(x=(None, None), y=(math.exp(-spread), math.exp(spread)), text=""),),
        notes=tuple(
            f"{date_of(one.study, first.studies)}: {one.text}."
            for one in neighbours(first.studies)
            if one.changed
        ),
        table="history",
        tags=family_tags(first.family),
        flag="begin of a change" if changed else "",
    )


def _version_lines(studies: Sequence[PastStudy], y: Axis) -> tuple[Guide, ...]:
    """An upright line where something recorded changed, named for the first of it."""
    ends = (y.low or 0.0, y.high or 1.0)
    return tuple(
        Guide(
            label=f"{one.changed[0][0]}{f' +{len(one.changed) - 1}' * (len(one.changed) > 1)}",
            points=tuple((moment, end) for end in ends),
        )
        for one, moment in zip(neighbours(studies), _moments(studies), strict=True)
        if one.changed
    )


def _relative(row: HistoryRow, moments: Sequence[float]) -> Series:
    base = next(level for level in row.levels if not math.isnan(level))
    places = {shift.place for shift in row.found}
    last = max(place for place, value in enumerate(row.values) if value is not None)
    return Series(
        name=cell_text(row.cell),
        look=backend_name(row.cell),
        evidence=row.evidence,
        points=tuple(
            Point(
                x=moments[place],
                y=value / base,
                lines=(row.where, date_of(row.studies[place], row.studies), f"{signed(value / base - 1)} %"),
                label=cell_text(row.cell) if row.changed and place == last else "",
                flagged=place in places,
            )
            for place, value in enumerate(row.values)
            if value is not None
        ),
        joined=row.changed,
        tags=tags_of(row.cell),
    )


def _moments(studies: Sequence[PastStudy]) -> list[float]:
    return [1000 * start_time(study.begun).timestamp() for study in studies]


def history_plot(row: HistoryRow, *, name: str, training: bool = False) -> Plot:
    """The values of a row, its band, and a line where a recorded version changed."""
    moments = _moments(row.studies)
    spread = BAND * row.shift.spread if row.shift else 0.0
    known = [(place, value) for place, value in enumerate(row.values) if value is not None]
    first = {shift.place for shift in row.found}
    band = tuple(
        Point(
            x=moments[place],
            y=row.levels[place],
            low=row.levels[place] * math.exp(-spread),
            high=row.levels[place] * math.exp(spread),
        )
        for place, _ in known
    )
    low = min([point.low or point.y for point in band] + [value for _, value in known])
    high = max([point.high or point.y for point in band] + [value for _, value in known])
    room = 0.08 * (high - low or high)
    y = Axis(
        title=f"{row.metric.title} [{row.metric.unit or '%'}]",
        kind="linear" if row.metric.unit else "percent",
        low=low - room,
        high=high + room,
    )
    what = [workload_title(row.family.workload), row.family.framework] if training else []
    return Plot(
        name=name,
        title=", ".join([*what, row.where]),
        says=f"{row.where} in {len(known)} studies: {row.verdict}.",
        x=Axis(title="begin of the study (UTC)", kind="time"),
        y=y,
        series=(
            Series(
                name="usual",
                look=backend_name(row.cell),
                evidence=row.evidence,
                points=band,
                band=True,
                stairs=True,
                tags=tags_of(row.cell),
            ),
            Series(
                name=backend_name(row.cell),
                look=backend_name(row.cell),
                evidence=row.evidence,
                points=tuple(
                    Point(
                        x=moments[place],
                        y=value,
                        lines=(
                            row.studies[place].begun[:16].replace("T", " "),
                            value_text(row.metric, value).text,
                            row.studies[place].place,
                        ),
                        flagged=place in first,
                    )
                    for place, value in known
                ),
                joined=True,
                tags=tags_of(row.cell),
            ),
        ),
        guides=_version_lines(row.studies, y),
        table="history",
        tags=tags_of(row.cell),
        flag="changed" if first else "",
    )


def history_figures(rows: Sequence[HistoryRow], origin: Provenance) -> Iterator[tuple[str, Figure]]:
    """A figure per training, a panel per metric with all cells, and the name of its file."""
    for family, group in groupby(trained(rows), key=lambda own: own[0].family):
        own = list(group)
        told = [text.text for text in sentences([row for rows_ in own for row in rows_])]
        yield (
            f"{family.file_stem}-history",
            Figure(
                name="history",
                title=training_title(family),
                subtitle=f"band: {BAND:g} standard deviations between studies",
                small_print=(" ".join(told), f"Data sha256 {origin.data_hash[:12]}."),
                panels=tuple(_with_dates(overview(rows_), own[0][0].studies) for rows_ in own),
                rows=[history_data(row) for rows_ in own for row in rows_],
            ),
        )


def _with_dates(plot: Plot, studies: Sequence[PastStudy]) -> Plot:
    """The plot with dates written out, as figures have no axis of time."""
    moments = _moments(studies)
    room = 0.05 * (moments[-1] - moments[0] or 1.0)
    days = [date_of(study, studies)[5:].replace(" ", "\n") for study in studies]
    ticks = tuple(zip(moments, days, strict=True))
    axis = Axis(title="begin of the study", ticks=ticks, low=moments[0] - room, high=moments[-1] + room)
    return replace(plot, x=axis, title=plot.title.partition(",")[0])
