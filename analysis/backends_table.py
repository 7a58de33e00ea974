"""Backends beside each other in the terminal: a table, and what it says in plain words."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator

from rich.console import RenderableType
from rich.markup import escape

from dlscale.analysis.backends import BAND, RESOLVABLE, Comparison, Contender
from dlscale.analysis.grid import Grid
from dlscale.analysis.statistics import LEVEL, Interval
from dlscale.analysis.words import backend_name, rate
from dlscale.benchmarks.record import Cell

COLUMNS = (
    *("backend", "exchange", "step [ms]", "communication\n[%]"),
    *("difference\n[%]", "compared with", "n"),
)
LEGEND = (
    "Backends: communication is by how much a step takes longer than over none on as many ranks, the "
    "computation, and its share of that. Waiting for the slowest rank is in it; where the exchange overlaps, it is "
    "what is left exposed. Difference: to the fastest other backend, as a share of the computation. Both with "
    f"{100 * LEVEL:.0f} % t intervals over n blocks of launches."
)


def render_comparison(comparison: Comparison) -> Iterator[RenderableType]:
    """A title, the table, and a sentence per pair of backends that was compared."""
    ranks = f"{comparison.num_ranks} ranks"
    kind = "" if comparison.evidence == "measured" else f" ({comparison.evidence})"
    if comparison.computation is None:
        yield escape(
            f"Backends on {ranks}{kind}: none on {ranks} was not measured, so communication cannot be told from "
            "computation."
        )
        return
    yield escape(
        f"Backends on {ranks}{kind}: without communication a step takes "
        f"{rate(_milliseconds(comparison.computation))} ms"
    )
    yield Grid(COLUMNS, [[tuple(_cells(one)) for one in comparison.contenders]])
    for sentence in sentences(comparison.contenders):
        yield escape(sentence)


def sentences(contenders: Iterable[Contender]) -> list[str]:
    """One for each pair that was compared, the fastest backend first, and one for each without numbers."""

    def cost(one: Contender) -> float:
        return one.exposed.center if one.exposed else math.inf

    told: list[set[str]] = []
    found = []
    for one in sorted(contenders, key=cost):
        pair = {one.cell.id, one.peer.id} if one.peer and one.difference else {one.cell.id}
        if pair not in told:
            told.append(pair)
            found.append(sentence(one))
    return found


def sentence(one: Contender) -> str:
    """The verdict in plain words."""
    name, peer = backend_name(one.cell), _name(one.peer)
    if one.difference is None:
        return f"{name}: insufficient data, {one.reason}."
    low, high = one.difference.low, one.difference.high
    if low is None or high is None:
        return f"{name} and {peer}: insufficient data, {one.reason}."
    if one.verdict == "not resolvable":
        return (
            f"{name} and {peer} are not resolvable: communication is only {_points(one.communication or 0.0)} % "
            f"of the computation ({100 * RESOLVABLE:.0f} % or more are needed)."
        )
    if one.verdict in ("faster", "slower"):
        ends = sorted((abs(low), abs(high)))
        return (
            f"{name} is {one.verdict} than {peer} by {_points(abs(one.difference.center))} % of the computation "
            f"[{_points(ends[0])}, {_points(ends[1])}]."
        )
    which = f"{name} is between {_side(low)} and {_side(high)}"
    if one.verdict == "alike":
        return f"{name} and {peer} are within {100 * BAND:.0f} % of the computation: {which}."
    if one.verdict == "not slower":
        return f"{name} is not {100 * BAND:.0f} % of the computation slower than {peer}: {which}."
    return f"{name} and {peer} are not told apart by so few launches: {which}."


def _cells(one: Contender) -> Iterator[str]:
    yield backend_name(one.cell)
    yield one.exchange or "-"
    yield rate(one.seconds_per_step and _milliseconds(one.seconds_per_step))
    yield _share(one.exposed)
    yield _share(one.difference, sign="+")
    yield _name(one.peer)
    counted = one.difference or one.exposed or one.seconds_per_step
    yield f"{counted.n}" if counted else "0"


def _name(cell: Cell | None) -> str:
    return "-" if cell is None else backend_name(cell)


def _milliseconds(seconds: Interval) -> Interval:
    return seconds.times(1000)


def _share(share: Interval | None, *, sign: str = "") -> str:
    if share is None:
        return "-"
    center = _points(share.center, sign=sign)
    if share.low is None or share.high is None:
        return center
    return f"{center} [{_points(share.low, sign=sign)}, {_points(share.high, sign=sign)}]"


def _points(share: float, *, sign: str = "") -> str:
    """In percent with one decimal, and never -0.0."""
    return f"{round(100 * share, 1) + 0.0:{sign}.1f}"


def _side(share: float) -> str:
    size = _points(abs(share))
    if size == "0.0":
        return "equally fast"
    return f"{size} % {'slower' if share > 0 else 'faster'}"
