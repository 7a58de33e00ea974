"""Curves over ranks as plots: axes, series and sentences that findings about throughput and efficiency share."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from dlscale.analysis.curves import Curve, Value, missing_from
from dlscale.analysis.declare import tags_of
from dlscale.analysis.findings.predicted_points import PlacedPrediction
from dlscale.analysis.findings.scaling import ScalingRow
from dlscale.analysis.plots import Axis, Guide, Point, Series
from dlscale.analysis.statistics import Interval
from dlscale.analysis.text import backend_name, interval_note, listed, number, plural, rate, with_limits

Shown = ScalingRow | PlacedPrediction  # what has a place over ranks
Lines = Callable[[Curve, Any, Interval], tuple[str, ...]]  # of a curve's row
STEPS = (
    (12, (1.0, 2.0, 5.0)),
    (3, (1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 7.0)),
    (0, tuple(n / 5 for n in range(5, 50))),
)
WALL = "1 sample per rank"  # beyond it, ranks share samples
IDEAL = Guide(label="ideal", y=1.0)
MOST_IN_A_COLUMN = 5  # curves of a figure


def against_none(row: Shown) -> Interval | None:
    """The efficiency against 1 rank without communication."""
    return row.efficiency_none


def against_backend(row: ScalingRow) -> Interval | None:
    """The efficiency against 1 rank of the same backend."""
    return row.efficiency_backend


def throughput_of(row: Shown) -> Interval | None:
    """Samples per second over all ranks."""
    return row.throughput


def is_base(row: ScalingRow) -> bool:
    """Whether this is the base case without communication, with a number."""
    own = (row.cell.control, row.cell.backend, row.cell.num_ranks)
    return own == ("train", "none", row.base_ranks) and row.throughput is not None


def proportional(each: float, x: Axis, *, power: int = 1) -> Guide:
    """The ideal line `each` * ranks^`power`, from edge to edge."""
    ends = (x.low or 1.0, x.high or 1.0)
    return Guide(label="ideal", points=tuple((ranks, each * ranks**power) for ranks in ends))


def wall(rows: Iterable[ScalingRow], y: Axis) -> tuple[Guide, ...]:
    """The number of ranks at which each has one sample, of strong scaling beyond it; else nothing."""
    strong = [row for row in rows if row.cell.scaling_mode == "strong"]
    batch = min((row.cell.global_batch for row in strong), default=0)
    if not any(row.cell.split > 1 and row.cell.num_ranks >= batch for row in strong):
        return ()
    ends = (y.low or 0.0, y.high or 1.0)
    return (Guide(label=WALL, points=tuple((float(batch), end) for end in ends)),)


def samples_text(interval: Interval) -> str:
    """A throughput with its interval and unit."""
    return f"{rate(interval)} samples/s"


Say = Callable[[Interval], str]


def rate_axis(rows: Sequence[Shown]) -> Axis:
    """A logarithmic axis with plain numbers: steps of 1, 2 and 5, and finer ones if it spans little."""
    intervals = [row.throughput for row in rows if row.throughput]
    low = min(interval.center if interval.low is None else interval.low for interval in intervals) / 1.2
    high = max(interval.center if interval.high is None else interval.high for interval in intervals) * 1.2
    steps = next(steps for span, steps in STEPS if high / low > span)
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    places = [place for decade in decades for step in steps if low <= (place := step * 10.0**decade) <= high]
    ticks = tuple((place, number(float(f"{place:.2g}"))) for place in places)
    return Axis(title="throughput [samples/s]", kind="log", ticks=ticks, low=low, high=high)


def series_of(curves: Sequence[Curve], value: Value, *, say: Say, unit: str) -> tuple[Series, ...]:
    """The series of the curves; `say` formats a value, and `unit` is what its n counts: `launch` or `block`."""
    return plain_series(
        curves,
        value,
        lines=lambda curve, row, interval: (
            *_where(curve, row),
            say(interval),
            interval_note(interval, unit),
            *_missing(row),
        ),
    )


def plain_series(
    curves: Sequence[Curve],
    value: Value,
    *,
    at: Callable[[Any], float] = lambda row: float(row.cell.num_ranks),
    lines: Lines = lambda curve, _, interval: (curve.name, with_limits(interval)),
) -> tuple[Series, ...]:
    """The series of curves of any rows; `lines` are those of a point's tooltip."""
    return tuple(
        Series(
            name=curve.name,
            look=curve.name,
            evidence=curve.evidence,
            points=tuple(
                Point(
                    x=at(row),
                    y=interval.center,
                    low=interval.low,
                    high=interval.high,
                    lines=lines(curve, row, interval),
                )
                for row in curve.rows
                if (interval := value(row))
            ),
            tags=tags_of(curve.rows[0].cell),
            joined=curve.joined,
        )
        for curve in curves
    )


def says(what: str, rows: Iterable[ScalingRow], value: Value, say: Say) -> str:
    """A sentence with the values on the most ranks, in the order of the rows."""
    trained = [
        (row.cell, interval) for row in rows if row.cell.control == "train" and (interval := value(row))
    ]
    most = max((cell.num_ranks for cell, _ in trained), default=0)
    last = [(cell, interval) for cell, interval in trained if cell.num_ranks == most]
    values = listed([f"{backend_name(cell)} {say(interval)}" for cell, interval in last])
    return f"{what} on {plural(most, 'rank')}: {values}."


def rank_axis(rows: Sequence[Any]) -> Axis:
    """A base-2 axis with plain numbers, of rows with a cell; if the number of nodes varies, it is below the ranks."""
    nodes: dict[int, set[int]] = {}
    for row in rows:
        nodes.setdefault(row.cell.num_ranks, set()).add(row.cell.num_nodes)
    ranks = sorted(nodes)
    kinds = set().union(*nodes.values())
    if len(kinds) == 1:
        title = f"ranks, on {plural(min(kinds), 'node')}"
        labels = {count: f"{count}" for count in ranks}
    else:
        title = "ranks, below them nodes"
        labels = {count: f"{count}\n{'/'.join(map(str, sorted(nodes[count])))}" for count in ranks}
    return Axis(
        title=title,
        kind="log",
        ticks=tuple((float(count), labels[count]) for count in ranks),
        low=ranks[0] * 2**-0.45,
        high=ranks[-1] * 2**0.45,
    )


def without_point(rows: Sequence[ScalingRow], curves: Sequence[Curve]) -> tuple[str, ...]:
    """A note about trained cells without a point in the plot; none if all have one."""
    missing = missing_from(rows, curves)
    return (f"No point: {', '.join(missing)}.",) if missing else ()


def _where(curve: Curve, row: ScalingRow) -> tuple[str]:
    kind = "" if curve.evidence == "measured" else f", {curve.evidence}"
    return (
        f"{curve.name}, {plural(row.cell.num_ranks, 'rank')} on {plural(row.cell.num_nodes, 'node')}{kind}",
    )


def _missing(row: ScalingRow) -> tuple[str, ...]:
    if row.num_launches == row.num_planned:
        return ()
    return (f"{row.num_launches} of {row.num_planned} launches gave a number",)
