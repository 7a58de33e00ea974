"""What differs between two sets of records, point by point.

A point is a combination of what a study varies inside itself (backend, ranks ...): settings that follow from the
backend are held against those of the same backend. Fields that are declared to be what is compared are no differences.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from dlscale.analysis.comparison.fields import CLASSES, Class, Field, covers, field, table
from dlscale.analysis.comparison.values import Value, Values, values
from dlscale.benchmarks.record import Record

Point = tuple[Value, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """A field in which A and B differ at `num_points` of the points, with all values that it has there."""

    field: Field
    blocks: bool
    a: tuple[Value, ...]
    b: tuple[Value, ...]
    num_points: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """`points` are those that both sides have; () alone where there are none, and wholes are compared."""

    factors: tuple[str, ...]  # by short names: what is compared, and therefore no difference
    keys: tuple[str, ...]  # by short names: what makes a point
    points: tuple[Point, ...]
    only_a: tuple[Point, ...]
    only_b: tuple[Point, ...]
    differences: tuple[Difference, ...]  # in order of class, then of the table

    @property
    def blocking(self) -> tuple[Difference, ...]:
        """Those that make the two incomparable."""
        return tuple(one for one in self.differences if one.blocks)

    def of(self, kind: Class) -> tuple[Difference, ...]:
        """Those of one class."""
        return tuple(one for one in self.differences if one.field.kind == kind)


def compare(a: Iterable[Record], b: Iterable[Record], *, factors: Sequence[str] | None = None) -> Comparison:
    """What differs between two sets of good records. Without `factors` they are what A or B vary inside themselves.

    Raises UsageError for a factor that is no field.
    """
    sides = ([values(one) for one in a], [values(one) for one in b])
    known = table()
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
    return Comparison(
        factors=tuple(sorted(chosen)),
        keys=keys,
        points=tuple(points),
        only_a=tuple(sorted(groups[0].keys() - common, key=repr)),
        only_b=tuple(sorted(groups[1].keys() - common, key=repr)),
        differences=tuple(_differences([[side[point] for side in groups] for point in points], ignored)),
    )


def _differences(pairs: Sequence[Sequence[list[Values]]], ignored: Iterable[str]) -> list[Difference]:
    """`pairs` are the values of A's records and of B's at each point."""
    everything = [one for pair in pairs for side in pair for one in side]
    several_nodes = any(one.get("case.cell.num_nodes", 1) != 1 for one in everything)
    found = []
    for path in {path for one in everything for path in one}:
        what = field(path)
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
    return sorted(found, key=lambda one: (CLASSES.index(one.field.kind), one.field.position, one.field.path))


def _by_point(side: Iterable[Values], paths: Sequence[str]) -> dict[Point, list[Values]]:
    found: defaultdict[Point, list[Values]] = defaultdict(list)
    for one in side:
        found[tuple(one.get(path) for path in paths)].append(one)
    return dict(found)


def _seen(side: Iterable[Values], path: str) -> frozenset[Value]:
    return frozenset(one.get(path) for one in side)


def _differ(in_a: frozenset[Value], in_b: frozenset[Value], *, is_range: bool) -> bool:
    if is_range and None not in in_a | in_b:
        a, b = (_ordered(leaf for value in side for leaf in _leaves(value)) for side in (in_a, in_b))
        return _sort_key(a[-1]) < _sort_key(b[0]) or _sort_key(b[-1]) < _sort_key(a[0])
    return in_a != in_b


def _leaves(value: Value) -> Iterator[Value]:
    if isinstance(value, tuple):
        for one in value:
            yield from _leaves(one)
    else:
        yield value


def _ordered(found: Iterable[Value]) -> tuple[Value, ...]:
    """Each value once: numbers by size, then texts."""
    return tuple(sorted(set(found), key=_sort_key))


def _sort_key(value: Value) -> tuple[bool, float, str]:
    if isinstance(value, int | float):
        return (False, float(value), "")
    return (True, 0.0, str(value))
