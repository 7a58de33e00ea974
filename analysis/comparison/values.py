"""A record as a flat list of comparable values."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from dlscale.analysis.comparison.fields import field
from dlscale.benchmarks.record import Record

Value = str | int | float | bool | tuple["Value", ...] | None
"""None: not recorded, or not set. A tuple: one value per rank or node, where they differ."""

Values = dict[str, Value]

RESULTS = {"windows", "phases", "gates", "final_loss", "skipped_samples"}  # large, and not compared


def values(record: Record) -> Values:
    """Path -> value of everything that the table of fields compares.

    Of local and global batch only the one that is held constant along a curve is there; the other follows from ranks.
    """
    derived = "global_batch" if record.case.cell.scaling_mode == "weak" else "local_batch"
    return {
        path: value
        for path, value in _leaves(record.model_dump(mode="json", exclude=RESULTS), "")
        if path != f"case.cell.{derived}" and field(path) is not None
    }


def _leaves(value: dict[str, Any], place: str) -> Iterator[tuple[str, Value]]:
    """Every leaf with its path. What is None and could have had parts is left out, as if not recorded."""
    for name, one in value.items():
        path = f"{place}.{name}" if place else name
        if isinstance(one, dict):
            yield from _leaves(one, path)
        elif isinstance(one, list) and one and isinstance(one[0], dict):
            yield from _members(one, f"{path}[]")
        elif isinstance(one, list):
            if one:
                yield path, _frozen(one)
        elif one is not None:
            yield path, one


def _members(members: list[dict[str, Any]], place: str) -> Iterator[tuple[str, Value]]:
    """The members' values under one path: one where all are equal, else all."""
    flat = [dict(_leaves(member, place)) for member in members]
    for path in dict.fromkeys(path for one in flat for path in one):
        found = tuple(one.get(path) for one in flat)
        yield path, found[0] if len(set(found)) == 1 else found


def _frozen(value: Any) -> Value:
    return tuple(_frozen(one) for one in value) if isinstance(value, list) else value
