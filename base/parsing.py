"""Parses JSON and TOML that somebody else wrote: whatever is wrong with the text is a ValueError.

The parsers alone raise RecursionError too, for brackets in brackets, and pass on what ends with a traceback where a
program uses it: tables nested a thousand times by dots, integers that no float can hold, halves of characters.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable
from typing import Any

DEEPEST = 64
LARGEST_INTEGER = 2**64
TOO_DEEP = f"tables or lists are nested more than {DEEPEST} times"


def parse_json(text: str | bytes) -> Any:
    """The value of a JSON text. Raises ValueError."""
    return _checked(json.loads, text)


def parse_json_object(text: str | bytes) -> dict[str, Any]:
    """The value of a JSON text that is an object. Raises ValueError."""
    value = parse_json(text)
    if not isinstance(value, dict):
        raise ValueError(f"a JSON object was expected, not {type(value).__name__}")
    return value


def parse_toml(text: str) -> dict[str, Any]:
    """The tables of a TOML text. Raises ValueError."""
    tables: dict[str, Any] = _checked(tomllib.loads, text)
    return tables


def _checked(parse: Callable[[Any], Any], text: str | bytes) -> Any:
    """What the text says, if nothing in it is too deep, too large or half a character. Raises ValueError."""
    try:
        value = parse(text)
    except RecursionError:
        raise ValueError(TOO_DEEP) from None
    left = [(value, 0)]
    while left:
        item, depth = left.pop()
        if isinstance(item, str):
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
