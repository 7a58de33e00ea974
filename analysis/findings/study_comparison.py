"""Comparison of two studies: what differs between their records, point by point, and whether they may be compared.

A point is a combination of what a study varies inside itself (backend, ranks ...): settings that follow from the
backend are held against those of the same backend. Fields that are declared to be what is compared are no
differences. Below the differences stand the table for people and the rows for programs.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from rich.table import Table
from rich.text import Text

from dlscale.analysis.findings.record_fields import (
    FIELD_CLASSES,
    Field,
    FieldClass,
    FieldValue,
    RecordValues,
    covers,
    field_at,
    field_table,
    record_values,
)
from dlscale.benchmarks.records.record import Record

ComparedPoint = tuple[FieldValue, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """A field in which A and B differ at `num_points` of the points, with all values that it has there."""

    field: Field
    blocks: bool
    a: tuple[FieldValue, ...]
    b: tuple[FieldValue, ...]
    num_points: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyComparison:
    """`points` are those that both sides have; () alone where there are none, and wholes are compared."""

    factors: tuple[str, ...]  # by short names: what is compared, and therefore no difference
    keys: tuple[str, ...]  # by short names: what makes a point
    points: tuple[ComparedPoint, ...]
    only_a: tuple[ComparedPoint, ...]
    only_b: tuple[ComparedPoint, ...]
    differences: tuple[Difference, ...]  # in order of class, then of the table

    @property
    def blocking(self) -> tuple[Difference, ...]:
        """Those that make the two incomparable."""
        return tuple(one for one in self.differences if one.blocks)

    def of(self, kind: FieldClass) -> tuple[Difference, ...]:
        """Those of one class."""
        return tuple(one for one in self.differences if one.field.kind == kind)


def compare_studies(
    a: Iterable[Record], b: Iterable[Record], *, factors: Sequence[str] | None = None
) -> StudyComparison:
    """What differs between two sets of good records. Without `factors` they are what A or B vary inside themselves.

    Raises UsageError for a factor that is no field.
    """
    sides = ([record_values(one) for one in a], [record_values(one) for one in b])
    known = field_table()
    seen = {
        name: [_seen(side, known.path(name)) for side in sides]
        for name in dict.fromkeys([*known.points, *known.follows])
    }
    varied = [name for name in known.points if max(map(len, seen[name])) > 1]
    chosen = frozenset(varied) if factors is None else known.factors(factors)
    keys = tuple(name for name in varied if seen[name][0] & seen[name][1])
    groups = [_by_point(side, [known.path(name) for name in keys]) for side in sides]
    common = groups[0].keys() & groups[1].keys()
    if not common:
        keys, groups, common = (), [{(): side} for side in sides], {()}
    # Of backend A and backend B alone, nothing that follows from the backend could be the same.
    apart = [name for name in known.follows if name in chosen and not seen[name][0] & seen[name][1]]
    ignored = chosen.union(*(known.follows[name] for name in apart))
    points = sorted(common, key=repr)
    return StudyComparison(
        factors=tuple(sorted(chosen)),
        keys=keys,
        points=tuple(points),
        only_a=tuple(sorted(groups[0].keys() - common, key=repr)),
        only_b=tuple(sorted(groups[1].keys() - common, key=repr)),
        differences=tuple(_differences([[side[point] for side in groups] for point in points], ignored)),
    )


def _differences(pairs: Sequence[Sequence[list[RecordValues]]], ignored: Iterable[str]) -> list[Difference]:
    """`pairs` are the values of A's records and of B's at each point."""
    everything = [one for pair in pairs for side in pair for one in side]
    several_nodes = any(one.get("case.cell.num_nodes", 1) != 1 for one in everything)
    found = []
    for path in {path for one in everything for path in one}:
        what = field_at(path)
        if what is None or any(covers(name, what.name) for name in ignored):
            continue
        seen = [[_seen(side, path) for side in pair] for pair in pairs]
        differing = [pair for pair in seen if _differ(*pair, is_range=what.is_range)]
        if differing:
            found.append(
                Difference(
                    field=what,
                    blocks=what.kind == "blocking" or (what.kind == "blocking-warn" and several_nodes),
                    a=_ordered(value for pair in differing for value in pair[0]),
                    b=_ordered(value for pair in differing for value in pair[1]),
                    num_points=len(differing),
                )
            )
    return sorted(
        found, key=lambda one: (FIELD_CLASSES.index(one.field.kind), one.field.position, one.field.path)
    )


def _by_point(side: Iterable[RecordValues], paths: Sequence[str]) -> dict[ComparedPoint, list[RecordValues]]:
    found: defaultdict[ComparedPoint, list[RecordValues]] = defaultdict(list)
    for one in side:
        found[tuple(one.get(path) for path in paths)].append(one)
    return dict(found)


def _seen(side: Iterable[RecordValues], path: str) -> frozenset[FieldValue]:
    return frozenset(one.get(path) for one in side)


def _differ(in_a: frozenset[FieldValue], in_b: frozenset[FieldValue], *, is_range: bool) -> bool:
    if is_range and None not in in_a | in_b:
        a, b = (_ordered(leaf for value in side for leaf in _value_leaves(value)) for side in (in_a, in_b))
        return _sort_key(a[-1]) < _sort_key(b[0]) or _sort_key(b[-1]) < _sort_key(a[0])
    return in_a != in_b


def _value_leaves(value: FieldValue) -> Iterator[FieldValue]:
    if isinstance(value, tuple):
        for one in value:
            yield from _value_leaves(one)
    else:
        yield value


def _ordered(found: Iterable[FieldValue]) -> tuple[FieldValue, ...]:
    """Each value once: numbers by size, then texts."""
    return tuple(sorted(set(found), key=_sort_key))


def _sort_key(value: FieldValue) -> tuple[bool, float, str]:
    if isinstance(value, int | float):
        return (False, float(value), "")
    return (True, 0.0, str(value))


SHOWN = 4  # values or points; of more the rest is counted
CLASS_NAMES = {
    "blocking": "blocks",
    "blocking-warn": "warns",
    "warn": "warns",
    "information": "to know",
}


def difference_table(comparison: StudyComparison) -> Table:
    """A row per field that differs, in order of class."""
    found = Table(box=None, header_style="bold", pad_edge=False)
    for title in ("", "differs", "A", "B"):
        found.add_column(title, overflow="fold")
    for one in comparison.differences:
        style = "bold red" if one.blocks else "" if one.field.kind != "information" else "dim"
        where = "" if one.num_points == len(comparison.points) else f" (at {_of_text(one, comparison)})"
        # Text, not markup: names and settings may hold brackets.
        cells = (
            class_name(one),
            one.field.title + where,
            _value_texts(one.a, is_range=one.field.is_range),
            _value_texts(one.b, is_range=one.field.is_range),
        )
        found.add_row(*(Text(cell, style=style) for cell in cells))
    return found


def class_name(difference: Difference) -> str:
    """What the difference does to a comparison, in a word."""
    return "blocks" if difference.blocks else CLASS_NAMES[difference.field.kind]


def compared_text(comparison: StudyComparison) -> str:
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
            text += f"; only in {side}: {_point_texts(points)}"
    return text


def comparison_verdict(comparison: StudyComparison) -> str:
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


def comparison_json(comparison: StudyComparison) -> dict[str, object]:
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


def _of_text(difference: Difference, comparison: StudyComparison) -> str:
    return f"{difference.num_points} of {len(comparison.points)} points"


def _point_texts(points: Sequence[ComparedPoint]) -> str:
    shown = [" ".join(str(value) for value in point) for point in points[:SHOWN]]
    rest = [f"and {len(points) - SHOWN} more"] if len(points) > SHOWN else []
    return ", ".join([*shown, *rest])


def _value_texts(found: Sequence[FieldValue], *, is_range: bool) -> str:
    if is_range and len(found) > 1:
        return f"{_value_text(found[0])} to {_value_text(found[-1])}"
    shown = [_value_text(value) for value in found[:SHOWN]]
    rest = [f"and {len(found) - SHOWN} more"] if len(found) > SHOWN else []
    return "; ".join([*shown, *rest])


def _value_text(value: FieldValue) -> str:
    if value is None:
        return "-"
    if isinstance(value, tuple):
        return " | ".join(_value_text(one) if isinstance(one, tuple) else str(one) for one in value)
    return f"{value:g}" if isinstance(value, float) else str(value)
