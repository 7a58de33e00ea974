"""Exchanges in the terminal: predicted steps beside measured ones, the sizes of buckets, a sentence per backend."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby

from rich.console import RenderableType
from rich.markup import escape

from dlscale.analysis.collectives.words import size as size_text
from dlscale.analysis.exchange.exchanges import Exchange, on_most_ranks
from dlscale.analysis.exchange.step import IN_LINE, Step
from dlscale.analysis.exchange.words import GIGA, MEGA, ratio, sentence
from dlscale.analysis.grid import Grid
from dlscale.analysis.statistics import LEVEL
from dlscale.analysis.waterfall.words import loss_text
from dlscale.analysis.words import backend_name, number, rate

MAX_SIZES = 6  # of an exchange; those in which most bytes travel
COLUMNS = (
    *("backend", "ranks", "alone\n[ms]", "compute\n[ms]", "predicted\n[ms]", "step\n[ms]", "step /\nsum"),
    *("hidden\n[%]", "n"),
)
SIZE_COLUMNS = ("backend", "ranks", "bucket", "per step", "ms", "algbw\n[GB/s]", "busbw\n[GB/s]")
LEGEND = (
    "Alone: one bucket after the other while nobody computes. Compute: none on as many ranks. Predicted of a step: "
    "their sum where the exchange is in line; else between the longer one and the sum. Step / sum: the measured step "
    f"over that sum, hidden: of the exchange alone, late ranks left out; with {100 * LEVEL:.0f} % t intervals over n "
    "blocks of launches. Buckets: the slowest rank's mean time of one, the median over launches; busbw is "
    "algbw x 2 (P - 1) / P."
)


def render(found: Iterable[Exchange]) -> Iterator[RenderableType]:
    """For the exchanges of one family; nothing without any."""
    found = list(found)
    if not found:
        return
    yield "[bold]Exchange alone, and the step that it predicts[/bold]"
    yield Grid(COLUMNS, [[_step_cells(one) for one in group] for _, group in groupby(found, key=_curve)])
    largest = on_most_ranks(found)
    if sections := [list(_size_cells(one)) for one in largest]:
        yield Grid(SIZE_COLUMNS, sections)
    for one in largest:
        yield escape(sentence(one))
    for note in dict.fromkeys(_notes(found, largest)):
        yield f"[dim]{escape(note)}.[/dim]"
    yield ""


def _curve(one: Exchange) -> tuple[str, str]:
    return backend_name(one.cell), one.evidence


def _step_cells(one: Exchange) -> tuple[str, ...]:
    step, hidden = one.step, one.overlap.hidden
    return (
        backend_name(one.cell),
        f"{one.cell.num_ranks}",
        rate(one.alone.seconds.times(1e3)),
        rate(step.computation.times(1e3) if step else None),
        _predicted(step, one.how),
        rate(step.measured.times(1e3) if step else None),
        ratio(step.of_sum) if step else "-",
        "-" if hidden is None else loss_text(hidden, unit=""),
        f"{step.of_sum.n}" if step else "-",
    )


def _predicted(step: Step | None, how: str) -> str:
    if step is None:
        return "-"
    high = number(1e3 * step.longest)
    return high if how == IN_LINE else f"{number(1e3 * step.shortest)} to {high}"


def _size_cells(one: Exchange) -> Iterator[tuple[str, ...]]:
    sizes = one.alone.sizes
    shown = sorted(sizes, key=lambda size: -size.step_bytes)[:MAX_SIZES]
    for index, size in enumerate(size for size in sizes if size in shown):
        yield (
            *((backend_name(one.cell), f"{one.cell.num_ranks}") if index == 0 else ("", "")),
            size_text(size.num_bytes),
            f"{size.count}",
            rate(size.seconds.times(1e3)),
            rate(size.algbw.times(GIGA)),
            rate(size.busbw.times(GIGA)),
        )


def _notes(found: Sequence[Exchange], largest: Sequence[Exchange]) -> Iterator[str]:
    for one in found:
        who = f"{backend_name(one.cell)} on {one.cell.num_ranks} ranks"
        yield from (f"{who}: {note}" for note in one.alone.notes)
        if one not in largest and one.reason:
            yield f"{who}: {one.reason}"
    for one in largest:
        sizes = sorted(one.alone.sizes, key=lambda size: -size.step_bytes)
        if rest := sizes[MAX_SIZES:]:
            share = number(sum(size.step_bytes for size in rest) * MEGA)
            yield f"{backend_name(one.cell)}: {len(rest)} further sizes of buckets, together {share} MB per step"
