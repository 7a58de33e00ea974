"""Output of `verify-figures --landmarks`: a line per claim, the reasons, and both as rows with stable keys."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from rich import box
from rich.console import Group, RenderableType
from rich.markup import escape
from rich.table import Table

from dlscale.analysis.landmarks.claims import DISAGREES, VERDICTS, ClaimVerdict
from dlscale.analysis.landmarks.predicted import Band
from dlscale.analysis.text import number, plural

SMALLEST = 1e-3  # below that a gain of efficiency is none
SCHEMA = 1  # raised when a key changes its name or meaning; new keys may come at any time


def render_claims(rows: Sequence[ClaimVerdict], *, everything: bool) -> RenderableType:
    """The claims, for `rich.console.Console.print`; figures that nothing predicts are counted, or shown."""
    shown = [row for row in rows if everything or row.claim]
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    table.add_column("claim", overflow="fold")
    for column in ("published", "predicted", "verdict"):
        table.add_column(column, justify="left" if column == "verdict" else "right", no_wrap=True)
    for index, row in enumerate(shown):
        if index == 0 or shown[index - 1].figure is not row.figure:
            table.add_row(f"[bold]{escape(row.figure.id)}[/bold]")
        cells = (f"  {claim_text(row)}", range_text(row), band_text(row.predicted), row.verdict)
        table.add_row(*map(escape, cells))
    lines = [escape(line) for line in reason_lines(shown)]
    claimed = [row for row in rows if row.claim]
    counts = Counter(row.verdict for row in claimed)
    last = ", ".join(f"{verdict} {counts[verdict]}" for verdict in VERDICTS)
    rest = len({row.figure.id for row in rows if not row.claim})
    unseen = f"{rest} published figures are not predicted: dlscale verify-figures --landmarks --all"
    return Group(
        "predicted from public inputs, nothing was measured here",
        *([table] if shown else []),
        *lines,
        f"{plural(len(claimed), 'claim')}: {last}.",
        *([unseen] if rest and not everything else []),
    )


def claim_text(row: ClaimVerdict) -> str:
    """The claim in words, with its quantity and place."""
    quantity = row.quantity.replace("_", " ")
    place = "" if row.x is None else f" at {row.x:g} {row.figure.x_unit}"
    return f"{row.words}: {quantity}{place}" if quantity else row.words


def range_text(row: ClaimVerdict) -> str:
    """What is published, as a range."""
    if row.low is None and row.high is None:
        return "-"
    if row.low is None or row.high is None:
        return f"up to {number(row.high)}" if row.high is not None else f"from {number(row.low or 0)}"
    return number(row.low) if row.low == row.high else f"{number(row.low)} to {number(row.high)}"


def band_text(band: Band | None) -> str:
    """The median with the band's ends."""
    if band is None:
        return "-"
    median, low, high = (
        number(value) if abs(value) >= SMALLEST else "0" for value in (band.median, band.low, band.high)
    )
    return f"{median} [{low}, {high}]"


def reason_lines(rows: Sequence[ClaimVerdict]) -> list[str]:
    """Why claims disagree or how words were read, each once."""
    lines: dict[str, None] = {}
    for row in rows:
        curves = " over ".join(row.claim.curves) if row.claim else ""
        name = f"{row.figure.id}, {curves}" if curves else row.figure.id
        if row.verdict == DISAGREES or not row.claim:
            lines[f"{name}, {row.verdict}: {row.reason}."] = None
        if row.claim and row.claim.reading:
            lines[f"{name}, read: {row.claim.reading}."] = None
    return list(lines)


def to_json(rows: Sequence[ClaimVerdict]) -> dict[str, Any]:
    """`{"schema": 1, "rows": [...]}`, a row per claim or published value, in base units."""
    return {"schema": SCHEMA, "rows": [_json(row) for row in rows]}


def _json(row: ClaimVerdict) -> dict[str, Any]:
    band, claim = row.predicted, row.claim
    return {
        "figure": row.figure.id,
        "landmark": row.landmark and row.landmark.name,
        "claim": row.words,
        "check": claim and claim.check,
        "curves": list(claim.curves) if claim else [],
        "quantity": row.quantity or None,
        "x": row.x,
        "x_unit": row.figure.x_unit or None,
        "published_low": row.low,
        "published_high": row.high,
        "predicted": band and band.median,
        "predicted_low": band and band.low,
        "predicted_high": band and band.high,
        "evidence": "simulated" if band else None,
        "tolerance": row.figure.tolerance,
        "verdict": row.verdict,
        "reading": claim.reading or None if claim else None,
        "reason": row.reason or None,
    }
