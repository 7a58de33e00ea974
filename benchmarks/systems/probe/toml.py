"""Writing TOML: tables of facts with comments. Whatever is written is read back equal."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

TomlValue: TypeAlias = "str | bool | int | Sequence[TomlValue] | Mapping[str, TomlValue]"

WIDTH = 110
_ESCAPES = {"\\": "\\\\", '"': '\\"', "\b": "\\b", "\t": "\\t", "\n": "\\n", "\f": "\\f", "\r": "\\r"}


@dataclass(frozen=True, slots=True)
class TomlEntry:
    """A key with its value, below a comment; without a key the comment alone."""

    key: str = ""
    value: TomlValue = ""
    comment: str = ""


@dataclass(frozen=True, slots=True)
class TomlTable:
    """A table of that path in the document: () is the top, which comes first."""

    path: tuple[str, ...]
    entries: Sequence[TomlEntry]


def document(tables: Sequence[TomlTable]) -> str:
    """The tables in their order. One without entries is left out."""
    blocks = []
    for table in tables:
        lines = [f"[{'.'.join(map(_key, table.path))}]"] if table.path and _has_keys(table) else []
        for entry in table.entries:
            lines += comment(entry.comment)
            if entry.key:
                lines.append(f"{_key(entry.key)} = {value(entry.value)}")
        if lines:
            blocks.append("\n".join(lines))
    return "\n\n".join(blocks) + "\n"


def comment(text: str) -> list[str]:
    """`text` as lines of comment. Control characters, which comments may not have, become blanks."""
    lines = []
    for line in text.splitlines():
        plain = _encodable("".join(char if char.isprintable() else " " for char in line))
        lines += textwrap.wrap(plain, WIDTH - 2, break_long_words=False, break_on_hyphens=False) or [""]
    return [f"# {line}".rstrip() for line in lines]


def value(of: TomlValue) -> str:
    """A value as TOML, a mapping as an inline table."""
    if isinstance(of, bool):
        return "true" if of else "false"
    if isinstance(of, int):
        return str(of)
    if isinstance(of, str):
        return _string(of)
    if isinstance(of, Mapping):
        return (
            "{ " + ", ".join(f"{_key(name)} = {value(one)}" for name, one in of.items()) + " }"
            if of
            else "{}"
        )
    return "[" + ", ".join(value(one) for one in of) + "]"


def _has_keys(table: TomlTable) -> bool:
    return any(entry.key for entry in table.entries)


def _key(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else _string(name)


def _string(text: str) -> str:
    escaped = (
        _ESCAPES.get(char) or (char if _allowed(char) else f"\\u{ord(char):04X}") for char in _encodable(text)
    )
    return '"' + "".join(escaped) + '"'


def _allowed(char: str) -> bool:
    return ord(char) >= 0x20 and ord(char) != 0x7F


def _encodable(text: str) -> str:
    """Without halves of surrogate pairs, which no UTF-8 file can hold."""
    return text.encode("utf-8", "replace").decode()
