"""Two studies and several: what differs between their records, the same trainings in each, and earlier ones.

A point is a combination of the fields that a study varies (backend, ranks ...), so that settings that follow from the
backend are compared within the same backend. The declared factors are not differences. Launches of two studies share no
block, so nothing is claimed of their ratios.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from dlscale.analysis import record_fields
from dlscale.analysis.finding import COUNT, PLACE, Column, Finding, frame_of
from dlscale.analysis.findings import scaling
from dlscale.analysis.findings.comparison import change
from dlscale.analysis.load import Study
from dlscale.analysis.record_fields import Value, field_table
from dlscale.analysis.statistics import block_median, ratio
from dlscale.analysis.text import plural
from dlscale.benchmarks.records.record import Record

Point = tuple[Value, ...]
Values = dict[str, Value]  # of a record: path -> value
SHOWN = 4  # values or points; the rest is only counted
EFFECTS = {"blocking": "blocks", "blocking-warn": "warns", "warn": "warns", "information": "to know"}


# What differs


class Comparison(NamedTuple):
    """The differences of studies A and B at their common points; a single point () if they are compared as wholes.

    `differences` has a row per field, in order of class: `field`, its short name `factor`, `title`, `class`, whether it
    `blocks`, all values of `a` and `b` where they differ, at `num_points` of `of_points`.
    """

    factors: list[str]  # by short names: what is compared, and therefore no difference
    keys: list[str]  # what makes a point
    points: list[Point]
    only_a: list[Point]
    only_b: list[Point]
    differences: pd.DataFrame

    @property
    def blocking(self) -> pd.DataFrame:
        """The differences that make the two incomparable."""
        return self.differences[self.differences["blocks"].astype(bool)]


def good_records(study: Study) -> list[Record]:
    """The latest good record of every case."""
    return [study.records[number] for number in study.good["number"]]


def compare_studies(
    a: Iterable[Record], b: Iterable[Record], *, factors: Sequence[str] | None = None
) -> Comparison:
    """The differences between two sets of good records. By default the factors are the fields that A or B vary.

    Raises UsageError for a factor that is not a field.
    """
    sides = (
        [record_fields.record_values(record) for record in a],
        [record_fields.record_values(record) for record in b],
    )
    variable, follows = field_table()["rules"]["points"], field_table()["follows"]
    seen = {
        name: [_seen(side, record_fields.path_of(name)) for side in sides] for name in {*variable, *follows}
    }
    varied = [name for name in variable if max(map(len, seen[name])) > 1]
    chosen = {*varied} if factors is None else record_fields.factor_names(factors)
    keys = [name for name in varied if seen[name][0] & seen[name][1]]
    groups = [_by_point(side, [record_fields.path_of(name) for name in keys]) for side in sides]
    common = groups[0].keys() & groups[1].keys()
    if not common:
        keys, groups, common = [], [{(): side} for side in sides], {()}
    # If the backends have none in common, nothing that follows from the backend can be equal.
    apart = [name for name in follows if name in chosen and not seen[name][0] & seen[name][1]]
    ignored = chosen.union(*(follows[name] for name in apart))
    points, only_a, only_b = (
        sorted(some, key=repr) for some in (common, groups[0].keys() - common, groups[1].keys() - common)
    )
    pairs = [(groups[0][point], groups[1][point]) for point in points]
    return Comparison(sorted(chosen), keys, points, only_a, only_b, _differences(pairs, ignored))


def _differences(pairs: Sequence[tuple[list[Values], list[Values]]], ignored: set[str]) -> pd.DataFrame:
    """A row per field that differs in `pairs`, the values of A's and of B's records at each point."""
    everything = [values for pair in pairs for side in pair for values in side]
    several_nodes = any(values.get("case.cell.num_nodes", 1) != 1 for values in everything)
    rows: list[dict[str, Any]] = []
    for path in {path for values in everything for path in values}:
        what, name = record_fields.field_at(path), record_fields.short_name(path)
        if what is None or any(record_fields.covers(factor, name) for factor in ignored):
            continue
        seen = [(_seen(a, path), _seen(b, path)) for a, b in pairs]
        differing = [pair for pair in seen if _differ(*pair, is_range=what.is_range)]
        if differing:
            rows.append(
                {
                    "field": path,
                    "factor": name,
                    "title": what.title,
                    "class": what.kind,
                    "blocks": what.kind == "blocking" or (what.kind == "blocking-warn" and several_nodes),
                    "a": _ordered(value for a, _ in differing for value in a),
                    "b": _ordered(value for _, b in differing for value in b),
                    "num_points": len(differing),
                    "of_points": len(pairs),
                    "order": (record_fields.CLASSES.index(what.kind), what.position, path),
                    "is_range": what.is_range,
                }
            )
    rows.sort(key=lambda row: row["order"])
    return frame_of(rows, "field", "factor", "title", "class", "blocks", "a", "b", "num_points", "of_points")


def _by_point(side: Iterable[Values], paths: Sequence[str]) -> dict[Point, list[Values]]:
    groups: dict[Point, list[Values]] = {}
    for values in side:
        groups.setdefault(tuple(values.get(path) for path in paths), []).append(values)
    return groups


def _seen(side: Iterable[Values], path: str) -> set[Value]:
    return {values.get(path) for values in side}


def _differ(in_a: set[Value], in_b: set[Value], *, is_range: bool) -> bool:
    if is_range and None not in in_a | in_b:
        a, b = (_ordered(leaf for value in side for leaf in _members(value)) for side in (in_a, in_b))
        return _sort_key(a[-1]) < _sort_key(b[0]) or _sort_key(b[-1]) < _sort_key(a[0])
    return in_a != in_b


def _members(value: Value) -> Iterator[Value]:
    """The values of all ranks or nodes."""
    if isinstance(value, tuple):
        for entry in value:
            yield from _members(entry)
    else:
        yield value


def _ordered(values: Iterable[Value]) -> list[Value]:
    """Each value once: numbers by size, then texts."""
    return sorted(set(values), key=_sort_key)


def _sort_key(value: Value) -> tuple[bool, float, str]:
    return (False, float(value), "") if isinstance(value, int | float) else (True, 0.0, str(value))


# How it is said


def difference_table(differences: pd.DataFrame) -> pd.DataFrame:
    """The texts of a table: what a difference does, the field, and its values in A and B."""
    rows = []
    for row in differences.to_dict("records"):
        where = f" (at {row['num_points']} of {row['of_points']} points)"
        values = [_texts(row[side], is_range=row["is_range"]) for side in ("a", "b")]
        rows.append(
            {
                "effect": "blocks" if row["blocks"] else EFFECTS[row["class"]],
                "differs": row["title"] + where * (row["num_points"] < row["of_points"]),
                **dict(zip(("A", "B"), values, strict=True)),
            }
        )
    table = frame_of(rows, "effect", "differs", "A", "B")
    table["effect"] = table["effect"].where(table["effect"] != table["effect"].shift(), "")
    return table


def compared_text(comparison: Comparison) -> str:
    """A sentence on what was compared: the points, the factors, and the points of one side only."""
    keys = comparison.keys
    text = f"compared at {plural(len(comparison.points), 'point')} with equal {', '.join(keys)}"
    parts = [text if keys else "A and B are compared as wholes"]
    if apart := [name for name in comparison.factors if name not in keys]:
        parts.append(f"what is compared: {', '.join(apart)}")
    for side, points in (("A", comparison.only_a), ("B", comparison.only_b)):
        if points:
            parts.append(f"only in {side}: {_first([' '.join(map(str, point)) for point in points])}")
    return "; ".join(parts)


def comparison_verdict(comparison: Comparison) -> str:
    """One line: whether A and B may be compared, and what to do if not."""
    blocking = comparison.blocking
    if len(blocking):
        example = ",".join([*comparison.factors, *blocking["factor"][:SHOWN]])
        return (
            f"not comparable: A and B differ in {_first([*blocking['title']])}; measure them alike, or declare what is "
            f"to be compared: --by {example}"
        )
    num = int(comparison.differences["class"].isin(["blocking-warn", "warn"]).sum())
    return f"comparable; {num} of the differences may be why numbers differ" if num else "comparable"


def _first(texts: Sequence[str], joint: str = ", ") -> str:
    more = f" and {len(texts) - SHOWN} more" if len(texts) > SHOWN else ""
    return joint.join(texts[:SHOWN]) + more


def _texts(values: Sequence[Value], *, is_range: bool) -> str:
    if is_range and len(values) > 1:
        return f"{_text(values[0])} to {_text(values[-1])}"
    return _first([_text(value) for value in values], "; ")


def _text(value: Value) -> str:
    if isinstance(value, tuple):
        return " | ".join(_text(entry) if isinstance(entry, tuple) else str(entry) for entry in value)
    if value is None:
        return "-"
    return f"{value:g}" if isinstance(value, float) else str(value)


# Throughputs of two and more

UNPAIRED = (
    "Unpaired: what changed on the machine between the studies is in these ratios, so nothing is claimed. To claim a "
    "difference, measure both in one study."
)


def pairs_between(a: Study, b: Study, keys: Sequence[str]) -> tuple[pd.DataFrame, list[str]]:
    """A row per point that has one training in A and one in B, of one kind of evidence; and points of several."""
    on = ["evidence", *keys]
    sides = []
    for study in (b, a):
        cells = study.trained[(study.trained["control"] == "train") & (study.trained["num_launches"] > 0)]
        sides.append(cells.reset_index()[list(dict.fromkeys(["cell", *on, "curve", "num_ranks"]))])
    common = sides[0].merge(sides[1], on=on, suffixes=("", "_a"))
    several = common.duplicated(on, keep=False)
    names = common.loc[several, list(keys)].drop_duplicates().astype(str)
    left_out = [f"{' '.join(row)}: several of them in one study" for row in names.itertuples(index=False)]
    return common[~several].reset_index(drop=True), left_out


def between(a: Study, pairs: pd.DataFrame) -> Finding:
    """The finding of study B that compares each training with that of A in the same row of `pairs`."""

    def compute(b: Study) -> pd.DataFrame:
        wide = [study.wide("samples_per_second") for study in (b, a)]
        rows: list[dict[str, Any]] = []
        for pair in pairs.to_dict("records"):
            over, under = wide[0][pair["cell"]].dropna(), wide[1][pair["cell_a"]].dropna()
            # Blocks of two studies are never paired, even if the studies have the same name.
            gaps = [np.full(len(own), np.nan) for own in (over, under)]
            unpaired = np.concatenate([over, gaps[1]]), np.concatenate([gaps[0], under])
            its = {name: pair.get(f"{name}_a", pair[name]) for name in ("curve", "num_ranks")}
            is_other = any(pair[name] != value for name, value in its.items())
            rows.append(
                {
                    "cell": pair["cell"],
                    "training_a": f"{its['curve']}, {plural(its['num_ranks'], 'rank')}" * is_other,
                    **ratio(*unpaired).columns("ratio"),
                    "ratio_median": block_median(*unpaired),
                    "num_a": len(under),
                    "num_b": len(over),
                }
            )
        return frame_of(rows, "cell", *BETWEEN.keys() - PLACE.keys())

    return Finding(
        name="between", title="B versus A", compute=compute, columns=BETWEEN, sentence=lambda _: UNPAIRED
    )


BETWEEN = {
    **PLACE,
    "training_a": Column("backend and ranks of A, where they differ", "of A"),
    "ratio": Column(
        "throughput of B over that of A, unpaired, shown as a difference", "throughput", "%", write=change
    ),
    "ratio_median": Column("the same of median launches"),
    "num_a": Column("launches of A", "n of A", write=COUNT),
    "num_b": Column("launches of B", "n of B", write=COUNT),
}


def with_earlier(earlier: Sequence[Study]) -> Finding:
    """The finding of the newest study: each training's throughput next to those of the earlier studies that have it."""

    def compute(newest: Study) -> pd.DataFrame:
        rows, *others = (_rates(study) for study in (newest, *earlier))
        by_cell = pd.concat([rows.head(0), *others]).groupby("id")["samples_per_second"]
        past = by_cell.agg(earlier_median="median", earlier_low="min", earlier_high="max", num_earlier="size")
        rows = rows.merge(past, left_on="id", right_index=True)
        rate = rows["samples_per_second"]
        rows["change"] = rate / rows["earlier_median"] - 1
        return rows.assign(outside=(rate < rows["earlier_low"]) | (rate > rows["earlier_high"]))

    return Finding(
        name="earlier",
        title="The newest study next to the earlier ones",
        compute=compute,
        columns=EARLIER,
        sentence=lambda frame: (
            f"{frame['outside'].sum()} of {plural(len(frame), 'training')} outside the range of the "
            "earlier studies. This is no test: the machine changes between studies."
        ),
    )


def _rates(study: Study) -> pd.DataFrame:
    rows = scaling.FINDING.of(study)
    rows = rows[(rows["control"] == "train") & rows["samples_per_second"].notna()]
    return rows[["cell", "id", *(f"samples_per_second{end}" for end in ("", "_low", "_high", "_n"))]]


EARLIER = {
    **PLACE,
    "samples_per_second": Column("throughput of the newest study", "newest", "samples/s"),
    "earlier_median": Column("median throughput of the earlier studies", "earlier median", "samples/s"),
    "earlier_low": Column("the lowest of them", "from"),
    "earlier_high": Column("the highest of them", "to"),
    "num_earlier": Column("earlier studies that have it", "studies", write=COUNT),
    "change": Column(
        "the newest over their median, less 1", "change", "%", factor=100, write="{:+.1f}".format
    ),
    "outside": Column("faster or slower than in each earlier study", "outside"),
}
