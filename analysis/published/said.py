"""What is published of a training's scaling on a system, and beside each statement whether predictions agree."""

from __future__ import annotations

from collections.abc import Iterator

from dlscale.analysis.published.catalogue import load_published
from dlscale.analysis.published.claim_verdicts import ClaimVerdict, claim_verdicts
from dlscale.analysis.published.claims import load_publications
from dlscale.analysis.published.compare import DISAGREES
from dlscale.analysis.published.output import band_text, compared_text, range_text
from dlscale.analysis.published.predictions import Predictions


def said_of(system: str, workload: str, scaling_mode: str) -> Iterator[str]:
    """A line per statement, with its source and the verdict on the claim that it is.

    Verdicts are those of `figures --published --check --claims`, on the publication's own backends, options and sizes.
    """
    published = load_published()
    statements = published.said_of(system, workload, scaling_mode)
    rows: dict[str, list[ClaimVerdict]] = {}
    for publication in load_publications(published) if statements else ():
        predictions = Predictions(publication)
        for claim in publication.claims:
            if any((it.figure, it.statement) == (claim.figure, claim.statement) for it in statements):
                rows.setdefault(claim.statement, []).extend(claim_verdicts(predictions, claim, published))
    for statement in statements:
        text = f"{statement.statement} ({statement.kind}; {statement.source})"
        yield "; ".join(dict.fromkeys((text, *map(_verdict, rows.get(statement.statement, ())))))


def _verdict(row: ClaimVerdict) -> str:
    if row.verdict != DISAGREES:
        return f"prediction {row.verdict}"
    numbers = f"predicted {band_text(row.predicted)}, published {range_text(row)}"
    return f"PREDICTION DISAGREES ({compared_text(row)}: {numbers}): {row.reason}"
