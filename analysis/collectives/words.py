"""How this benchmark's numbers are written."""

from __future__ import annotations

from dlscale.analysis.statistics import Interval
from dlscale.analysis.words import number

_UNITS = ((2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB"))


def size(num_bytes: int) -> str:
    """`4 KiB`, `25 MiB`, `100 B`."""
    for factor, unit in _UNITS:
        if num_bytes >= factor:
            return f"{number(num_bytes / factor)} {unit}"
    return f"{num_bytes} B"


def ratio(interval: Interval) -> str:
    """`1.34 [1.30, 1.39]`."""
    if interval.low is None or interval.high is None:
        return number(interval.center)
    return f"{number(interval.center)} [{number(interval.low)}, {number(interval.high)}]"


def by_size(num_bytes: int, interval: Interval) -> str:
    """`1.34 [1.30, 1.39] at 4 MiB`."""
    return f"{ratio(interval)} at {size(num_bytes)}"


def microseconds(seconds: float | None) -> str:
    """`12.3`; "-" where it is not known."""
    return "-" if seconds is None else number(1e6 * seconds)
