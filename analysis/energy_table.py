"""Energy for the terminal: a table of its own, with what was counted."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

from rich.console import RenderableType
from rich.markup import escape

from dlscale.analysis.energy import Energy
from dlscale.analysis.grid import Grid
from dlscale.analysis.words import backend_name, rate

WORDS = {"rapl": "processors and memory", "pm_counters": "whole nodes", "nvml": "GPUs"}
COLUMNS = ("framework", "backend", "ranks", "J/sample", "power\n[W]", "counted", "n")
LEGEND = (
    "Joules of all nodes over the windows after the warm-up, per sample; the median over launches and, from 6 on, its "
    "interval. Power is the median over launches of joules over seconds, of all nodes. Counted is what the nodes' own "
    "counters count, whoever used it: processors and memory by RAPL, whole nodes by Cray's pm_counters, GPUs by NVML."
)


def render(found: Sequence[Energy]) -> Iterator[RenderableType]:
    """A table where any launch's energy is known; else one line that says why not; nothing without launches."""
    known = [one for one in found if one.joules_per_sample]
    if not known:
        if found:
            yield f"[dim]{escape(f'Energy per sample is not known ({found[0].reason}).')}[/dim]"
            yield ""
        return
    yield "[bold]Energy[/bold]"
    sections = [
        [cells(one) for one in group]
        for _, group in groupby(known, key=lambda one: (one.cell.workload, one.cell.framework))
    ]
    yield Grid(COLUMNS, sections)
    yield f"[dim]{escape(LEGEND)}[/dim]"
    yield ""


def cells(one: Energy) -> tuple[str, ...]:
    """Of a row."""
    return (
        f"{one.cell.workload} {one.cell.framework}",
        backend_name(one.cell),
        str(one.cell.num_ranks),
        rate(one.joules_per_sample),
        "-" if one.watts is None else f"{one.watts:.0f}",
        ", ".join(WORDS[source] for source in one.sources),
        str(one.num_launches),
    )
