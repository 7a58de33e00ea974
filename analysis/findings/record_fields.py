"""The fields of a record (`record_fields.toml`): what they are called, which differences block a comparison, and
their values.
"""

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
    is_range: bool  # values never repeat exactly: they differ where their ranges do not touch

    @property
    def name(self) -> str:
        """What --factor calls it."""
        return short_name(self.path)


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldTable:
    """Of all fields. `points`, `groups` and `follows` speak of fields by their short names."""

    rows: Mapping[str, tuple[FieldClass, str]]  # path, "x.*" for each entry of x -> class and title
    not_compared: frozenset[str]
    ranges: frozenset[str]
    points: tuple[str, ...]
    groups: Mapping[str, tuple[str, ...]]
    follows: Mapping[str, tuple[str, ...]]

    def path(self, name: str) -> str:
        """Where the field of that short name is; the name itself if the table has no such field."""
        return next((path for path in self.rows if short_name(path) == name), name)

    def factors(self, words: Iterable[str]) -> frozenset[str]:
        """The short names that those words stand for. Raises UsageError for one that is neither group nor field."""
        found: set[str] = set()
        for word in words:
            name = short_name(word)
            if word not in self.groups and not self._is_known(name):
                known = ", ".join(
                    [*self.groups, *(short_name(path) for path in self.rows if "cell." in path)]
                )
                raise UsageError(
                    f"no factor {word!r}; choose from {known}, or any other field that a comparison names"
                )
            found.update(self.groups.get(word, (name,)))
        return frozenset(found)

    def _is_known(self, name: str) -> bool:
        """Whether it is a field, a part of a record that has fields, or an entry of a dictionary."""
        names = [short_name(path).removesuffix(".*") for path in self.rows]
        return any(covers(name, one) for one in names) or any(
            path.endswith(".*") and covers(short_name(path).removesuffix(".*"), name) for path in self.rows
        )


def short_name(path: str) -> str:
    """A field as people type it: without the parts of a record that everybody knows."""
    for part in ("case.cell.", "fingerprint.", "configuration."):
        path = path.removeprefix(part)
    return path.replace("[]", "")


def covers(factor: str, name: str) -> bool:
    """Whether a factor, a field's short name or the beginning of some, is that field or has it inside."""
    return name == factor or name.startswith(f"{factor}.")


@cache
def field_at(path: str) -> Field | None:
    """The field at that place in a record; None if it is not compared. Raises KeyError for one not in the table."""
    known = field_table()
    if any(path == one or path.startswith((f"{one}.", f"{one}[")) for one in known.not_compared):
        return None
    # `x.*` stands for x.<name>, whatever dots the name has.
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
    """As `fields.toml` has it."""
    text = (
        resources.files("dlscale.analysis.findings")
        .joinpath("record_fields.toml")
        .read_text(encoding="utf-8")
    )
    found: dict[str, dict[str, Any]] = tomllib.loads(text)
    return FieldTable(
        rows={path: (kind, title) for kind in FIELD_CLASSES for path, title in found[kind].items()},
        not_compared=frozenset(found[NOT_COMPARED]),
        ranges=frozenset(found["rules"]["ranges"]),
        points=tuple(found["rules"]["points"]),
        groups={word: tuple(names) for word, names in found["groups"].items()},
        follows={name: tuple(names) for name, names in found["follows"].items()},
    )


FieldValue = str | int | float | bool | tuple["FieldValue", ...] | None
"""None: not recorded, or not set. A tuple: one value per rank or node, where they differ."""

RecordValues = dict[str, FieldValue]

RESULT_FIELDS = {"windows", "phases", "gates", "final_loss", "skipped_samples"}  # large, and not compared


def record_values(record: Record) -> RecordValues:
    """Path -> value of everything that the table of fields compares.

    Of local and global batch only the one that is held constant along a curve is there; the other follows from ranks.
    """
    derived = "global_batch" if record.case.cell.scaling_mode == "weak" else "local_batch"
    return {
        path: value
        for path, value in _record_leaves(record.model_dump(mode="json", exclude=RESULT_FIELDS), "")
        if path != f"case.cell.{derived}" and field_at(path) is not None
    }


def _record_leaves(value: dict[str, Any], place: str) -> Iterator[tuple[str, FieldValue]]:
    """Every leaf with its path. What is None and could have had parts is left out, as if not recorded."""
    for name, one in value.items():
        path = f"{place}.{name}" if place else name
        if isinstance(one, dict):
            yield from _record_leaves(one, path)
        elif isinstance(one, list) and one and isinstance(one[0], dict):
            yield from _member_values(one, f"{path}[]")
        elif isinstance(one, list):
            if one:
                yield path, _frozen(one)
        elif one is not None:
            yield path, one


def _member_values(members: list[dict[str, Any]], place: str) -> Iterator[tuple[str, FieldValue]]:
    """The members' values under one path: one where all are equal, else all."""
    flat = [dict(_record_leaves(member, place)) for member in members]
    for path in dict.fromkeys(path for one in flat for path in one):
        found = tuple(one.get(path) for one in flat)
        yield path, found[0] if len(set(found)) == 1 else found


def _frozen(value: Any) -> FieldValue:
    return tuple(_frozen(one) for one in value) if isinstance(value, list) else value
