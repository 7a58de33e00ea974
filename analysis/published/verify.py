"""Checks whether our series agree with published ones, and whether published values agree with each other.

Each published number is compared with all of our matching cells (same workload, scaling mode, framework, backend,
system and x): ratio = ours / published, which is 1 anywhere within the rounding or range of the published number.

    agrees      the ratio's interval lies within 1 - tolerance .. 1 + tolerance; without an interval, the ratio does
    disagrees   it lies wholly outside
    open        neither: more launches are needed

A number without a matching cell of ours is `unknown`, never a pass.

If a publication gives two quantities of one series, one follows from the other (T throughput, S speed-up, E
efficiency, at x; b where S and E are 1):

    E(x) = S(x) b / x        E(x) = T(x) b / (T(b) x)        S(x) = T(x) / T(b)

A printed 0.86 is anything from 0.855 to 0.865, so both sides are ranges: they agree if they touch. Numbers that
the publication calls approximate are not checked. Values computed by such a formula (`derived`) are checked, too.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from dlscale.analysis.measured import Measured
from dlscale.analysis.published.catalogue import Figure, Published, Same
from dlscale.analysis.published.panels import RATIOS, Point, matching
from dlscale.analysis.published.values import HALF_WIDTH, Value
from dlscale.analysis.statistics import Interval

AGREES, DISAGREES, OPEN = "agrees", "disagrees", "open"
COMPARED = ("measured", "emulated", "simulated")  # kinds of evidence of our cells


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A published number, or a range of them, at one place; in the quantity's base unit, None for an open end."""

    series: str
    quantity: str
    x: float
    low: float | None
    high: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """One published number versus one of our cells."""

    target: Target
    point: Point
    ratio: Interval
    verdict: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """The verdict on a figure. `reasons` say why public numbers were not compared."""

    figure: Figure
    comparisons: tuple[Comparison, ...]
    findings: tuple[Finding, ...]
    reasons: tuple[str, ...]

    @property
    def disagrees(self) -> bool:
        """Whether our values contradict published ones, or published values contradict each other."""
        return any(comparison.verdict == DISAGREES for comparison in self.comparisons) or not all(
            finding.consistent for finding in self.findings
        )

    @property
    def passes(self) -> bool:
        """Whether at least one of our cells was compared, and all agree."""
        agreed = [comparison.verdict == AGREES for comparison in self.comparisons]
        return bool(agreed) and all(agreed) and not self.disagrees


def verify(
    published: Published,
    *,
    names: Collection[str] = (),
    studies: Sequence[Measured] = (),
    stand_in: str | None = None,
) -> list[Check]:
    """A check per figure, by default for all figures. Raises UsageError for an unknown figure."""
    figures = [published.figure(name) for name in names or published.figures]
    return [_check(published, figure, studies, stand_in) for figure in figures]


def targets(published: Published, figure: Figure) -> Iterator[Target]:
    """Every published number of a figure with a place; a printed number is the range that rounds to it.

    Speed-up and efficiency at the base x are left out: they are 1 by definition.
    """
    for row in published.values_of(figure.id):
        first = row.quantity in RATIOS and row.x == figure.base_x
        if row.x is not None and not first and not row.quantity.endswith(HALF_WIDTH):
            ends = (row.y - row.rounding, row.y + row.rounding)
            yield Target(series=row.series, quantity=row.quantity, x=row.x, low=ends[0], high=ends[1])
    for statement in published.statements_of(figure.id):
        x, (low, high) = statement.x_low, statement.band
        if (
            x is None
            or x != statement.x_high
            or statement.x_unit != figure.x_unit
            or (low is None and high is None)
        ):
            continue
        yield Target(series=statement.series, quantity=statement.quantity, x=x, low=low, high=high)


def _check(published: Published, figure: Figure, studies: Sequence[Measured], stand_in: str | None) -> Check:
    comparisons: list[Comparison] = []
    unmatched: list[str] = []  # series that match none of our settings
    absent: dict[str, list[float]] = {}  # system -> x without a record of ours
    public = list(targets(published, figure))
    for target in public:
        wanted = figure.comparable(target.series)
        if wanted.unfillable:
            continue
        if [name for name in wanted.missing if not (name == "system" and stand_in)]:
            unmatched.append(figure.label(target.series))
            continue
        points = [
            point
            for point in matching(figure, wanted, target.quantity, studies, stand_in=stand_in)
            if point.x == target.x and point.row.evidence in COMPARED
        ]
        comparisons += [compare(target, point, figure.tolerance) for point in points]
        if not points:
            absent.setdefault(stand_in or wanted.system or "", []).append(target.x)
    return Check(
        figure=figure,
        comparisons=tuple(comparisons),
        findings=tuple(findings(published, figure)),
        reasons=(
            *_reasons(figure, public, unmatched, absent),
            *(
                f"cannot be filled: {' / '.join(dict.fromkeys(filter(None, labels)))}: {reason}"
                for reason, labels in published.unfillable(figure).items()
            ),
        ),
    )


def _reasons(
    figure: Figure, public: Sequence[Target], unmatched: Sequence[str], absent: Mapping[str, Sequence[float]]
) -> Iterator[str]:
    if not public:
        yield "no number with a place on the axes is public"
    elif figure.own is None:
        yield "no study of ours measures this"
    elif unmatched:
        yield f"not one of our settings: {' / '.join(dict.fromkeys(filter(None, unmatched)))}"
    for system, places in absent.items():
        counts = ", ".join(f"{place:g}" for place in sorted(set(places)))
        yield f"no record of ours on {system} ({figure.x_unit}: {counts})"


def compare(target: Target, point: Point, tolerance: float) -> Comparison:
    """Compare one of our cells with one published number."""
    value = point.value
    ratio = Interval(
        center=_ratio(value.center, target),
        low=None if value.low is None else _ratio(value.low, target),
        high=None if value.high is None else _ratio(value.high, target),
        level=value.level,
        method=value.method,
        n=value.n,
    )
    low = ratio.center if ratio.low is None else ratio.low
    high = ratio.center if ratio.high is None else ratio.high
    within = 1 - tolerance <= low and high <= 1 + tolerance
    outside = high < 1 - tolerance or low > 1 + tolerance
    verdict = AGREES if within else DISAGREES if outside else OPEN
    return Comparison(target=target, point=point, ratio=ratio, verdict=verdict)


def _ratio(ours: float, target: Target) -> float:
    """Our value over the nearest value in the published range."""
    low = 0.0 if target.low is None else target.low
    high = math.inf if target.high is None else target.high
    nearest = min(max(ours, low), high)
    return ours / nearest if nearest else math.inf


Range = tuple[float, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One published value and the value that follows from others; both as ranges in the quantity's base unit."""

    figure: str
    series: str
    quantity: str
    x: float | None
    relation: str
    published: Range
    expected: Range

    @property
    def consistent(self) -> bool:
        """Whether the ranges touch, with a tolerance for floating-point rounding."""
        slack = 1e-9 * max(map(abs, (*self.published, *self.expected)))
        return self.published[0] <= self.expected[1] + slack and self.expected[0] <= self.published[1] + slack


def findings(published: Published, figure: Figure) -> list[Finding]:
    """Consistency checks of a figure: values that follow from others, and values that another publication repeats."""
    rows = [row for row in published.values_of(figure.id) if row.x is not None and not row.about]
    results: list[Finding] = []
    for series in dict.fromkeys(row.series for row in rows):
        own = {(row.quantity, row.x): row for row in rows if row.series == series}
        results += _of_series(figure, own)
    results += [
        _same(published, figure.id, same)
        for same in published.same
        if figure.id in (same.a.figure, same.b.figure)
    ]
    return results


def _of_series(figure: Figure, rows: dict[tuple[str, float | None], Value]) -> Iterator[Finding]:
    base = figure.base_x
    for (quantity, x), row in rows.items():
        if x is None or quantity not in ("efficiency", "speed_up"):
            continue
        rate, start = rows.get(("throughput", x)), rows.get(("throughput", base))
        if rate and start:
            ratio = _over(_range(rate), _range(start))
            # A value over itself is 1, whatever it was rounded from.
            ratio = (1.0, 1.0) if rate is start else ratio
            scale = base / x if quantity == "efficiency" else 1.0
            text = "T(x) b / (T(b) x)" if quantity == "efficiency" else "T(x) / T(b)"
            yield _finding(row, text, (ratio[0] * scale, ratio[1] * scale))
        speed_up = rows.get(("speed_up", x))
        if quantity == "efficiency" and speed_up:
            low, high = _range(speed_up)
            yield _finding(row, "S(x) b / x", (low * base / x, high * base / x))


def _finding(row: Value, relation: str, expected: Range) -> Finding:
    return Finding(
        figure=row.figure,
        series=row.series,
        quantity=row.quantity,
        x=row.x,
        relation=relation,
        published=_range(row),
        expected=expected,
    )


def _same(published: Published, figure: str, same: Same) -> Finding:
    here, there = (same.a, same.b) if same.a.figure == figure else (same.b, same.a)
    row, counterpart = published.find(here), published.find(there)
    if row is None or counterpart is None:
        raise ValueError(f"no value at {here} or {there}: the catalogue was not checked")
    low, high = _range(counterpart)
    spread = (same.tolerance or 0.0) * counterpart.y
    return _finding(row, f"{there.series} in {there.figure}: {same.note}", (low - spread, high + spread))


def _range(row: Value) -> Range:
    return row.y - row.rounding, row.y + row.rounding


def _over(above: Range, below: Range) -> Range:
    """The quotient of positive ranges."""
    return above[0] / below[1], above[1] / below[0]
