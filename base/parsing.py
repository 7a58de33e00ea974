"""Parses JSON and TOML that somebody else wrote: whatever is wrong with the text is a ValueError.

The parsers alone raise RecursionError too, for brackets in brackets, and pass on what ends with a traceback where a
program uses it: tables nested a thousand times by dots, integers that no float can hold, halves of characters.
"""

from __future__ import annotations

import json
import re
import tomllib
from typing import Any

DEEPEST = 64
LARGEST_INTEGER = 2**64
TOO_DEEP = f"tables or lists are nested more than {DEEPEST} times"


def parse_json(text: str | bytes) -> Any:
    """The value of a JSON text. Raises ValueError."""
    try:
        value = json.loads(text)
        return value if _is_plain(text) and not _is_deep(value) else _checked(value)
    except RecursionError:
        raise ValueError(TOO_DEEP) from None


def _is_plain(text: str | bytes) -> bool:
    """Whether no integer in a JSON text can be too large and no character half of one: a quick look at a long text."""
    content = text if isinstance(text, bytes) else text.encode(errors="surrogatepass")
    return content.isascii() and b"\\u" not in content and not _LONG_NUMBER.search(content)


_LONG_NUMBER = re.compile(rb"\d{20}")  # as all integers above 2**64 are


def _is_deep(value: Any) -> bool:
    level = [value] if isinstance(value, dict | list) else []
    for _ in range(DEEPEST):
        members = (item.values() if isinstance(item, dict) else item for item in level)
        level = [child for each in members for child in each if type(child) in (dict, list)]
        if not level:
            return False
    return True


def parse_json_object(text: str | bytes) -> dict[str, Any]:
    """The value of a JSON text that is an object. Raises ValueError."""
    value = parse_json(text)
    if not isinstance(value, dict):
        raise ValueError(f"a JSON object was expected, not {type(value).__name__}")
    return value


def parse_toml(text: str) -> dict[str, Any]:
    """The tables of a TOML text. Raises ValueError."""
    try:
        tables: dict[str, Any] = _checked(tomllib.loads(text))
    except RecursionError:
        raise ValueError(TOO_DEEP) from None
    return tables


def _checked(value: Any) -> Any:
    """`value`, if nothing in it is too deep, too large or half a character. Raises ValueError."""
    left = [(value, 0)]
    while left:
        item, depth = left.pop()
        if isinstance(item, str):
            if not item.isascii():
                item.encode()
        elif isinstance(item, int):
            if abs(item) > LARGEST_INTEGER:
                raise ValueError(f"an integer is larger than {LARGEST_INTEGER}")
        elif isinstance(item, dict | list):
            if depth == DEEPEST:
                raise ValueError(TOO_DEEP)
            children = [*item, *item.values()] if isinstance(item, dict) else item
            left += [(child, depth + 1) for child in children if not isinstance(child, float)]
    return value
