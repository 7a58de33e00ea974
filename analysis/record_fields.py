"""The fields of a record (`record_fields.toml`): titles, values, and whether a difference blocks a comparison.

A path is where a field is in a record, such as `fingerprint.versions.torch` or `nodes[].cpu_governor`; its short name,
on the command line, leaves the common prefixes out.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from dlscale.base.errors import UsageError
from dlscale.benchmarks.records.record import LaunchMetadata, Record

CLASSES = ("blocking", "blocking-warn", "warn", "information")
# What of a record says what was measured, how and where; all else is a result.
COMPARED = {
    *LaunchMetadata.model_fields,
    *("evidence", "case", "ranks", "servers", "nodes", "backend_settings", "bucket_bytes"),
}
# None: not recorded, or not set. A tuple: one value per rank or node, if they differ.
Value = str | int | float | bool | tuple["Value", ...] | None


class Field(NamedTuple):
    """A field of a record, or one entry of a dictionary in it."""

    path: str
    kind: str  # one of CLASSES
    title: str
    position: int  # in the table
    is_range: bool  # values never repeat exactly: two sides differ if their ranges do not overlap


@cache
def field_table() -> dict[str, Any]:
    """The table of fields: titles by path for each class, and the rules of factors in short names."""
    return tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))


@cache
def titled() -> dict[str, tuple[str, str]]:
    """Path, `x.*` for each entry of x, -> class and title."""
    return {path: (kind, title) for kind in CLASSES for path, title in field_table()[kind].items()}


@cache
def field_at(path: str) -> Field | None:
    """The field at that path of a record; None if it is not compared. Raises KeyError if it is not in the table."""
    known = field_table()
    if any(path == own or path.startswith((f"{own}.", f"{own}[")) for own in known["not-compared"]):
        return None
    # `x.*` stands for x.<name>, even if the name contains dots.
    row = next((row for row in titled() if row.endswith(".*") and path.startswith(row[:-1])), path)
    kind, title = titled()[row]
    title = title.format(short_name(path).partition(".")[2])
    return Field(path, kind, title, list(titled()).index(row), path in known["rules"]["ranges"])


def short_name(path: str) -> str:
    """The name of a field on the command line: its path without the common prefixes."""
    for part in ("case.cell.", "fingerprint.", "configuration."):
        path = path.removeprefix(part)
    return path.replace("[]", "")


def path_of(name: str) -> str:
    """The path of the field with that short name; the name itself if the table has no such field."""
    return next((path for path in titled() if short_name(path) == name), name)


def covers(factor: str, name: str) -> bool:
    """Whether a factor is the field of that short name or a part of the record that contains it."""
    return name == factor or name.startswith(f"{factor}.")


def factor_names(words: Iterable[str]) -> set[str]:
    """The short names that these groups and fields stand for. Raises UsageError for a word that is neither."""
    groups, found = field_table()["groups"], set()
    short = [short_name(path) for path in titled()]
    whole = [name.removesuffix(".*") for name in short]
    for word in words:
        name = short_name(word)
        is_entry = any(covers(path.removesuffix(".*"), name) for path in short if path.endswith(".*"))
        if word not in groups and not is_entry and not any(covers(name, one) for one in whole):
            known = ", ".join([*groups, *(short_name(path) for path in titled() if "cell." in path)])
            raise UsageError(
                f"no factor {word!r}; choose from {known}, or any other field that a comparison names"
            )
        found.update(groups.get(word, (name,)))
    return found


def record_values(record: Record) -> dict[str, Value]:
    """Path -> value of all fields that are compared.

    Only the batch that is constant along a curve, local or global, is included; the other follows from the ranks.
    """
    derived = "global_batch" if record.case.cell.scaling_mode == "weak" else "local_batch"
    return {
        path: value
        for path, value in _leaves(record.model_dump(mode="json", include=COMPARED), "")
        if path != f"case.cell.{derived}" and field_at(path) is not None
    }


def _leaves(value: dict[str, Any], place: str) -> Iterator[tuple[str, Value]]:
    """Every leaf with its path. A None is left out, as if not recorded."""
    for name, entry in value.items():
        path = f"{place}.{name}" if place else name
        if isinstance(entry, dict):
            yield from _leaves(entry, path)
        elif isinstance(entry, list) and entry and isinstance(entry[0], dict):
            # The members' values at each path: a single one if all are equal, else all.
            members = [dict(_leaves(member, f"{path}[]")) for member in entry]
            for inner in dict.fromkeys(one for member in members for one in member):
                values = tuple(member.get(inner) for member in members)
                yield inner, values[0] if len(set(values)) == 1 else values
        elif isinstance(entry, list):
            if entry:
                yield path, _frozen(entry)
        elif entry is not None:
            yield path, entry


def _frozen(value: Any) -> Value:
    return tuple(map(_frozen, value)) if isinstance(value, list) else value
