"""Plots in characters, for work over ssh.

They are drawn by plotext: a mark per curve, intervals as bars, ASCII where Unicode is not safe. plotext keeps one
global figure, which is cleared before and after. In a waterfall each part begins where the one before it ended.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import plotext
from rich.console import Console, ConsoleOptions, RenderableType
from rich.text import Text

from dlscale.analysis.plots import IN_TOTAL, Axis, Loss, Plot, Point
from dlscale.analysis.render.theme import Look
from dlscale.analysis.text import share_text

MARKS = "ox+*#@%&"
MAX_WIDTH, HEIGHT = 100, 18
SHARES = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0, 1.2)  # ticks of an axis in percent
DODGE = 0.05  # of the axis, so that curves do not cover each other
MIN_HEIGHT_OF_BAR = 1.5  # characters; a shorter interval is inside its mark
INK = "#000000"  # a colour that is the terminal's own
ASCII = str.maketrans(
    {
        "│": "|",
        "┤": "|",
        "├": "|",
        "─": "-",
        "┼": "|",
        "┌": "+",
        "┐": "+",
        "└": "+",
        "┘": "+",
        "┬": "+",
        "┴": "+",
    }
)


def is_plain(console: Console, options: ConsoleOptions) -> bool:
    """Whether to write only ASCII without colours: for files, pipes, and if NO_COLOR is set."""
    return not console.is_terminal or console.no_color or options.ascii_only


@dataclass(frozen=True, slots=True)
class Chart:
    """`looks` gives each series its colour."""

    plot: Plot
    looks: dict[str, Look]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
        bare = is_plain(console, options)
        width = min(options.max_width, MAX_WIDTH)
        lines = _drawn(self.plot, {} if bare else self._colours(), width).rstrip().splitlines()
        text = "\n".join(line.rstrip() for line in lines)
        yield Text(self.plot.title, style="bold")
        yield self._legend(bare=bare)
        yield Text(plotext.uncolorize(text).translate(ASCII)) if bare else Text.from_ansi(text)
        yield Text(self.plot.says, style="dim")
        yield ""

    def _legend(self, *, bare: bool) -> Text:
        text = Text()
        for mark, name in _marks(self.plot).items():
            colour = None if bare else self._colours().get(name)
            style = f"rgb({colour[0]},{colour[1]},{colour[2]})" if colour else ""
            text.append(f"{mark} {name}   ", style=style)
        return text

    def _colours(self) -> dict[str, tuple[int, ...]]:
        return {
            name: tuple(bytes.fromhex(look.color[1:]))
            for name, look in self.looks.items()
            if look.color != INK
        }


def _marks(plot: Plot) -> dict[str, str]:
    names = list(dict.fromkeys(series.name for series in plot.series))
    return {MARKS[index % len(MARKS)]: name for index, name in enumerate(names)}


def _drawn(plot: Plot, colours: dict[str, tuple[int, ...]], width: int) -> str:
    x, y = _scale(plot.x), _scale(plot.y)
    marks = {name: mark for mark, name in _marks(plot).items()}
    ends = _ends(plot, y)
    plotext.clear_figure()
    plotext.theme("clear")
    plotext.plotsize(width, HEIGHT)
    _axes(plot, x, y, ends)
    for guide in plot.guides:
        if guide.y is not None:
            plotext.hline(y(guide.y))
    places = list(dict.fromkeys(point.x for series in plot.series for point in series.points))
    span = abs(x(max(places)) - x(min(places))) or 1.0
    for series in plot.series:
        options: dict[str, Any] = {"color": colours[series.name]} if series.name in colours else {}
        aside = DODGE * span * (list(marks).index(series.name) - (len(marks) - 1) / 2) / 2
        xs = [x(point.x) + aside for point in series.points]
        for at, point in zip(xs, series.points, strict=True):
            bar = _bar(point, y, (ends[1] - ends[0]) / HEIGHT)
            if bar:
                plotext.plot([at, at], bar, marker="│", **options)
        plotext.scatter(xs, [y(point.y) for point in series.points], marker=marks[series.name], **options)
    built: str = plotext.build()
    plotext.clear_figure()
    return built


def _axes(
    plot: Plot, x: Callable[[float], float], y: Callable[[float], float], ends: tuple[float, float]
) -> None:
    plotext.xlabel(plot.x.title)
    plotext.ylabel(plot.y.title)
    plotext.ylim(*ends)
    if plot.x.ticks:
        plotext.xlim(x(plot.x.low or 1.0), x(plot.x.high or 1.0))
        plotext.xticks([x(at) for at, _ in plot.x.ticks], [label.split("\n")[0] for _, label in plot.x.ticks])
    elif plot.x.kind == "time":  # milliseconds since 1970
        times = [point.x for series in plot.series for point in series.points]
        places = [min(times) + part * (max(times) - min(times)) / 4 for part in range(5)]
        plotext.xticks(places, [f"{datetime.fromtimestamp(at / 1000, UTC):%H:%M}" for at in places])
    ticks = plot.y.ticks or tuple((share, f"{100 * share:.0f}") for share in SHARES)
    if plot.y.kind in ("log", "percent"):
        shown = [(y(at), label) for at, label in ticks if ends[0] <= y(at) <= ends[1]]
        plotext.yticks([at for at, _ in shown], [label for _, label in shown])


def _scale(axis: Axis) -> Callable[[float], float]:
    if axis.kind == "log":
        return math.log2
    return (lambda value: 100 * value) if axis.kind == "percent" else (lambda value: value)


def _ends(plot: Plot, y: Callable[[float], float]) -> tuple[float, float]:
    values = [y(point.y) for series in plot.series for point in series.points]
    if plot.y.low is not None and plot.y.high is not None:
        values = [y(plot.y.low), y(plot.y.high)]
    low, high = min(values), max(values)
    around = 0.0 if low < high else 0.05 * abs(high) or 1.0  # a single value stands in the middle
    return low - around, high + around


def _bar(point: Point, y: Callable[[float], float], character: float) -> list[float] | None:
    if (
        point.low is None
        or point.high is None
        or y(point.high) - y(point.low) < MIN_HEIGHT_OF_BAR * character
    ):
        return None
    return [y(point.low), y(point.high)]


MAX_WATERFALL_WIDTH = 100
GAP = 2


@dataclass(frozen=True, slots=True)
class Waterfalls:
    """Waterfalls as bars of characters, all in one scale."""

    losses: Sequence[Loss]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
        block = "#" if is_plain(console, options) else "█"
        low, high = _waterfall_ends(self.losses)
        labels = max(len(part.label) for loss in self.losses for part in loss.parts)
        values = max(len(value) for loss in self.losses for *_, value, _ in _bars(loss))
        room = min(options.max_width, MAX_WATERFALL_WIDTH) - labels - values - 3 * GAP
        for loss in self.losses:
            yield Text(f"{loss.title}: {loss.name} on {loss.num_ranks} ranks", style="bold")
            for label, begin, end, value, largest in _bars(loss):
                line = Text(f"{'':{GAP}}{label:<{labels}}{'':{GAP}}{value:>{values}}{'':{GAP}}")
                if room > 0:
                    line.append(_waterfall_bar(begin, end, low, (high - low) / room, block))
                if largest:
                    line.stylize("bold")
                yield line
            yield ""


def _bars(loss: Loss) -> Iterator[tuple[str, float, float, str, bool]]:
    """(label, begin, end, value, whether it is among the largest); the total last."""
    begin = 0.0
    for part in loss.parts:
        end = begin + part.share.center
        yield part.label, begin, end, share_text(part.share), part.label in loss.largest
        begin = end
    total = loss.kept.complement()
    yield IN_TOTAL, 0.0, total.center, share_text(total), False


def _waterfall_bar(begin: float, end: float, low: float, character: float, block: str) -> str:
    """A bar of at least one character, so that a tiny part stays visible."""
    first, last = sorted((round((begin - low) / character), round((end - low) / character)))
    return " " * first + block * max(1, last - first)


def _waterfall_ends(losses: Sequence[Loss]) -> tuple[float, float]:
    ends = [end for loss in losses for _, begin, end, _, _ in _bars(loss) for end in (begin, end)]
    return min(0.0, *ends), max(0.01, *ends)
