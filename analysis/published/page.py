"""The table of docs/published-figures.md, from the catalogue: `python -m dlscale.analysis.published.page PAGE`."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from dlscale.analysis.published.catalogue import Figure
from dlscale.analysis.published.load import Published, load
from dlscale.analysis.published.marks import plots_of

BEGIN, END = "<!-- figures -->", "<!-- end of figures -->"
IN_FULL, IN_WORDS, NOT_DRAWN = "in full", "in words", "not drawn"


def what_is_public(published: Published, figure: Figure) -> str:
    """In a word: all panels have a curve, none has, or there is nothing to lay out."""
    plots = plots_of(published, figure, [])
    if not plots:
        return NOT_DRAWN
    return IN_FULL if all(plot.in_full for plot in plots) else IN_WORDS


def table(published: Published) -> str:
    """A row per figure, in the catalogue's order."""
    rows = [
        f"| `{figure.id}` | {figure.title} | {what_is_public(published, figure)} | {figure.public} |"
        for figure in published.figures.values()
    ]
    return "\n".join(
        ["| figure | of | public | what is public, and what is not |", "| --- | --- | --- | --- |", *rows]
    )


def written_into(page: str, published: Published) -> str:
    """The page with the table between its marks, whatever stood there before."""
    before, rest = page.split(BEGIN)
    _, after = rest.split(END)
    return f"{before}{BEGIN}\n{table(published)}\n{END}{after}"


def main(arguments: Sequence[str]) -> None:
    """Write the table into the page."""
    (name,) = arguments
    path = Path(name)
    path.write_text(written_into(path.read_text(encoding="utf-8"), load()), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
