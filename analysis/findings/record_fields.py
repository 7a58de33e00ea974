"""The fields of a record (`record_fields.toml`): titles, values, and whether a difference blocks a comparison."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any, Literal

from dlscale.base.errors import UsageError
from dlscale.benchmarks.records.record import Record

FieldClass = Literal["blocking", "blocking-warn", "warn", "information"]
FIELD_CLASSES: tuple[FieldClass, ...] = ("blocking", "blocking-warn", "warn", "information")
NOT_COMPARED = "not-compared"


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """A field of a record, or one entry of a dictionary in it."""

    path: str  # "case.cell.backend", "fingerprint.versions.torch", "nodes[].cpu_boost"
    kind: FieldClass
    title: str
    position: int  # in the table
    is_range: bool  # values never repeat exactly: two sides differ if their ranges do not overlap

    @property
    def name(self) -> str:
        return short_name(self.path)


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldTable:
    """The table of all fields. `points`, `groups` and `follows` use the short names of fields."""

    rows: Mapping[str, tuple[FieldClass, str]]  # path, "x.*" for each entry of x -> class and title
    not_compared: frozenset[str]
    ranges: frozenset[str]
    points: tuple[str, ...]
    groups: Mapping[str, tuple[str, ...]]
    follows: Mapping[str, tuple[str, ...]]

    def path(self, name: str) -> str:
        """The path of the field with that short name; the name itself if the table has no such field."""
        return next((path for path in self.rows if short_name(path) == name), name)

    def factors(self, words: Iterable[str]) -> frozenset[str]:
        """The short names that these groups and fields stand for. Raises UsageError for a word that is neither."""
        names: set[str] = set()
        for word in words:
            name = short_name(word)
            if word not in self.groups and not self._is_known(name):
                known = ", ".join(
                    [*self.groups, *(short_name(path) for path in self.rows if "cell." in path)]
                )
                raise UsageError(
                    f"no factor {word!r}; choose from {known}, or any other field that a comparison names"
                )
            names.update(self.groups.get(word, (name,)))
        return frozenset(names)

    def _is_known(self, name: str) -> bool:
        """Whether it is a field, a part of a record that has fields, or an entry of a dictionary."""
        names = [short_name(path).removesuffix(".*") for path in self.rows]
        return any(covers(name, known) for known in names) or any(
            path.endswith(".*") and covers(short_name(path).removesuffix(".*"), name) for path in self.rows
        )


def short_name(path: str) -> str:
    """The name of a field on the command line: its path without the common prefixes."""
    for part in ("case.cell.", "fingerprint.", "configuration."):
        path = path.removeprefix(part)
    return path.replace("[]", "")


def covers(factor: str, name: str) -> bool:
    """Whether a factor is the field of that short name or a part of the record that contains it."""
    return name == factor or name.startswith(f"{factor}.")


@cache
def field_at(path: str) -> Field | None:
    """The field at that path of a record; None if it is not compared. Raises KeyError if it is not in the table."""
    known = field_table()
    if any(path == prefix or path.startswith((f"{prefix}.", f"{prefix}[")) for prefix in known.not_compared):
        return None
    # `x.*` stands for x.<name>, even if the name contains dots.
    row = next((row for row in known.rows if row.endswith(".*") and path.startswith(row[:-1])), path)
    kind, title = known.rows[row]
    return Field(
        path=path,
        kind=kind,
        title=title.format(short_name(path).partition(".")[2]),
        position=list(known.rows).index(row),
        is_range=path in known.ranges,
    )


@cache
def field_table() -> FieldTable:
    """The table of fields, read from `record_fields.toml`."""
    text = (
        resources.files("dlscale.analysis.frames").joinpath("record_fields.toml").read_text(encoding="utf-8")
    )
    table: dict[str, dict[str, Any]] = tomllib.loads(text)
    return FieldTable(
        rows={path: (kind, title) for kind in FIELD_CLASSES for path, title in table[kind].items()},
        not_compared=frozenset(table[NOT_COMPARED]),
        ranges=frozenset(table["rules"]["ranges"]),
        points=tuple(table["rules"]["points"]),
        groups={word: tuple(names) for word, names in table["groups"].items()},
        follows={name: tuple(names) for name, names in table["follows"].items()},
    )


FieldValue = str | int | float | bool | tuple["FieldValue", ...] | None
"""None: not recorded, or not set. A tuple: one value per rank or node, if they differ."""

RecordValues = dict[str, FieldValue]

RESULT_FIELDS = {
    "windows",
    "phases",
    "gates",
    "final_loss",
    "skipped_samples",
    "staleness",
    "late_gradients",
}  # large, and not compared


def record_values(record: Record) -> RecordValues:
    """Path -> value of all fields that are compared.

    Only the batch that is constant along a curve, local or global, is included; the other follows from the ranks.
    """
    derived = "global_batch" if record.case.cell.scaling_mode == "weak" else "local_batch"
    return {
        path: value
        for path, value in _record_leaves(record.model_dump(mode="json", exclude=RESULT_FIELDS), "")
        if path != f"case.cell.{derived}" and field_at(path) is not None
    }


def _record_leaves(value: dict[str, Any], place: str) -> Iterator[tuple[str, FieldValue]]:
    """Every leaf with its path. A None is left out, as if not recorded."""
    for name, entry in value.items():
        path = f"{place}.{name}" if place else name
        if isinstance(entry, dict):
            yield from _record_leaves(entry, path)
        elif isinstance(entry, list) and entry and isinstance(entry[0], dict):
            yield from _member_values(entry, f"{path}[]")
        elif isinstance(entry, list):
            if entry:
                yield path, _frozen(entry)
        elif entry is not None:
            yield path, entry


def _member_values(members: list[dict[str, Any]], place: str) -> Iterator[tuple[str, FieldValue]]:
    """The members' values at each path: a single one if all are equal, else all."""
    flat = [dict(_record_leaves(member, place)) for member in members]
    for path in dict.fromkeys(path for leaves in flat for path in leaves):
        values = tuple(leaves.get(path) for leaves in flat)
        yield path, values[0] if len(set(values)) == 1 else values


def _frozen(value: Any) -> FieldValue:
    return tuple(_frozen(entry) for entry in value) if isinstance(value, list) else value
