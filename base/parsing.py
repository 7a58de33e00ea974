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


def parse_json_object(text: str | bytes) -> dict[str, Any]:
    """The value of a JSON text that is an object. Raises ValueError."""
    value = _checked(json.loads, text)
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
        _check(value, DEEPEST)
    except RecursionError:
        raise ValueError("tables or lists are nested too deep") from None
    return value


def _check(value: object, depth: int) -> None:
    if isinstance(value, str):
        value.encode()
    elif isinstance(value, int) and abs(value) > LARGEST_INTEGER:
        raise ValueError(f"an integer is larger than {LARGEST_INTEGER}")
    elif isinstance(value, dict | list):
        if not depth:
            raise RecursionError
        for item in [*value, *value.values()] if isinstance(value, dict) else value:
            _check(item, depth - 1)
