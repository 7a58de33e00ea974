"""Comparison of two studies: what differs between their records, point by point, and whether they may be compared.

A point is a combination of the fields that a study varies (backend, ranks ...), so that settings that follow from the
backend are compared within the same backend. The declared factors are not differences. The arithmetic comes first, then
the table and the rows for `--json`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from dlscale.analysis.declare import Column, TableOf
from dlscale.analysis.findings.record_fields import (
    FIELD_CLASSES,
    Field,
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
    """A field in which A and B differ at `num_points` of the points, with all its values there."""

    field: Field
    blocks: bool
    a: tuple[FieldValue, ...]
    b: tuple[FieldValue, ...]
    num_points: int
    of_points: int  # that were compared

    @property
    def effect(self) -> str:
        """The effect on the comparison, in a word."""
        return "blocks" if self.blocks else EFFECTS[self.field.kind]


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyComparison:
    """The differences of two studies at their common `points`; a single point () if they are compared as wholes."""

    factors: tuple[str, ...]  # by short names: what is compared, and therefore no difference
    keys: tuple[str, ...]  # by short names: what makes a point
    points: tuple[ComparedPoint, ...]
    only_a: tuple[ComparedPoint, ...]
    only_b: tuple[ComparedPoint, ...]
    differences: tuple[Difference, ...]  # in order of class, then of the table

    @property
    def blocking(self) -> tuple[Difference, ...]:
        """The differences that make the two incomparable."""
        return tuple(difference for difference in self.differences if difference.blocks)


def compare_studies(
    a: Iterable[Record], b: Iterable[Record], *, factors: Sequence[str] | None = None
) -> StudyComparison:
    """The differences between two sets of good records. By default the factors are the fields that A or B vary.

    Raises UsageError for a factor that is not a field.
    """
    sides = ([record_values(record) for record in a], [record_values(record) for record in b])
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
    # If the backends have none in common, nothing that follows from the backend can be equal.
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
    """The differences in `pairs`, the values of A's and of B's records at each point."""
    everything = [values for pair in pairs for side in pair for values in side]
    several_nodes = any(values.get("case.cell.num_nodes", 1) != 1 for values in everything)
    differences = []
    for path in {path for values in everything for path in values}:
        what = field_at(path)
        if what is None or any(covers(name, what.name) for name in ignored):
            continue
        seen = [[_seen(side, path) for side in pair] for pair in pairs]
        differing = [pair for pair in seen if _differ(*pair, is_range=what.is_range)]
        if differing:
            differences.append(
                Difference(
                    field=what,
                    blocks=what.kind == "blocking" or (what.kind == "blocking-warn" and several_nodes),
                    a=_ordered(value for pair in differing for value in pair[0]),
                    b=_ordered(value for pair in differing for value in pair[1]),
                    num_points=len(differing),
                    of_points=len(pairs),
                )
            )
    return sorted(
        differences,
        key=lambda difference: (
            FIELD_CLASSES.index(difference.field.kind),
            difference.field.position,
            difference.field.path,
        ),
    )


def _by_point(side: Iterable[RecordValues], paths: Sequence[str]) -> dict[ComparedPoint, list[RecordValues]]:
    groups: defaultdict[ComparedPoint, list[RecordValues]] = defaultdict(list)
    for values in side:
        groups[tuple(values.get(path) for path in paths)].append(values)
    return dict(groups)


def _seen(side: Iterable[RecordValues], path: str) -> frozenset[FieldValue]:
    return frozenset(values.get(path) for values in side)


def _differ(in_a: frozenset[FieldValue], in_b: frozenset[FieldValue], *, is_range: bool) -> bool:
    if is_range and None not in in_a | in_b:
        a, b = (_ordered(leaf for value in side for leaf in _value_leaves(value)) for side in (in_a, in_b))
        return _sort_key(a[-1]) < _sort_key(b[0]) or _sort_key(b[-1]) < _sort_key(a[0])
    return in_a != in_b


def _value_leaves(value: FieldValue) -> Iterator[FieldValue]:
    if isinstance(value, tuple):
        for entry in value:
            yield from _value_leaves(entry)
    else:
        yield value


def _ordered(values: Iterable[FieldValue]) -> tuple[FieldValue, ...]:
    """Each value once: numbers by size, then texts."""
    return tuple(sorted(set(values), key=_sort_key))


def _sort_key(value: FieldValue) -> tuple[bool, float, str]:
    if isinstance(value, int | float):
        return (False, float(value), "")
    return (True, 0.0, str(value))


SHOWN = 4  # values or points; the rest is only counted
EFFECTS = {"blocking": "blocks", "blocking-warn": "warns", "warn": "warns", "information": "to know"}


def _title(difference: Difference) -> str:
    if difference.num_points == difference.of_points:
        return difference.field.title
    return f"{difference.field.title} (at {difference.num_points} of {difference.of_points} points)"


def difference_row(difference: Difference) -> dict[str, object]:
    """The row of a field; tuples of values, one per rank or node, become lists."""
    return {
        "field": difference.field.path,
        "factor": difference.field.name,
        "title": difference.field.title,
        "class": difference.field.kind,
        "blocks": difference.blocks,
        "a": list(difference.a),
        "b": list(difference.b),
        "num_points": difference.num_points,
    }


DIFFERENCES = TableOf[Difference](
    name="differences",
    caption="What differs",
    columns=(
        Column("effect", lambda difference: difference.effect, numeric=False),
        Column("differs", _title, numeric=False),
        Column(
            "A", lambda difference: _texts(difference.a, is_range=difference.field.is_range), numeric=False
        ),
        Column(
            "B", lambda difference: _texts(difference.b, is_range=difference.field.is_range), numeric=False
        ),
    ),
    data=difference_row,
    strong=lambda difference: difference.blocks,
)


def compared_text(comparison: StudyComparison) -> str:
    """A sentence on what was compared: the points, the factors, and the points of one side only."""
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
        names = ", ".join(difference.field.title for difference in blocking[:SHOWN])
        rest = f" and {len(blocking) - SHOWN} more" if len(blocking) > SHOWN else ""
        example = ",".join([*comparison.factors, *(difference.field.name for difference in blocking[:SHOWN])])
        return (
            f"not comparable: A and B differ in {names}{rest}; measure them alike, or declare what is to be "
            f"compared: --by {example}"
        )
    warnings = [
        difference
        for difference in comparison.differences
        if difference.field.kind in ("blocking-warn", "warn")
    ]
    if warnings:
        return f"comparable; {len(warnings)} of the differences may be why numbers differ"
    return "comparable"


def comparison_json(comparison: StudyComparison) -> dict[str, object]:
    """The comparison as a dictionary with stable keys."""
    return {
        "schema": 1,
        "comparable": not comparison.blocking,
        "factors": list(comparison.factors),
        "keys": list(comparison.keys),
        "points": [list(point) for point in comparison.points],
        "only_a": [list(point) for point in comparison.only_a],
        "only_b": [list(point) for point in comparison.only_b],
        "rows": [difference_row(difference) for difference in comparison.differences],
    }


def _point_texts(points: Sequence[ComparedPoint]) -> str:
    return ", ".join(_first([" ".join(map(str, point)) for point in points]))


def _first(texts: Sequence[str]) -> list[str]:
    return [*texts[:SHOWN], *([f"and {len(texts) - SHOWN} more"] if len(texts) > SHOWN else [])]


def _texts(values: Sequence[FieldValue], *, is_range: bool) -> str:
    if is_range and len(values) > 1:
        return f"{_text(values[0])} to {_text(values[-1])}"
    return "; ".join(_first([_text(value) for value in values]))


def _text(value: FieldValue) -> str:
    if value is None:
        return "-"
    if isinstance(value, tuple):
        return " | ".join(_text(entry) if isinstance(entry, tuple) else str(entry) for entry in value)
    return f"{value:g}" if isinstance(value, float) else str(value)
