"""Whether what was published agrees with itself, within the rounding of what is printed.

Where a publication gives two quantities of one series, one follows from the other (T throughput, S speed-up,
E efficiency, at x; b where S and E are 1):

    E(x) = S(x) b / x          E(x) = T(x) b / (T(b) x)          S(x) = T(x) / T(b)

A printed 0.86 is anything from 0.855 to 0.865, so both sides are ranges: they agree if they touch. What the
publication calls a rough number is held against nothing. A value by such a formula (`derived`) is checked alike.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from dlscale.analysis.published.catalogue import Figure, Same
from dlscale.analysis.published.load import Published
from dlscale.analysis.published.values import Value

Range = tuple[float, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One published value and what others say that it must be; both as ranges in the quantity's base unit."""

    figure: str
    series: str
    quantity: str
    x: float | None
    relation: str
    published: Range
    expected: Range

    @property
    def consistent(self) -> bool:
        """Whether the ranges touch. They are widened by what floating-point numbers lose."""
        slack = 1e-9 * max(map(abs, (*self.published, *self.expected)))
        return self.published[0] <= self.expected[1] + slack and self.expected[0] <= self.published[1] + slack


def findings(published: Published, figure: Figure) -> list[Finding]:
    """Of one figure: every value that follows from others, and those that another publication has too."""
    rows = [row for row in published.values_of(figure.id) if row.x is not None and not row.about]
    found: list[Finding] = []
    for series in dict.fromkeys(row.series for row in rows):
        own = {(row.quantity, row.x): row for row in rows if row.series == series}
        found += _of_series(figure, own)
    found += [
        _same(published, figure.id, same)
        for same in published.same
        if figure.id in (same.a.figure, same.b.figure)
    ]
    return found


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
    row, other = published.find(here), published.find(there)
    if row is None or other is None:
        raise ValueError(f"no value at {here} or {there}: the catalogue was not checked")
    low, high = _range(other)
    spread = (same.tolerance or 0.0) * other.y
    return _finding(row, f"{there.series} in {there.figure}: {same.note}", (low - spread, high + spread))


def _range(row: Value) -> Range:
    return row.y - row.rounding, row.y + row.rounding


def _over(above: Range, below: Range) -> Range:
    """Of positive ranges."""
    return above[0] / below[1], above[1] / below[0]
