"""Published values compared with our cells, and with each other.

Each published number is compared with all of our matching cells (same workload, scaling mode, framework, backend,
system and x): ratio = ours / published, which is 1 anywhere within the rounding or range of the published number.

    agrees      the ratio's interval lies within 1 - tolerance .. 1 + tolerance; without an interval, the ratio does
    disagrees   it lies wholly outside
    open        neither: more launches are needed

A figure without a matching cell of ours is `unknown`, never a pass. What is said of a curve's shape is compared in
`shapes`.

If a publication gives two quantities of one series, one follows from the other (T throughput, S speed-up, E
efficiency, at x; b where S and E are 1):

    E(x) = S(x) b / x        E(x) = T(x) b / (T(b) x)        S(x) = T(x) / T(b)

A printed 0.86 is anything from 0.855 to 0.865, so both sides are ranges: they agree if they touch. Numbers that
the publication calls approximate are not checked. Values computed by such a formula (`derived`) are checked, too.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from dlscale.analysis.measured import Measured
from dlscale.analysis.published.catalogue import Figure, Published, Same
from dlscale.analysis.published.ours import OwnPoint, own_points
from dlscale.analysis.published.values import HALF_WIDTH, RATIOS, Value
from dlscale.analysis.statistics import Interval

AGREES, DISAGREES, OPEN, UNKNOWN = "agrees", "disagrees", "open", "unknown"
COMPARED = ("measured", "emulated", "simulated")  # kinds of evidence of our cells
NO_NUMBER = "no number with a place on the axes is public"
Ends = tuple[float, float]


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
    point: OwnPoint
    ratio: Interval
    verdict: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ShapeComparison:
    """What a publication says of the shape of a curve versus one of ours, `name`, which goes up to `up_to`."""

    words: str
    compared: str  # the quantity
    reading: str
    low: float | None
    high: float | None
    ours: tuple[float, float, float]  # low, center, high; high is infinite where our curve does not end
    up_to: float
    name: str
    evidence: str
    system: str
    study: str
    verdict: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Relation:
    """One published value and the value that follows from others; both as ranges in the quantity's base unit."""

    value: Value
    text: str
    expected: Ends

    @property
    def consistent(self) -> bool:
        """Whether the ranges touch, with a tolerance for floating-point rounding."""
        (low, high), (least, most) = self.value.ends, self.expected
        slack = 1e-9 * max(map(abs, (low, high, least, most)))
        return low <= most + slack and least <= high + slack


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """The comparisons of a figure. `reasons` say why public numbers were not compared."""

    figure: Figure
    comparisons: tuple[Comparison, ...]
    relations: tuple[Relation, ...]
    reasons: tuple[str, ...]
    shapes: tuple[ShapeComparison, ...] = ()

    @property
    def verdict(self) -> str:
        """Disagreement if ours contradicts or published values contradict each other; agreement only if all agree."""
        verdicts = {comparison.verdict for comparison in self.comparisons}
        verdicts |= {shape.verdict for shape in self.shapes}
        if DISAGREES in verdicts or not all(relation.consistent for relation in self.relations):
            return DISAGREES
        return OPEN if OPEN in verdicts else AGREES if verdicts else UNKNOWN


def check_figures(
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
            low, high = row.ends
            yield Target(series=row.series, quantity=row.quantity, x=row.x, low=low, high=high)
    for statement in published.statements_of(figure.id):
        x, ends = statement.x_low, statement.ends
        placed = x == statement.x_high and statement.x_unit == figure.x_unit
        if x is not None and placed and ends != (None, None):
            yield Target(series=statement.series, quantity=statement.quantity, x=x, low=ends[0], high=ends[1])


def _check(published: Published, figure: Figure, studies: Sequence[Measured], stand_in: str | None) -> Check:
    comparisons: list[Comparison] = []
    unmatched: list[str] = []  # series that match none of our settings
    absent: dict[str, list[float]] = {}  # system -> x without a record of ours
    public = list(targets(published, figure))
    for target in public:
        wanted = figure.comparable(target.series)
        if [name for name in wanted.missing if not (name == "system" and stand_in)]:
            unmatched.append(figure.label(target.series))
            continue
        points = [
            point
            for point in own_points(figure, wanted, target.quantity, studies, stand_in=stand_in)
            if point.x == target.x and point.row.evidence in COMPARED
        ]
        comparisons += [compare(target, point, figure.tolerance) for point in points]
        if not points:
            absent.setdefault(stand_in or wanted.system or "", []).append(target.x)
    return Check(
        figure=figure,
        comparisons=tuple(comparisons),
        relations=tuple(relations(published, figure)),
        reasons=tuple(_reasons(figure, public, unmatched, absent)),
    )


def _reasons(
    figure: Figure, public: Sequence[Target], unmatched: Sequence[str], absent: Mapping[str, Sequence[float]]
) -> Iterator[str]:
    if not public:
        yield NO_NUMBER
    elif figure.own is None:
        yield "no study of ours measures this"
    elif unmatched:
        yield f"not one of our settings: {' / '.join(dict.fromkeys(filter(None, unmatched)))}"
    for system, places in absent.items():
        counts = ", ".join(f"{place:g}" for place in sorted(set(places)))
        yield f"no record of ours on {system} ({figure.x_unit}: {counts})"


def compare(target: Target, point: OwnPoint, tolerance: float) -> Comparison:
    """Compare one of our cells with one published number."""
    value = point.value
    least, most = (None if end is None else _ratio(end, target) for end in (value.low, value.high))
    ratio = replace(value, center=_ratio(value.center, target), low=least, high=most)
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


def relations(published: Published, figure: Figure) -> list[Relation]:
    """The values of a figure that follow from others, and those that another publication repeats."""
    by_series: dict[str, dict[tuple[str, float], Value]] = {}
    for row in published.values_of(figure.id):
        if row.x is not None and not row.about:
            by_series.setdefault(row.series, {})[row.quantity, row.x] = row
    found = [relation for rows in by_series.values() for relation in _of_series(figure, rows)]
    pairs = [same for same in published.same if figure.id in (same.a.figure, same.b.figure)]
    return [*found, *(_same(published, figure.id, same) for same in pairs)]


def _of_series(figure: Figure, rows: Mapping[tuple[str, float], Value]) -> Iterator[Relation]:
    base = figure.base_x
    for (quantity, x), row in rows.items():
        if quantity not in RATIOS:
            continue
        rate, start = rows.get(("throughput", x)), rows.get(("throughput", base))
        if rate and start:
            (low, high), (least, most) = rate.ends, start.ends
            # A value over itself is 1, whatever it was rounded from.
            ratio = (1.0, 1.0) if rate is start else (low / most, high / least)
            scale = base / x if quantity == "efficiency" else 1.0
            text = "T(x) b / (T(b) x)" if quantity == "efficiency" else "T(x) / T(b)"
            yield Relation(value=row, text=text, expected=(ratio[0] * scale, ratio[1] * scale))
        speed_up = rows.get(("speed_up", x))
        if quantity == "efficiency" and speed_up:
            low, high = speed_up.ends
            yield Relation(value=row, text="S(x) b / x", expected=(low * base / x, high * base / x))


def _same(published: Published, figure: str, same: Same) -> Relation:
    here, there = (same.a, same.b) if same.a.figure == figure else (same.b, same.a)
    row, counterpart = published.value(here), published.value(there)
    if row is None or counterpart is None:
        raise ValueError(f"no value at {here} or {there}: the catalogue was not checked")
    low, high = counterpart.ends
    spread = (same.tolerance or 0.0) * counterpart.y
    text = f"{there.series} in {there.figure}: {same.note}"
    return Relation(value=row, text=text, expected=(low - spread, high + spread))
