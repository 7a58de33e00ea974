"""A comparison for people, and as rows for programs."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table
from rich.text import Text

from dlscale.analysis.comparison.differences import Comparison, Difference, Point
from dlscale.analysis.comparison.values import Value

SHOWN = 4  # values or points; of more the rest is counted
NAMES = {
    "blocking": "blocks",
    "blocking-warn": "warns",
    "warn": "warns",
    "information": "to know",
}


def difference_table(comparison: Comparison) -> Table:
    """A row per field that differs, in order of class."""
    found = Table(box=None, header_style="bold", pad_edge=False)
    for title in ("", "differs", "A", "B"):
        found.add_column(title, overflow="fold")
    for one in comparison.differences:
        style = "bold red" if one.blocks else "" if one.field.kind != "information" else "dim"
        where = "" if one.num_points == len(comparison.points) else f" (at {_of(one, comparison)})"
        # Text, not markup: names and settings may hold brackets.
        cells = (
            class_name(one),
            one.field.title + where,
            _values(one.a, is_range=one.field.is_range),
            _values(one.b, is_range=one.field.is_range),
        )
        found.add_row(*(Text(cell, style=style) for cell in cells))
    return found


def class_name(difference: Difference) -> str:
    """What the difference does to a comparison, in a word."""
    return "blocks" if difference.blocks else NAMES[difference.field.kind]


def compared(comparison: Comparison) -> str:
    """What was held against what."""
    if not comparison.keys:
        text = "A and B are compared as wholes"
    else:
        num_points = len(comparison.points)
        text = (
            f"compared at {num_points} point{'s' * (num_points > 1)} with equal {', '.join(comparison.keys)}"
        )
    apart = [name for name in comparison.factors if name not in comparison.keys]
    if apart:
        text += f"; what is compared: {', '.join(apart)}"
    for side, points in (("A", comparison.only_a), ("B", comparison.only_b)):
        if points:
            text += f"; only in {side}: {_points(points)}"
    return text


def verdict(comparison: Comparison) -> str:
    """One line: whether A and B may be compared, and what to do if not."""
    if blocking := comparison.blocking:
        names = ", ".join(one.field.title for one in blocking[:SHOWN])
        rest = f" and {len(blocking) - SHOWN} more" if len(blocking) > SHOWN else ""
        example = ",".join([*comparison.factors, *(one.field.name for one in blocking[:SHOWN])])
        return (
            f"not comparable: A and B differ in {names}{rest}; measure them alike, or declare what is to be "
            f"compared: --factor {example}"
        )
    warnings = [one for one in comparison.differences if one.field.kind in ("blocking-warn", "warn")]
    if warnings:
        return f"comparable; {len(warnings)} of the differences may be why numbers differ"
    return "comparable"


def to_json(comparison: Comparison) -> dict[str, object]:
    """Rows with stable keys; tuples of values, one per rank or node, become lists."""
    rows = [
        {
            "field": one.field.path,
            "factor": one.field.name,
            "title": one.field.title,
            "class": one.field.kind,
            "blocks": one.blocks,
            "a": list(one.a),
            "b": list(one.b),
            "num_points": one.num_points,
        }
        for one in comparison.differences
    ]
    return {
        "schema": 1,
        "comparable": not comparison.blocking,
        "factors": list(comparison.factors),
        "keys": list(comparison.keys),
        "points": [list(point) for point in comparison.points],
        "only_a": [list(point) for point in comparison.only_a],
        "only_b": [list(point) for point in comparison.only_b],
        "rows": rows,
    }


def _of(difference: Difference, comparison: Comparison) -> str:
    return f"{difference.num_points} of {len(comparison.points)} points"


def _points(points: Sequence[Point]) -> str:
    shown = [" ".join(str(value) for value in point) for point in points[:SHOWN]]
    rest = [f"and {len(points) - SHOWN} more"] if len(points) > SHOWN else []
    return ", ".join([*shown, *rest])


def _values(found: Sequence[Value], *, is_range: bool) -> str:
    if is_range and len(found) > 1:
        return f"{_one(found[0])} to {_one(found[-1])}"
    shown = [_one(value) for value in found[:SHOWN]]
    rest = [f"and {len(found) - SHOWN} more"] if len(found) > SHOWN else []
    return "; ".join([*shown, *rest])


def _one(value: Value) -> str:
    if value is None:
        return "-"
    if isinstance(value, tuple):
        return " | ".join(_one(one) if isinstance(one, tuple) else str(one) for one in value)
    return f"{value:g}" if isinstance(value, float) else str(value)
