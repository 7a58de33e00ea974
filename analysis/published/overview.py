"""The overview of all published figures: a page that needs no network, and the table in the docs.

`python -m dlscale.analysis.published.overview PAGE` rewrites the table (docs/published-figures.md) from the catalogue.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import jinja2

from dlscale.analysis.published.catalogue import Figure, Published, load_published
from dlscale.analysis.published.claim_verdicts import VERDICTS, ClaimVerdict, verdicts
from dlscale.analysis.published.claims import Publication
from dlscale.analysis.published.output import band_text, claim_text, range_text, reason_lines
from dlscale.analysis.published.panels import plots_of
from dlscale.base.files import write_atomically

PAGE = "index.html"
TEMPLATE = Path(__file__).with_name("index.html.j2")
BEGIN, END = "<!-- figures -->", "<!-- end of figures -->"
COLUMNS = (
    "figure",
    "of",
    "public",
    "what is public, and what is not",
    "predicted, or what is missing for it",
)


def write_index(published: Published, publications: Sequence[Publication], folder: Path) -> Path:
    """Write the page into the folder of the drawn figures, of which it shows those that are there; returns its path."""
    path = folder / PAGE
    drawn = {file.stem for file in folder.glob("*.png")}
    write_atomically(path, index_page(published, verdicts(published, publications), drawn), mode=0o644)
    return path


def index_page(published: Published, rows: Sequence[ClaimVerdict], drawn: set[str]) -> str:
    """The page; `drawn` are the figures with a picture beside it."""
    environment = jinja2.Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
    claimed = [row for row in rows if row.claim]
    cards = []
    for figure in published.figures.values():
        own = [row for row in claimed if row.figure.id == figure.id]
        said, checked = published.statements_of(figure.id), {row.words for row in own}
        cards.append(
            {
                "figure": figure,
                "drawn": figure.id in drawn,
                "claims": [
                    (claim_text(row), range_text(row), band_text(row.predicted), row.verdict) for row in own
                ],
                "notes": [line.removeprefix(f"{figure.id}, ") for line in reason_lines(own)],
                "statements": [row.statement for row in said if row.statement not in checked],
            }
        )
    counts = Counter(row.verdict for row in claimed)
    template = environment.from_string(TEMPLATE.read_text(encoding="utf-8"))
    return template.render(cards=cards, counts=[(name, counts[name]) for name in VERDICTS])


def what_is_public(published: Published, figure: Figure) -> str:
    """Whether all panels have a public curve, not all have one, or there are no panels."""
    plots = plots_of(published, figure)
    if not plots:
        return "not drawn"
    return "in full" if all(plot.in_full for plot in plots) else "in words"


def overview_table(published: Published) -> str:
    """A row per figure, in the catalogue's order."""
    rows = [
        (
            f"`{figure.id}`",
            figure.title,
            what_is_public(published, figure),
            figure.public,
            figure.missing or ("predicted" if figure.panels else ""),
        )
        for figure in published.figures.values()
    ]
    lines = [f"| {' | '.join(row)} |" for row in (COLUMNS, *rows)]
    return "\n".join([lines[0], f"|{' --- |' * len(COLUMNS)}", *lines[1:]])


def written_into(page: str, published: Published) -> str:
    """The page with the table between its markers, replacing the previous one."""
    before, rest = page.split(BEGIN)
    _, after = rest.split(END)
    return f"{before}{BEGIN}\n{overview_table(published)}\n{END}{after}"


def main(arguments: Sequence[str]) -> None:
    """Write the table into the page."""
    (name,) = arguments
    path = Path(name)
    path.write_text(written_into(path.read_text(encoding="utf-8"), load_published()), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
