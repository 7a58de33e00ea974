"""Physical quantities as people write them, and facts: quantities that say where they come from."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, PositiveInt

from dlscale.benchmarks.record import Frozen

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


def parse_quantity(text: str, dimension: str) -> float:
    """`text` (8 GB/s, 1.3 us, 24h) in the dimension's base unit. Raises ValueError for another dimension's unit."""
    units = DIMENSIONS[dimension]
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?(?:e[+-]?\d+)?)\s*([A-Za-z/]+)\s*", text)
    if not found or found[2] not in units:
        examples = {
            "bytes": "96 GB or 16 GiB",
            "bytes per second": "8 GB/s or 200 Gb/s",
            "seconds": "1.3 us or 24 h",
            "operations per second": "3 TFLOP/s",
            "hertz": "1.4 GHz",
        }
        raise ValueError(f"{text!r} is not in {dimension}; write it like {examples[dimension]}")
    return float(found[1]) * units[found[2]]


class Fact(Frozen):
    """Something known of a machine. `source` is a key of the file's [sources].

    `kind` is how the source says it: in its text, in a table, in source code, scripts or configuration files, in a
    figure (read by eye), by the machine itself, or `computed` from other facts.
    """

    source: str
    kind: Literal["text", "table", "source code", "figure", "machine", "computed"] = "text"
    note: str = ""


class Count(Fact):
    """How many there are of something."""

    value: PositiveInt


class Text(Fact):
    """A name or a word, such as a processor's model or a network's topology."""

    value: str


class Quantity(Fact):
    """A number with its unit. `number` is in the base unit of its dimension, which the field declares."""

    value: str
    number: float = 0.0


def _in(dimension: str) -> BeforeValidator:
    """Reads the value of a fact in that dimension."""

    def read(fact: Any) -> Any:
        if isinstance(fact, dict) and isinstance(fact.get("value"), str):
            return fact | {"number": parse_quantity(fact["value"], dimension)}
        return fact

    return BeforeValidator(read)


def _known(fact: Quantity) -> Quantity:
    if fact.number <= 0:
        raise ValueError(f"{fact.value!r} is not positive")
    return fact


Bytes = Annotated[Quantity, _in("bytes"), AfterValidator(_known)]
Bandwidth = Annotated[Quantity, _in("bytes per second"), AfterValidator(_known)]
Seconds = Annotated[Quantity, _in("seconds"), AfterValidator(_known)]
Flops = Annotated[Quantity, _in("operations per second"), AfterValidator(_known)]
Frequency = Annotated[Quantity, _in("hertz"), AfterValidator(_known)]
