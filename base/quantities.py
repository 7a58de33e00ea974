"""Quantities as text, and facts: quantities with their source.

Durations, counts, lists and message sizes are read and written as on a command line.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, PositiveFloat, PositiveInt

from dlscale.base.definitions import Frozen, where_given
from dlscale.base.strings import Text

UNITS = {"B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}
MOST_NUMBERS = 1000  # of a list
_ELEMENT_BYTES = 4  # an fp32 number; messages are whole numbers of them


def split_list(text: str) -> list[str]:
    """Words separated by commas or spaces."""
    return [word for word in re.split(r"[,\s]+", text) if word]


def parse_size(text: str) -> int:
    """Bytes from 512, 512B, 4KiB or 1.5MiB. Raises ValueError."""
    match = re.fullmatch(r"(\d{1,15}(?:\.\d{1,15})?)\s*(B|KiB|MiB|GiB)?", text.strip())
    size = float(match[1]) * UNITS[match[2] or "B"] if match else 0.0
    if size < _ELEMENT_BYTES or size % _ELEMENT_BYTES:
        raise ValueError(
            f"{text[:40]!r} is not a message size; write a multiple of 4 bytes such as 4KiB or 25MiB"
        )
    return int(size)


def parse_sizes(text: str) -> list[int]:
    """Ascending sizes from a list (4KiB,25MiB) with ranges (4KiB:256MiB:x4; else x2). Raises ValueError."""
    return _ranges(text, parse_size, steps="x", step="x2", example="sizes; write 4KiB:256MiB:x4")


def parse_count(text: str) -> int:
    """A count up to 10^8. Raises ValueError."""
    if not re.fullmatch(r"0*[1-9]\d{0,7}", text):
        raise ValueError(f"{text[:40]!r} is not a count; write 1,2,4 or 1:8 or 1:512:x2")
    return int(text)


def parse_counts(text: str) -> list[int]:
    """Positive counts from a list (1,2,4) or ranges such as 1:8 and 1:512:x2. Raises ValueError."""
    return _ranges(text, parse_count, steps="x?", step="1", example="positive counts; write 1:8 or 1:512:x2")


def _ranges(text: str, read: Callable[[str], int], *, steps: str, step: str, example: str) -> list[int]:
    """The numbers of a list of numbers and ranges FIRST:LAST:STEP, each once, ascending. Raises ValueError."""
    numbers: set[int] = set()
    for word in split_list(text):
        begin, *rest = word.split(":")
        number, last = read(begin), read(rest[0] if rest else begin)
        match = re.fullmatch(rf"({steps})([1-9]\d{{0,7}})", rest[1] if rest[1:] else step)
        if not match or rest[2:] or last < number or match[0] == "x1":
            raise ValueError(f"{word[:40]!r} is not an ascending range of {example}")
        while number <= last:
            numbers.add(number)
            number = number * int(match[2]) if match[1] else number + int(match[2])
            if len(numbers) > MOST_NUMBERS:
                raise ValueError(f"{word[:40]!r} has more than {MOST_NUMBERS} counts; write 1:512:x2")
    return sorted(numbers)


def format_size(num_bytes: int) -> str:
    """`4 KiB`, `25 MiB`, `100 B`."""
    for unit, factor in reversed(UNITS.items()):
        if num_bytes >= factor:
            value = num_bytes / factor
            return f"{value:.0f} {unit}" if value % 1 == 0 else f"{value:.3g} {unit}"
    return f"{num_bytes} B"


_PREFIXES = {"": 1.0, "k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15}
_BINARY = {"Ki": 2.0**10, "Mi": 2.0**20, "Gi": 2.0**30, "Ti": 2.0**40, "Pi": 2.0**50}
_ALL = _PREFIXES | _BINARY


def _scaled(unit: str, scale: float, prefixes: dict[str, float] = _PREFIXES) -> dict[str, float]:
    return {prefix + unit: factor * scale for prefix, factor in prefixes.items()}


# Dimension -> unit as typed -> how many of the dimension's base unit it is.
DIMENSIONS: dict[str, dict[str, float]] = {
    "bytes": _scaled("B", 1.0, _ALL),
    "bytes per second": _scaled("B/s", 1.0, _ALL) | _scaled("b/s", 0.125) | _scaled("bit/s", 0.125),
    "seconds": {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0, "d": 86400.0},
    "operations per second": _scaled("FLOP/s", 1.0) | _scaled("OP/s", 1.0),
    "hertz": _scaled("Hz", 1.0),
}


_EXAMPLES = {
    "bytes": "96 GB or 16 GiB",
    "bytes per second": "8 GB/s or 200 Gb/s",
    "seconds": "1.3 us or 24 h",
    "operations per second": "3 TFLOP/s",
    "hertz": "1.4 GHz",
}


def parse_quantity(text: str, dimension: str) -> float:
    """`text` (8 GB/s, 1.3 us, 24h) in the dimension's base unit. Raises ValueError for another dimension's unit."""
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?(?:e[+-]?\d+)?)\s*([A-Za-z/]+)\s*", text)
    if not match or match[2] not in DIMENSIONS[dimension]:
        raise ValueError(f"{text!r} is not in {dimension}; write, for example, {_EXAMPLES[dimension]}")
    return float(match[1]) * DIMENSIONS[dimension][match[2]]


class Fact(Frozen):
    """A known property of a machine. `source` is a key of the file's [sources].

    `kind` is the form of the source: text, a table, source code (also scripts and configuration files), a figure (read
    by eye), the machine itself, or `computed` from other facts.
    """

    source: Text
    kind: Literal["text", "table", "source code", "figure", "machine", "computed"] = "text"
    note: Text = ""


class Count(Fact):
    """A number of things."""

    value: PositiveInt


class TextFact(Fact):
    """A name or a word, such as a processor's model or a network's topology."""

    value: Text


class Quantity(Fact):
    """A number with its unit. `number` is in the base unit of the dimension that the field declares.

    Where sources differ, `low` and `high` are the lowest and the highest value that they give; the note says which.
    """

    value: Text
    number: float = 0.0
    low: Text = where_given("")
    high: Text = where_given("")
    factors: Annotated[tuple[float, float], Field(exclude=True)] = (1.0, 1.0)  # low and high over the value

    @property
    def text(self) -> str:
        """`8 GB/s`, or `8 GB/s (7.5 GB/s to 10 GB/s)` where sources differ."""
        if not self.low and not self.high:
            return self.value
        return f"{self.value} ({self.low or self.value} to {self.high or self.value})"


def _in(dimension: str) -> BeforeValidator:
    """A validator that reads the value of a fact in that dimension, and its limits."""

    def read(fact: Any) -> Any:
        if not isinstance(fact, dict) or not isinstance(fact.get("value"), str):
            return fact
        low, number, high = (
            parse_quantity(str(fact.get(name) or fact["value"]), dimension)
            for name in ("low", "value", "high")
        )
        if not 0 < low <= number <= high:
            raise ValueError(f"{fact['value']!r} is not positive, or not between low and high")
        return fact | {"number": number, "factors": (low / number, high / number)}

    return BeforeValidator(read)


Bytes = Annotated[Quantity, _in("bytes")]
Bandwidth = Annotated[Quantity, _in("bytes per second")]
Seconds = Annotated[Quantity, _in("seconds")]
Flops = Annotated[Quantity, _in("operations per second")]
Frequency = Annotated[Quantity, _in("hertz")]

_SECONDS = {"": 1.0, "s": 1.0, "sec": 1.0, "min": 60.0, "m": 60.0, "h": 3600.0}


def parse_seconds(text: str) -> float:
    """Seconds from 90, 90s, 4min, 1.5h or 01:30:00. Raises ValueError."""
    if clock := re.fullmatch(r"\s*(\d{1,6}):([0-5]?\d):([0-5]?\d)\s*", text):
        return 3600.0 * int(clock[1]) + 60 * int(clock[2]) + int(clock[3])
    match = re.fullmatch(r"\s*(\d{1,12}(?:\.\d+)?)\s*([a-z]*)\s*", text)
    if not match or match[2] not in _SECONDS:
        raise ValueError(f"{text[:40]!r} is not a duration; write 240s, 4min, 1h or 01:30:00")
    return float(match[1]) * _SECONDS[match[2]]


def format_seconds(seconds: float) -> str:
    """A readable duration: 42 s, 4 min 10 s, 1 h 05 min."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"


def _reader(parse: Callable[[str], Any]) -> BeforeValidator:
    """Reads text as on a command line, and leaves everything else as it is."""
    return BeforeValidator(lambda value: parse(value) if isinstance(value, str) else value)


Duration = Annotated[PositiveFloat, Field(allow_inf_nan=False), _reader(parse_seconds)]  # seconds
Words = Annotated[list[Text], _reader(split_list)]
Counts = Annotated[list[PositiveInt], _reader(parse_counts)]
