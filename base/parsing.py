"""Parses JSON and TOML that somebody else wrote: whatever is wrong with the text is a ValueError.

The parsers alone raise RecursionError too, for brackets in brackets, and end with a traceback where a program expects
only their own error.
"""

from __future__ import annotations

import json
import tomllib
from typing import Any

TOO_DEEP = "tables or lists are nested too deeply"


def parse_json(text: str | bytes) -> Any:
    """The value of a JSON text. Raises ValueError."""
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError(TOO_DEEP) from None


def parse_json_object(text: str | bytes) -> dict[str, Any]:
    """The value of a JSON text that is an object. Raises ValueError."""
    value = parse_json(text)
    if not isinstance(value, dict):
        raise ValueError(f"a JSON object was expected, not {type(value).__name__}")
    return value


def parse_toml(text: str) -> dict[str, Any]:
    """The tables of a TOML text. Raises ValueError."""
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise ValueError(TOO_DEEP) from None
