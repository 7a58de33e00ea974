"""Lists of host names in brackets, as Slurm and Flux write them: nid0000[1-4,7],gpu01."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import product

_ENTRY = re.compile(r"(?:[^\s,\[\]]|\[[^\[\]]*\])+")
_RANGE = re.compile(r"(\d+)(?:-(\d+))?")
_NUMBERED = re.compile(r"(.*?)(\d+)")


def expand_hostlist(text: str) -> list[str]:
    """The names in their order, repeated ones repeated.

    A number is as wide as its range's begin is written: n[08-10] is n08, n09, n10. Several brackets in a name count as
    odometers do, the last one first. Raises ValueError for what is no host list.
    """
    names: list[str] = []
    position = 0
    text = text.strip()
    while position < len(text):
        found = _ENTRY.match(text, position)
        if not found or (found.end() < len(text) and text[found.end()] != ","):
            raise ValueError(f"{text!r} is not a host list, from character {position} on")
        names += _names(found[0])
        position = found.end() + 1
    return names


def _names(entry: str) -> Iterator[str]:
    parts = re.split(r"\[([^\[\]]*)\]", entry)
    choices = [_numbers(part) if index % 2 else [part] for index, part in enumerate(parts)]
    return ("".join(chosen) for chosen in product(*choices))


def _numbers(ranges: str) -> list[str]:
    found: list[str] = []
    for one in ranges.split(","):
        limits = _RANGE.fullmatch(one)
        if not limits:
            raise ValueError(f"[{ranges}] is not a list of numbers and ranges")
        first, last = limits[1], limits[2] or limits[1]
        if int(first) > int(last):
            raise ValueError(f"[{ranges}] counts downward")
        found += [str(number).zfill(len(first)) for number in range(int(first), int(last) + 1)]
    return found


def compress_hostlist(names: Sequence[str]) -> str:
    """The same names in the same order, as a host list: a command line cannot hold thousands of them one by one."""
    entries: list[str] = []
    group: list[str] = []  # numbers after one prefix, of one width

    def close(prefix: str) -> None:
        if group:
            ranges = _ranges(group)
            entries.append(f"{prefix}[{ranges}]" if len(group) > 1 else prefix + group[0])
            group.clear()

    before = ""
    for name in names:
        found = _NUMBERED.fullmatch(name)
        if not found or not found[1]:
            close(before)
            before = ""
            entries.append(name)
            continue
        if found[1] != before or (group and not _alike(group[-1], found[2])):
            close(before)
            before = found[1]
        group.append(found[2])
    close(before)
    return ",".join(entries)


def _alike(one: str, other: str) -> bool:
    """Whether two numbers may stand in one bracket: equally wide, or neither with leading zeros."""
    return len(one) == len(other) or not (one.startswith("0") or other.startswith("0"))


def _ranges(numbers: Sequence[str]) -> str:
    runs: list[tuple[str, str]] = []
    for number in numbers:
        if runs and int(number) == int(runs[-1][1]) + 1:
            runs[-1] = (runs[-1][0], number)
        else:
            runs.append((number, number))
    return ",".join(first if first == last else f"{first}-{last}" for first, last in runs)
