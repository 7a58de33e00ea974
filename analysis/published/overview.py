"""The overview of all published figures: a page that needs no network."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import jinja2

from dlscale.analysis.published.catalogue import Published
from dlscale.analysis.published.claim_verdicts import VERDICTS, ClaimVerdict
from dlscale.analysis.published.output import band_text, claim_text, range_text, reason_lines
from dlscale.base.files import write_atomically

PAGE = "index.html"
TEMPLATE = Path(__file__).with_name("index.html.j2")


def write_index(published: Published, rows: Sequence[ClaimVerdict], folder: Path) -> Path:
    """Write the page into the folder of the drawn figures, of which it shows those that are there; returns its path."""
    path = folder / PAGE
    drawn = {file.stem for file in folder.glob("*.png")}
    write_atomically(path, index_page(published, rows, drawn), mode=0o644)
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
    counts = Counter(row.verdict for row in claimed if row.counted)
    template = environment.from_string(TEMPLATE.read_text(encoding="utf-8"))
    return template.render(cards=cards, counts=[(name, counts[name]) for name in VERDICTS])
