"""Waterfalls in the terminal: a sentence for each, and for the largest number of ranks its parts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby

from rich.console import RenderableType
from rich.markup import escape

from dlscale.analysis.grid import Grid
from dlscale.analysis.statistics import LEVEL
from dlscale.analysis.waterfall.waterfall import Waterfall
from dlscale.analysis.waterfall.words import headline, loss_text
from dlscale.analysis.words import backend_name, number

COLUMNS = ("backend", "ranks", "part of the loss", "ms per step", "lost\n[%]", "n")
LEGEND = (
    "Parts of the loss, in percent of the ideal speed, which is that of 1 rank without a communication layer, with "
    f"{100 * LEVEL:.0f} % t intervals over n blocks of launches; together they are what is lost. Batch effect: the "
    "local batch is smaller. Co-running: ranks share the machine. Input stall: by how much longer ranks wait for "
    "samples than 1 rank. Late ranks: every step waits for its latest one. Exposed communication: the rest."
)


def render(found: Iterable[Waterfall]) -> Iterator[RenderableType]:
    """For the waterfalls of one family; nothing without any."""
    found = list(found)
    if not found:
        return
    yield "[bold]Where the speed goes[/bold]"
    largest = [_largest(group) for group in _by_backend(found)]
    if sections := [list(_cells(one)) for one in largest if one.parts]:
        yield Grid(COLUMNS, sections)
    notes: dict[str, None] = {}
    for one in found:
        yield escape(headline(one))
        notes |= dict.fromkeys(one.notes)
    for note in notes:
        yield f"[dim]{escape(note)}.[/dim]"
    yield ""


def _by_backend(found: Sequence[Waterfall]) -> Iterator[list[Waterfall]]:
    for _, group in groupby(found, key=lambda one: (backend_name(one.cell), one.evidence)):
        yield list(group)


def _largest(found: Sequence[Waterfall]) -> Waterfall:
    """That of the most ranks that has parts."""
    return max(found, key=lambda one: (bool(one.parts), one.cell.num_ranks))


def _cells(one: Waterfall) -> Iterator[tuple[str, ...]]:
    for index, part in enumerate(one.parts):
        name, ranks = (backend_name(one.cell), f"{one.cell.num_ranks}") if index == 0 else ("", "")
        yield (
            name,
            ranks,
            part.name,
            _milliseconds(part.seconds.center),
            loss_text(part.loss, unit=""),
            f"{part.loss.n}",
        )
    if one.loss and one.ideal_seconds and one.measured_seconds:
        lost = _milliseconds(one.measured_seconds - one.ideal_seconds)
        yield "", "", "together", lost, loss_text(one.loss, unit=""), f"{one.loss.n}"


def _milliseconds(seconds: float) -> str:
    """Of a step, three digits; never -0."""
    return number(round(1000 * seconds, 4) + 0.0)
