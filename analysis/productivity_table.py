"""What each backend asks of a user's script, for the terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

from rich.console import RenderableType
from rich.markup import escape

from dlscale.analysis.grid import Grid
from dlscale.analysis.productivity import Change

COLUMNS = ("framework", "backend", "added", "changed", "removed", "script")
LEGEND = (
    "Lines of code between single.py and that script, both under docs/examples; blank lines, comments and docstrings "
    "do not count. docs/productivity.md has all of them."
)


def render(changes: Sequence[Change]) -> Iterator[RenderableType]:
    """A table with a section per framework; nothing without changes."""
    if not changes:
        return
    yield "[bold]Lines to make a single-process script distributed[/bold]"
    groups = [list(group) for _, group in groupby(changes, key=lambda change: change.framework)]
    yield Grid(COLUMNS, [[_cells(one, first=one is group[0]) for one in group] for group in groups])
    yield f"[dim]{escape(LEGEND)}[/dim]"
    yield ""


def _cells(one: Change, *, first: bool) -> tuple[str, ...]:
    counts = (one.added, one.changed, one.removed)
    return one.framework if first else "", one.backend, *(str(number) for number in counts), one.script
