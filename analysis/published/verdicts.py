"""Output of `verify-figures`: a line per figure, the comparisons behind it, and both as rows with stable keys."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from rich import box
from rich.console import Group, RenderableType
from rich.markup import escape
from rich.table import Table

from dlscale.analysis.published.values import UNITS
from dlscale.analysis.published.verify import AGREES, DISAGREES, OPEN, Check, Comparison, Finding, Target
from dlscale.analysis.text import number, rate

SCHEMA = 1  # raised when a key changes its name or meaning; new keys may come at any time
CONSISTENT, INCONSISTENT, UNKNOWN = "consistent", "not within rounding", "unknown"


def render_verdicts(checks: Sequence[Check], *, everything: bool = True) -> RenderableType:
    """The verdicts, for `rich.console.Console.print`; figures without a comparison are counted, or shown with
    `everything`. Published values that contradict each other are always shown.
    """
    shown = [check for check in checks if everything or check.comparisons or check.disagrees]
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    table.add_column("figure", no_wrap=True)
    table.add_column("verdict", no_wrap=True)
    table.add_column("compared", justify="right")
    table.add_column("consistent", justify="right")
    table.add_column("not compared, because", overflow="fold")
    for check in shown:
        table.add_row(*map(escape, _summary(check)))
    lines = [escape(line) for check in checks for line in _details(check)]
    passed = sum(check.passes for check in checks)
    nothing = sum(not check.comparisons for check in checks)
    wrong = sum(check.disagrees for check in checks)
    last = f"{passed} of {len(checks)} figures agree, {wrong} disagree; in {nothing} nothing was compared."
    hidden = len(checks) - len(shown)
    have = "figure has" if hidden == 1 else "figures have"
    rest = f"{hidden} published {have} no counterpart here: dlscale verify-figures --all"
    return Group(*([table] if shown else []), *lines, last, *([rest] if hidden else []))


def _summary(check: Check) -> tuple[str, ...]:
    agreeing = sum(comparison.verdict == AGREES for comparison in check.comparisons)
    consistent = sum(finding.consistent for finding in check.findings)
    return (
        check.figure.id,
        verdict(check),
        f"{agreeing}/{len(check.comparisons)}" if check.comparisons else "-",
        f"{consistent}/{len(check.findings)}" if check.findings else "-",
        "; ".join(check.reasons),
    )


def verdict(check: Check) -> str:
    """The verdict on a figure, in one word."""
    if check.disagrees:
        return DISAGREES
    if check.passes:
        return AGREES
    return OPEN if check.comparisons else UNKNOWN


def _details(check: Check) -> Iterator[str]:
    """A line per comparison, and per published value that contradicts others."""
    unit, tolerance = check.figure.x_unit, f"{100 * check.figure.tolerance:.0f} %"
    for comparison in check.comparisons:
        target, point = comparison.target, comparison.point
        what = f"{check.figure.id}, {target.series}, {_quantity(target.quantity)} at {target.x:g} {unit}"
        ours = f"{rate(point.value)} ({point.name}, {point.row.evidence})"
        ratio = f"ratio {rate(comparison.ratio)}, {comparison.verdict} to {tolerance}"
        yield f"{what}: published {_range(target)}, ours {ours}; {ratio}"
    for finding in check.findings:
        if not finding.consistent:
            what = (
                f"{check.figure.id}, {finding.series}, {_quantity(finding.quantity)} at {finding.x:g} {unit}"
            )
            yield f"{what}: published {_ends(finding.published)}, but {_ends(finding.expected)} by {finding.relation}"


def _quantity(quantity: str) -> str:
    """The quantity with its unit."""
    return f"{quantity.replace('_', ' ')} [{_unit(quantity)}]"


def to_json(checks: Sequence[Check]) -> dict[str, Any]:
    """`{"schema": 1, "rows": [...]}`, a row per comparison, per derived value, and per figure without a comparison."""
    rows = [row for check in checks for row in _rows(check)]
    return {"schema": SCHEMA, "rows": rows}


def _rows(check: Check) -> Iterator[dict[str, Any]]:
    for comparison in check.comparisons:
        yield _row(
            check, "compared", comparison.target.series, comparison.target.quantity, comparison.target.x
        ) | _compared(comparison)
    for finding in check.findings:
        yield _row(check, "derived consistency", finding.series, finding.quantity, finding.x) | _derived(
            finding
        )
    if not check.comparisons:
        yield _row(check, UNKNOWN, None, None, None) | {"verdict": UNKNOWN, "reasons": list(check.reasons)}


def _row(
    check: Check, kind: str, series: str | None, quantity: str | None, x: float | None
) -> dict[str, Any]:
    """The keys of every row; numbers are in the quantity's base unit."""
    keys = ("published_low", "published_high", "ours", "ours_low", "ours_high", "evidence", "system", "study")
    return {
        "figure": check.figure.id,
        "kind": kind,
        "series": series,
        "quantity": quantity,
        "unit": quantity and _unit(quantity),
        "x": x,
        "x_unit": check.figure.x_unit or None,
        **dict.fromkeys((*keys, "ratio", "ratio_low", "ratio_high")),
        "tolerance": check.figure.tolerance,
        "verdict": None,
        "relation": None,
        "reasons": [],
    }


def _compared(comparison: Comparison) -> dict[str, Any]:
    point = comparison.point
    return {
        "published_low": comparison.target.low,
        "published_high": comparison.target.high,
        "ours": point.value.center,
        "ours_low": point.value.low,
        "ours_high": point.value.high,
        "evidence": point.row.evidence,
        "system": point.row.family.system,
        "study": point.study,
        "ratio": comparison.ratio.center,
        "ratio_low": comparison.ratio.low,
        "ratio_high": comparison.ratio.high,
        "verdict": comparison.verdict,
    }


def _derived(finding: Finding) -> dict[str, Any]:
    return {
        "published_low": finding.published[0],
        "published_high": finding.published[1],
        "relation": finding.relation,
        "verdict": CONSISTENT if finding.consistent else INCONSISTENT,
        "tolerance": None,
    }


def _unit(quantity: str) -> str:
    return next(iter(UNITS[quantity]))


def _range(target: Target) -> str:
    ends = (target.low, target.high)
    known = [end for end in ends if end is not None]
    if len(known) == 2 and known[0] != known[1]:
        return _ends((known[0], known[1]))
    return ("" if len(known) == 2 else "over " if target.high is None else "under ") + number(known[0])


def _ends(ends: tuple[float, float]) -> str:
    return f"{number(ends[0])} to {number(ends[1])}"
