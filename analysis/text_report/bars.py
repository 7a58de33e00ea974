"""Waterfalls in characters: each part begins where the one before it ended."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rich.console import Console, ConsoleOptions, RenderableType
from rich.text import Text

from dlscale.analysis.page.plot_model import Loss
from dlscale.analysis.page.words import share
from dlscale.analysis.text_report.plots import plain

MAX_WIDTH = 100
GAP = 2


@dataclass(frozen=True, slots=True)
class Waterfalls:
    """All in one scale."""

    losses: Sequence[Loss]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
        block = "#" if plain(console, options) else "█"
        low, high = _ends(self.losses)
        labels = max(len(part.label) for loss in self.losses for part in loss.parts)
        values = max(len(value) for loss in self.losses for *_, value, _ in _bars(loss))
        room = min(options.max_width, MAX_WIDTH) - labels - values - 3 * GAP
        for loss in self.losses:
            yield Text(f"{loss.title}: {loss.name} on {loss.num_ranks} ranks", style="bold")
            for label, begin, end, value, largest in _bars(loss):
                line = Text(f"{'':{GAP}}{label:<{labels}}{'':{GAP}}{value:>{values}}{'':{GAP}}")
                if room > 0:
                    line.append(_bar(begin, end, low, (high - low) / room, block))
                if largest:
                    line.stylize("bold")
                yield line
            yield ""


def _bars(loss: Loss) -> Iterator[tuple[str, float, float, str, bool]]:
    """(label, begin, end, value, whether it is among the largest); the total last."""
    begin = 0.0
    for part in loss.parts:
        end = begin + part.share.center
        yield part.label, begin, end, share(part.share), part.label in loss.largest
        begin = end
    total = loss.kept.complement()
    yield "in total", 0.0, total.center, share(total), False


def _bar(begin: float, end: float, low: float, character: float, block: str) -> str:
    """At least one character long: a part of nearly nothing is there, too."""
    first, last = sorted((round((begin - low) / character), round((end - low) / character)))
    return " " * first + block * max(1, last - first)


def _ends(losses: Sequence[Loss]) -> tuple[float, float]:
    ends = [end for loss in losses for _, begin, end, _, _ in _bars(loss) for end in (begin, end)]
    return min(0.0, *ends), max(0.01, *ends)
