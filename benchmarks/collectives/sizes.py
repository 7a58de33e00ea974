"""Message sizes as people type them: 4KiB, 25MiB, 4KiB:256MiB:x4."""

from __future__ import annotations

import re

from dlscale.benchmarks.units import split_list

UNITS = {"B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}
_ELEMENT_BYTES = 4  # of fp32: a message is a whole number of them


def parse_size(text: str) -> int:
    """Bytes from 512, 512B, 4KiB or 1.5MiB. Raises ValueError."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(B|KiB|MiB|GiB)?", text.strip())
    size = float(found[1]) * UNITS[found[2] or "B"] if found else 0.0
    if size < _ELEMENT_BYTES or size % _ELEMENT_BYTES:
        raise ValueError(f"{text!r} is not the size of a message; write 4KiB or 25MiB, a multiple of 4 bytes")
    return int(size)


def parse_sizes(text: str) -> list[int]:
    """Ascending sizes from a list (4KiB,25MiB) with ranges (4KiB:256MiB:x4; without a factor, x2).

    Raises ValueError.
    """
    sizes: list[int] = []
    for word in split_list(text):
        begin, *rest = word.split(":")
        size, end, factor = parse_size(begin), parse_size(begin), 2
        if rest:
            end = parse_size(rest[0])
        if rest[1:]:
            found = re.fullmatch(r"x(\d+)", rest[1])
            factor = int(found[1]) if found else 0
        if len(rest) > 2 or factor < 2 or end < size:
            raise ValueError(f"{word!r} is not an ascending range of sizes; write 4KiB:256MiB:x4")
        while size <= end:
            sizes.append(size)
            size *= factor
    return sorted(set(sizes))


def format_size(num_bytes: int) -> str:
    """`4 KiB`, `25 MiB`, `100 B`."""
    for unit, factor in reversed(UNITS.items()):
        if num_bytes >= factor:
            value = num_bytes / factor
            return f"{value:.0f} {unit}" if value % 1 == 0 else f"{value:.3g} {unit}"
    return f"{num_bytes} B"
