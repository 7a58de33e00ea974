"""Reading and writing quantities as people type them."""

from __future__ import annotations

import re

_SECONDS = {"s": 1.0, "sec": 1.0, "min": 60.0, "m": 60.0, "h": 3600.0}


def parse_seconds(text: str) -> float:
    """Seconds from 90, 90s, 4min or 1.5h. Raises ValueError."""
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([a-z]*)\s*", text)
    if not found or (found[2] or "s") not in _SECONDS:
        raise ValueError(f"{text!r} is not a duration; write 240, 240s, 4min or 1h")
    return float(found[1]) * _SECONDS[found[2] or "s"]


def format_seconds(seconds: float) -> str:
    """A duration for people: 42 s, 4 min 10 s, 1 h 05 min."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"


def split_list(text: str) -> list[str]:
    """Words separated by commas or spaces."""
    return [word for word in re.split(r"[,\s]+", text) if word]


def parse_counts(text: str) -> list[int]:
    """Positive counts from a list (1,2,4) or ranges such as 1:8 and 1:512:x2. Raises ValueError."""
    counts: list[int] = []
    for word in split_list(text):
        found = re.fullmatch(r"(\d+)(?::(\d+)(?::(x?)(\d+))?)?", word)
        if not found:
            raise ValueError(f"{word!r} is not a count; write 1,2,4 or 1:8 or 1:512:x2")
        value, end = int(found[1]), int(found[2] or found[1])
        step = int(found[4] or 1)
        if value < 1 or end < value or step < 1 or (found[3] and step < 2):
            raise ValueError(f"{word!r} is not an ascending range of positive counts")
        while value <= end:
            counts.append(value)
            value = value * step if found[3] else value + step
    return sorted(set(counts))
