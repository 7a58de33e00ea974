"""Lists of host names in brackets, as Slurm and Flux write them: nid0000[1-4,7],gpu01."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from itertools import product

_ENTRY = re.compile(r"(?:[^\s,\[\]]|\[[^\[\]]*\])+")
_RANGE = re.compile(r"(\d{1,18})(?:-(\d{1,18}))?")
MOST_NAMES = 10**6


def expand_hostlist(text: str) -> list[str]:
    """The names in their order, with repetitions.

    Numbers are as wide as the first of their range: n[08-10] is n08, n09, n10. With several brackets in a name the
    last one varies fastest. Raises ValueError if `text` is not a host list.
    """
    names: list[str] = []
    position = 0
    text = text.strip()
    while position < len(text):
        entry = _ENTRY.match(text, position)
        if not entry or (entry.end() < len(text) and text[entry.end()] != ","):
            raise ValueError(f"{text[:80]!r} is not a host list, from character {position} on")
        names += _names(entry[0])
        position = entry.end() + 1
    return names


def _names(entry: str) -> Iterator[str]:
    parts = re.split(r"\[([^\[\]]*)\]", entry)
    choices = [_numbers(part) if index % 2 else [part] for index, part in enumerate(parts)]
    if math.prod(map(len, choices)) > MOST_NAMES:
        raise ValueError(f"{entry[:80]!r} are more than {MOST_NAMES} names")
    return ("".join(chosen) for chosen in product(*choices))


def _numbers(ranges: str) -> list[str]:
    numbers: list[str] = []
    for text in ranges.split(","):
        limits = _RANGE.fullmatch(text)
        if not limits:
            raise ValueError(f"{ranges[:80]!r} is not a list of numbers and ranges")
        first, last = limits[1], limits[2] or limits[1]
        if int(first) > int(last):
            raise ValueError(f"{ranges[:80]!r} counts downward")
        if int(last) - int(first) >= MOST_NAMES:
            raise ValueError(f"{ranges[:80]!r} are more than {MOST_NAMES} names")
        numbers += [str(number).zfill(len(first)) for number in range(int(first), int(last) + 1)]
    return numbers


def compress_hostlist(names: Sequence[str]) -> str:
    """The same names in the same order, as a host list: a command line cannot hold thousands of names."""
    runs: list[tuple[str, str, str]] = []  # a prefix, its first and its last number
    for name in names:
        match = re.fullmatch(r"(.+?)(\d{0,18})", name)
        prefix, number = match.groups() if match else (name, "")
        before, first, last = runs[-1] if runs else ("", "", "")
        if number and last and prefix == before and number == str(int(last) + 1).zfill(len(last)):
            runs[-1] = (prefix, first, number)
        else:
            runs.append((prefix, number, number))
    return ",".join(
        f"{prefix}[{first}-{last}]" if first != last else prefix + first for prefix, first, last in runs
    )
