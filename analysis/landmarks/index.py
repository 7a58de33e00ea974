"""The overview of all published figures, one page that needs no network: pictures, claims and verdicts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import jinja2

from dlscale.analysis.landmarks.claims import VERDICTS, ClaimVerdict, verdicts
from dlscale.analysis.landmarks.landmark import Landmark
from dlscale.analysis.landmarks.render import band_text, claim_text, range_text, reason_lines
from dlscale.analysis.published.catalogue import Figure, Published
from dlscale.base.files import write_atomically

PAGE = "index.html"
TEMPLATE = Path(__file__).with_name("index.html.j2")


def write_index(published: Published, landmarks: Sequence[Landmark], folder: Path) -> Path:
    """Write the page into the folder of the drawn figures, of which it shows those that are there; returns its path."""
    path = folder / PAGE
    drawn = {file.stem for file in folder.glob("*.png")}
    write_atomically(path, index_page(published, verdicts(published, landmarks), drawn), mode=0o644)
    return path


def index_page(published: Published, rows: Sequence[ClaimVerdict], drawn: set[str]) -> str:
    """The page; `drawn` are the figures with a picture beside it."""
    environment = jinja2.Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
    template = environment.from_string(TEMPLATE.read_text(encoding="utf-8"))
    cards = [
        {
            "figure": figure,
            "drawn": figure.id in drawn,
            "claims": [
                (claim_text(row), range_text(row), band_text(row.predicted), row.verdict)
                for row in rows
                if row.figure.id == figure.id and row.claim
            ],
            "notes": [
                line.removeprefix(f"{figure.id}, ")
                for line in reason_lines([row for row in rows if row.figure.id == figure.id and row.claim])
            ],
            "statements": _unchecked(published, figure, rows),
        }
        for figure in published.figures.values()
    ]
    counts = Counter(row.verdict for row in rows if row.claim)
    return template.render(cards=cards, counts=[(name, counts[name]) for name in VERDICTS])


def _unchecked(published: Published, figure: Figure, rows: Sequence[ClaimVerdict]) -> list[str]:
    """What its publication says and no check holds."""
    checked = {row.words for row in rows if row.figure.id == figure.id}
    return [row.statement for row in published.statements_of(figure.id) if row.statement not in checked]
