"""How values stand in tables."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from dlscale.analysis.family import Family
from dlscale.analysis.page.model import Column, Datum, Table, Value
from dlscale.analysis.page.words import workload_title
from dlscale.analysis.statistics import Interval

NOTHING = Value(text="-")
TRAINING = (Column(label="training", numeric=False), Column(label="mode", numeric=False))


def of_interval(interval: Interval | None, say: Callable[[Interval], str]) -> Value:
    """Said in words, sorted by its centre."""
    return NOTHING if interval is None else Value(text=say(interval), order=finite(interval.center))


def of_number(value: float | None, form: str = "") -> Value:
    """In Python's format `form`; "-" where there is none, or where it is no finite number."""
    known = finite(value)
    return NOTHING if known is None else Value(text=f"{known:{form}}", order=known)


def finite(value: float | None) -> float | None:
    """None for what JSON and a table have no word for."""
    return value if value is not None and math.isfinite(value) else None


def training(family: Family) -> tuple[Value, Value]:
    """What was trained how, under the columns `TRAINING`."""
    name = f"{workload_title(family.workload)} {family.preset}, {family.framework}"
    return Value(text=name), Value(text=f"{family.scaling_mode}, {family.constants}")


def flat(row: Mapping[str, Any]) -> dict[str, Datum]:
    """A row of `rows.py` for CSV and JSON: lists become text, what is not finite becomes empty."""
    return {
        name: "; ".join(map(str, value))
        if isinstance(value, list)
        else finite(value)
        if isinstance(value, float)
        else value
        for name, value in row.items()
    }


def trimmed(table: Table) -> Table:
    """Without what says nothing: empty columns, and `TRAINING` where all rows are alike; the caption says it then."""
    if not table.rows:
        return table
    same = [
        index
        for index, column in enumerate(table.columns)
        if column in TRAINING and len({row.values[index].text for row in table.rows}) == 1
    ]
    said = ", ".join(table.rows[0].values[index].text for index in same)
    empty = [
        index for index in range(len(table.columns)) if not any(row.values[index].text for row in table.rows)
    ]
    left = [index for index in range(len(table.columns)) if index not in {*same, *empty}]
    return replace(
        table,
        caption=f"{table.caption}: {said}" if said else table.caption,
        columns=tuple(table.columns[index] for index in left),
        rows=tuple(replace(row, values=tuple(row.values[index] for index in left)) for row in table.rows),
    )
