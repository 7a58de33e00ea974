"""Contrasts in the terminal: what was declared, a table per training, and a sentence for each."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby

from rich.console import RenderableType
from rich.markup import escape

from dlscale.analysis.contrasts.between import STUDY
from dlscale.analysis.contrasts.contrast import ALPHA, BAND, Contrast, Contrasts
from dlscale.analysis.contrasts.significance import MAX_EXACT
from dlscale.analysis.contrasts.words import change, declared, effect, over, probability, sentences, title
from dlscale.analysis.grid import Grid
from dlscale.analysis.statistics import LEVEL
from dlscale.analysis.words import backend_name

LEGEND = (
    f"Throughput: by how much that of the first is above that of the second, with its {100 * LEVEL:.0f} % t interval "
    "over n blocks of launches. Effect: mean over standard deviation of the log ratio between blocks, with its "
    "interval; how surely a difference shows, and not whether it matters. p: sign-flip test of the blocks, exact up to "
    f"{MAX_EXACT}; corrected: Holm's, over all comparisons here. Claimed is what is at most {100 * ALPHA:.0f} % then, "
    f"with an interval that leaves 0 out, and is not within {100 * BAND:.0f} % for certain."
)
LEGEND_BETWEEN = (
    f"Throughput: by how much that of B is above that of A, with Welch's {100 * LEVEL:.0f} % interval. Unpaired: "
    "launches of two studies have no block in common, so what changed on the machine between them is in it, and "
    "nothing is claimed. To claim a difference, measure both in one study."
)


def render(found: Contrasts) -> Iterator[RenderableType]:
    """For `rich.console.Console.print`."""
    yield escape(f"{declared(found)}.")
    for heading, group in groupby(found.found, key=lambda one: title(one.contender, found.factor)):
        members = list(group)
        yield f"[bold]{escape(heading)}[/bold]"
        if found.factor == STUDY:
            yield Grid(_BETWEEN, [[_between(one) for one in members]])
            continue
        yield Grid(_COLUMNS, [[_cells(one) for one in members]])
        for told in sentences(members):
            yield escape(told)
        yield ""
    for what in found.left_out:
        yield escape(f"Not compared: {what}.")
    yield f"[dim]{escape(LEGEND_BETWEEN if found.factor == STUDY else LEGEND)}[/dim]"


_COLUMNS = (
    *("contrast", "ranks", "throughput\n[%]", "effect", "p", "corrected\np"),
    *("n", "verdict"),
)
_BETWEEN = ("backend", "ranks", "throughput\n[%]", "n of A", "n of B")


def _cells(one: Contrast) -> tuple[str, ...]:
    return (
        f"{one.contender.name} : {one.reference.name}{over(one)}",
        f"{one.contender.cell.num_ranks}",
        "-" if one.ratio is None else change(one.ratio),
        effect(one.standardised),
        "-" if one.p_value is None else probability(one.p_value),
        "-" if one.p_adjusted is None else probability(one.p_adjusted),
        f"{one.num_blocks}",
        one.verdict,
    )


def _between(one: Contrast) -> tuple[str, ...]:
    cell, other = one.contender.cell, one.reference.cell
    return (
        " : ".join(dict.fromkeys([backend_name(cell), backend_name(other)])),
        " : ".join(dict.fromkeys([f"{cell.num_ranks}", f"{other.num_ranks}"])),
        "-" if one.ratio is None else change(one.ratio),
        f"{len(one.reference.rates)}",
        f"{len(one.contender.rates)}",
    )
