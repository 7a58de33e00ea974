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


def parse_counts(text: str, *, sizes: bool = False) -> list[int]:
    """Ascending counts from a list (1,2,4) with ranges such as 1:8 and 1:512:x2; of `sizes` in bytes, 4KiB:256MiB:x4.

    Raises ValueError.
    """
    form = "sizes; write 4KiB:256MiB:x4" if sizes else "positive counts; write 1,2,4 or 1:8 or 1:512:x2"
    numbers: set[int] = set()
    for word in split_list(text):
        begin, *rest = word.split(":")
        ends = begin, rest[0] if rest else begin
        if not sizes and not all(re.fullmatch(r"0*[1-9]\d{0,7}", end) for end in ends):
            raise ValueError(f"{word[:40]!r} is not among {form}")
        number, last = map(parse_size if sizes else int, ends)
        step = rest[1] if rest[1:] else "x2" if sizes else "1"
        match = re.fullmatch(rf"(x{'' if sizes else '?'})([1-9]\d{{0,7}})", step)
        if not match or rest[2:] or last < number or step == "x1":
            raise ValueError(f"{word[:40]!r} is not an ascending range of {form}")
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
_PREFIXES |= {f"{letter}i": 2.0 ** (10 * power) for power, letter in enumerate("KMGTP", 1)}


def _scaled(unit: str, scale: float = 1.0) -> dict[str, float]:
    return {prefix + unit: factor * scale for prefix, factor in _PREFIXES.items()}


# Dimension -> an example, and unit as typed -> how many of the dimension's base unit it is.
_DIMENSIONS: dict[str, tuple[str, dict[str, float]]] = {
    "bytes": ("96 GB or 16 GiB", _scaled("B")),
    "bytes per second": (
        "8 GB/s or 200 Gb/s",
        _scaled("B/s") | _scaled("b/s", 0.125) | _scaled("bit/s", 0.125),
    ),
    "seconds": (
        "1.3 us or 24 h",
        {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0, "d": 86400.0},
    ),
    "operations per second": ("3 TFLOP/s", _scaled("FLOP/s") | _scaled("OP/s")),
    "hertz": ("1.4 GHz", _scaled("Hz")),
}


def parse_quantity(text: str, dimension: str) -> float:
    """`text` (8 GB/s, 1.3 us, 24h) in the dimension's base unit. Raises ValueError for another dimension's unit."""
    example, units = _DIMENSIONS[dimension]
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?(?:e[+-]?\d+)?)\s*([A-Za-z/]+)\s*", text)
    if not match or match[2] not in units:
        raise ValueError(f"{text!r} is not in {dimension}; write, for example, {example}")
    return float(match[1]) * units[match[2]]


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
