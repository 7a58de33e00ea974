"""Output of `figures --published --check`: a table, the reasons, and rows with stable keys."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from rich import box
from rich.console import Group, RenderableType
from rich.markup import escape
from rich.padding import Padding
from rich.table import Table

from dlscale.analysis.published.claim_verdicts import TOLERANCE, VERDICTS, ClaimVerdict
from dlscale.analysis.published.compare import (
    AGREES,
    DISAGREES,
    UNKNOWN,
    Check,
    Comparison,
    ShapeComparison,
    Target,
)
from dlscale.analysis.published.predictions import Band
from dlscale.analysis.published.values import UNITS
from dlscale.analysis.text import number, plural, rate

SCHEMA = 1  # raised when a key changes its name or meaning; new keys may come at any time
CONSISTENT, INCONSISTENT = "consistent", "not within rounding"
READ = (
    "published: within rounding and what repeated runs differ by, 2 points or 2 % where nobody says it; a fact that "
    "several figures have counts once."
)
SMALLEST = 1e-3  # below that a gain of efficiency is none
_KEYS = (
    *("figure", "kind", "series", "quantity", "unit", "x", "x_unit", "published_low", "published_high"),
    *("ours", "ours_low", "ours_high", "evidence", "system", "study", "ratio", "ratio_low", "ratio_high"),
    *("tolerance", "verdict", "relation", "reasons", "claim", "curve", "up_to"),
)


def render_checks(checks: Sequence[Check], *, everything: bool = True) -> RenderableType:
    """The verdicts, for `rich.console.Console.print`; figures without a comparison are counted, or shown with
    `everything`. Published values that contradict each other are always shown.
    """
    shown = [check for check in checks if everything or check.verdict != UNKNOWN]
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for column in ("figure", "verdict"):
        table.add_column(column, no_wrap=True)
    for column in ("compared", "shapes", "consistent"):
        table.add_column(column, justify="right", min_width=len(column))
    table.add_column("not compared, because", overflow="fold")
    for check in shown:
        cells = (
            check.figure.id,
            check.verdict,
            _share([comparison.verdict == AGREES for comparison in check.comparisons]),
            _share([shape.verdict == AGREES for shape in check.shapes]),
            _share([relation.consistent for relation in check.relations]),
            "; ".join(check.reasons),
        )
        table.add_row(*map(escape, cells))
    counts = Counter(check.verdict for check in checks)
    nothing = sum(not (check.comparisons or check.shapes) for check in checks)
    last = (
        f"{counts[AGREES]} of {len(checks)} figures agree, {counts[DISAGREES]} disagree; "
        f"in {nothing} nothing was compared."
    )
    hidden = len(checks) - len(shown)
    have = "figure has" if hidden == 1 else "figures have"
    rest = f"{hidden} published {have} no counterpart here; add --all"
    lines = [escape(line) for check in checks for line in _details(check)]
    return Group(*([table] if shown else []), *lines, last, *([rest] if hidden else []))


def _share(passed: Sequence[bool]) -> str:
    return f"{sum(passed)}/{len(passed)}" if passed else "-"


def _details(check: Check) -> Iterator[str]:
    """A line per comparison, and per published value that contradicts others."""
    for comparison in check.comparisons:
        target, point = comparison.target, comparison.point
        ours = f"{rate(point.value)} ({point.name}, {point.row.evidence})"
        tolerance = f"{100 * check.figure.tolerance:.0f} %"
        ratio = f"ratio {rate(comparison.ratio)}, {comparison.verdict} to {tolerance}"
        what = _what(check, target.series, target.quantity, target.x)
        yield f"{what}: published {_range(target)}, ours {ours}; {ratio}"
    for shape in check.shapes:
        low, center, high = (number(end) if end < float("inf") else "open" for end in shape.ours)
        unit = check.figure.x_unit
        ours = f"{center} [{low}, {high}] up to {shape.up_to:g} {unit}"
        claimed = _open_range(shape.low, shape.high) + f" {unit}" * (shape.compared == "scaling_ends")
        yield (
            f"{check.figure.id}, {shape.words}: {shape.compared.replace('_', ' ')} published {claimed}, ours {ours} "
            f"({shape.name}, {shape.evidence}), {shape.verdict}; read: {shape.reading or 'as it is said'}"
        )
    for relation in check.relations:
        if not relation.consistent:
            value = relation.value
            what = _what(check, value.series, value.quantity, value.x)
            low, high = map(_ends, (value.ends, relation.expected))
            yield f"{what}: published {low}, but {high} by {relation.text}"


def _what(check: Check, series: str, quantity: str, x: float | None) -> str:
    unit = f"{quantity.replace('_', ' ')} [{_unit(quantity)}]"
    return f"{check.figure.id}, {series}, {unit} at {x:g} {check.figure.x_unit}"


def _unit(quantity: str) -> str:
    return next(iter(UNITS[quantity]))


def _range(target: Target) -> str:
    if target.low is not None and target.high is not None:
        return number(target.low) if target.low == target.high else _ends((target.low, target.high))
    return f"under {number(target.high or 0)}" if target.low is None else f"over {number(target.low)}"


def _ends(ends: tuple[float, float]) -> str:
    return f"{number(ends[0])} to {number(ends[1])}"


def checks_json(checks: Sequence[Check]) -> dict[str, Any]:
    """`{"schema": 1, "rows": [...]}`, a row per comparison, per derived value, and per figure without a comparison."""
    rows: list[dict[str, Any]] = []
    for check in checks:
        common: dict[str, Any] = dict.fromkeys(_KEYS) | {
            "figure": check.figure.id,
            "x_unit": check.figure.x_unit or None,
            "tolerance": check.figure.tolerance,
            "reasons": [],
        }
        rows += [common | _compared(comparison) for comparison in check.comparisons]
        for relation in check.relations:
            value = relation.value
            rows.append(
                common
                | {"kind": "derived consistency", "series": value.series, "x": value.x, "tolerance": None}
                | {"quantity": value.quantity, "unit": _unit(value.quantity), "relation": relation.text}
                | {"published_low": value.ends[0], "published_high": value.ends[1]}
                | {"verdict": CONSISTENT if relation.consistent else INCONSISTENT}
            )
        rows += [common | {"tolerance": None} | _shape_json(shape) for shape in check.shapes]
        if not (check.comparisons or check.shapes):
            rows.append(common | {"kind": UNKNOWN, "verdict": UNKNOWN, "reasons": list(check.reasons)})
    return {"schema": SCHEMA, "rows": rows}


def _compared(comparison: Comparison) -> dict[str, Any]:
    """The keys of a comparison; numbers are in the quantity's base unit."""
    target, point, ratio = comparison.target, comparison.point, comparison.ratio
    return {
        "kind": "compared",
        "series": target.series,
        "quantity": target.quantity,
        "unit": _unit(target.quantity),
        "x": target.x,
        "published_low": target.low,
        "published_high": target.high,
        "ours": point.value.center,
        "ours_low": point.value.low,
        "ours_high": point.value.high,
        "evidence": point.row.evidence,
        "system": point.row.family.system,
        "study": point.study,
        "ratio": ratio.center,
        "ratio_low": ratio.low,
        "ratio_high": ratio.high,
        "verdict": comparison.verdict,
    }


def _shape_json(shape: ShapeComparison) -> dict[str, Any]:
    low, center, high = (end if end < float("inf") else None for end in shape.ours)
    return {
        "kind": "shape",
        "quantity": shape.compared,
        "published_low": shape.low,
        "published_high": shape.high,
        "ours": center,
        "ours_low": low,
        "ours_high": high,
        "evidence": shape.evidence,
        "system": shape.system,
        "study": shape.study,
        "verdict": shape.verdict,
        "claim": shape.words,
        "curve": shape.name,
        "up_to": shape.up_to,
    }


def render_claims(rows: Sequence[ClaimVerdict], *, everything: bool) -> RenderableType:
    """The claims, for `rich.console.Console.print`; figures that nothing predicts are counted, or shown."""
    shown = [row for row in rows if everything or row.claim]
    cells = [(range_text(row), band_text(row.predicted), row.verdict) for row in shown]
    widths = [
        max(map(len, column)) for column in zip(("published", "predicted", "verdict"), *cells, strict=True)
    ]
    parts: list[RenderableType] = (
        [_claim_line("", ("published", "predicted", "verdict"), widths)] if shown else []
    )
    before: tuple[str, str] | None = None
    for row, values in zip(shown, cells, strict=True):
        if before is None or before[0] != row.figure.id:
            parts.append(f"[bold]{escape(row.figure.id)}[/bold]")
        if before != (row.figure.id, row.words):
            parts.append(Padding(escape(row.words), (0, 0, 0, 2)))
        parts.append(_claim_line(compared_text(row), values, widths))
        before = row.figure.id, row.words
    claimed = [row for row in rows if row.claim and row.counted]
    counts = Counter(row.verdict for row in claimed)
    last = ", ".join(f"{verdict} {counts[verdict]}" for verdict in VERDICTS)
    rest = len({row.figure.id for row in rows if not row.claim})
    unseen = f"{rest} published figures are not predicted; add --all"
    return Group(
        "predicted from public inputs, nothing was measured here",
        *parts,
        "",
        *map(escape, reason_lines(shown)),
        READ,
        f"{plural(len(claimed), 'claim')}: {last}.",
        *([unseen] if rest and not everything else []),
    )


def _claim_line(text: str, values: Sequence[str], widths: Sequence[int]) -> RenderableType:
    """What is compared, and the values in columns as wide as in all lines."""
    grid = Table.grid(expand=True, padding=(0, 0, 0, 2))
    grid.add_column(ratio=1)
    for width, justify in zip(widths, ("right", "right", "left"), strict=True):
        grid.add_column(width=width + 2, no_wrap=True, justify=justify)  # type: ignore[arg-type]
    grid.add_row(Padding(escape(text), (0, 0, 0, 4)), *map(escape, values))
    return grid


def compared_text(row: ClaimVerdict) -> str:
    """`Cray plugin / Horovod over MPI: relative throughput at 1024 nodes`, without a curve that the claim names."""
    curves = [curve for curve in row.claim.curves if curve != row.words] if row.claim else []
    ranged = row.claim is not None and len(set(row.claim.sizes)) > 1
    place = "" if row.x is None else f" {'up to' if ranged else 'at'} {row.x:g} {row.x_unit}"
    compared = row.quantity.replace("_", " ") + place
    others = [f"or {name}" for name in row.claim.or_curves if name not in curves] if row.claim else []
    return ": ".join(filter(None, (" / ".join(curves) + "".join(f" {name}" for name in others), compared)))


def claim_text(row: ClaimVerdict) -> str:
    """The claim in words, with the curves, quantity and place that are compared."""
    return ": ".join(filter(None, (row.words, compared_text(row))))


def range_text(row: ClaimVerdict) -> str:
    """What is published, as a range."""
    return _open_range(row.low, row.high)


def _open_range(low: float | None, high: float | None) -> str:
    if low is None or high is None:
        return (
            "-"
            if low == high
            else f"up to {number(high)}"
            if high is not None
            else f"from {number(low or 0)}"
        )
    return number(low) if low == high else _ends((low, high))


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


def claims_json(rows: Sequence[ClaimVerdict]) -> dict[str, Any]:
    """`{"schema": 1, "rows": [...]}`, a row per claim or published value, in base units."""
    return {"schema": SCHEMA, "rows": [_claim_json(row) for row in rows]}


def _claim_json(row: ClaimVerdict) -> dict[str, Any]:
    band, claim = row.predicted, row.claim
    return {
        "figure": row.figure.id,
        "publication": row.publication and row.publication.name,
        "claim": row.words,
        "check": claim and claim.check,
        "curves": list(claim.curves) if claim else [],
        "quantity": row.quantity or None,
        "x": row.x,
        "x_unit": row.x_unit or None,
        "published_low": row.low,
        "published_high": row.high,
        "predicted": band and band.median,
        "predicted_low": band and band.low,
        "predicted_high": band and band.high,
        "evidence": "simulated" if band else None,
        "tolerance": TOLERANCE,
        "verdict": row.verdict,
        "counted": row.counted,
        "reading": claim.reading or None if claim else None,
        "reason": row.reason or None,
    }
