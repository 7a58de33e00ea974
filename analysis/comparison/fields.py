"""The table of a record's fields (`fields.toml`): which differences block a comparison, and what fields are called."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any, Literal

from dlscale.models.errors import UsageError

Class = Literal["blocking", "blocking-warn", "warn", "information"]
CLASSES: tuple[Class, ...] = ("blocking", "blocking-warn", "warn", "information")
NOT_COMPARED = "not-compared"


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """A field of a record, or one entry of a dictionary in it."""

    path: str  # "case.cell.backend", "fingerprint.versions.torch", "nodes[].cpu_boost"
    kind: Class
    title: str
    position: int  # in the table
    is_range: bool  # values never repeat exactly: they differ where their ranges do not touch

    @property
    def name(self) -> str:
        """What --factor calls it."""
        return short(self.path)


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Of all fields. `points`, `groups` and `follows` speak of fields by their short names."""

    rows: Mapping[str, tuple[Class, str]]  # path, "x.*" for each entry of x -> class and title
    not_compared: frozenset[str]
    ranges: frozenset[str]
    points: tuple[str, ...]
    groups: Mapping[str, tuple[str, ...]]
    follows: Mapping[str, tuple[str, ...]]

    def path(self, name: str) -> str:
        """Where the field of that short name is; the name itself if the table has no such field."""
        return next((path for path in self.rows if short(path) == name), name)

    def factors(self, words: Iterable[str]) -> frozenset[str]:
        """The short names that those words stand for. Raises UsageError for one that is neither group nor field."""
        found: set[str] = set()
        for word in words:
            name = short(word)
            if word not in self.groups and not self._is_known(name):
                known = ", ".join([*self.groups, *(short(path) for path in self.rows if "cell." in path)])
                raise UsageError(
                    f"no factor {word!r}; choose from {known}, or any other field that a comparison names"
                )
            found.update(self.groups.get(word, (name,)))
        return frozenset(found)

    def _is_known(self, name: str) -> bool:
        """Whether it is a field, a part of a record that has fields, or an entry of a dictionary."""
        names = [short(path).removesuffix(".*") for path in self.rows]
        return any(covers(name, one) for one in names) or any(
            path.endswith(".*") and covers(short(path).removesuffix(".*"), name) for path in self.rows
        )


def short(path: str) -> str:
    """A field as people type it: without the parts of a record that everybody knows."""
    for part in ("case.cell.", "fingerprint.", "configuration."):
        path = path.removeprefix(part)
    return path.replace("[]", "")


def covers(factor: str, name: str) -> bool:
    """Whether a factor, a field's short name or the beginning of some, is that field or has it inside."""
    return name == factor or name.startswith(f"{factor}.")


@cache
def field(path: str) -> Field | None:
    """The field at that place in a record; None if it is not compared. Raises KeyError for one not in the table."""
    known = table()
    if any(path == one or path.startswith((f"{one}.", f"{one}[")) for one in known.not_compared):
        return None
    # `x.*` stands for x.<name>, whatever dots the name has.
    row = next((row for row in known.rows if row.endswith(".*") and path.startswith(row[:-1])), path)
    kind, title = known.rows[row]
    return Field(
        path=path,
        kind=kind,
        title=title.format(short(path).partition(".")[2]),
        position=list(known.rows).index(row),
        is_range=path in known.ranges,
    )


@cache
def table() -> Table:
    """As `fields.toml` has it."""
    text = resources.files("dlscale.analysis.comparison").joinpath("fields.toml").read_text(encoding="utf-8")
    found: dict[str, dict[str, Any]] = tomllib.loads(text)
    return Table(
        rows={path: (kind, title) for kind in CLASSES for path, title in found[kind].items()},
        not_compared=frozenset(found[NOT_COMPARED]),
        ranges=frozenset(found["rules"]["ranges"]),
        points=tuple(found["rules"]["points"]),
        groups={word: tuple(names) for word, names in found["groups"].items()},
        follows={name: tuple(names) for name, names in found["follows"].items()},
    )
