"""How numbers are written: the one place for digits, intervals, percent and bytes, and the grid that lays them out.

Three digits or more and never an exponent; percent where people think in percent; an interval follows its number in
brackets. `interval_columns` is the same number for programs. A `Grid` never cuts a number: where a table would be
too wide for the terminal, intervals go below their numbers.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from rich import box
from rich.console import Console, ConsoleOptions, Group, RenderableType
from rich.markup import escape
from rich.table import Table

from dlscale.analysis.records import options_text
from dlscale.analysis.statistics import Interval
from dlscale.benchmarks.records.record import Cell


def interval_columns(name: str, interval: Interval | None) -> dict[str, Any]:
    """An interval as columns that begin with `name`; all None without one."""
    return {
        name: interval and interval.center,
        f"{name}_low": interval and interval.low,
        f"{name}_high": interval and interval.high,
        f"{name}_level": interval and interval.level,
        f"{name}_method": interval and interval.method,
        f"{name}_n": interval and interval.n,
    }


def backend_name(cell: Cell) -> str:
    """The backend with its options, as a legend shows it: `ring (chunk_bytes=65536)`."""
    return f"{cell.backend} ({options_text(cell)})" if cell.backend_options else cell.backend


def number(value: float) -> str:
    """At least three digits, never an exponent: 0.0123, 4.56, 78.9, 1234."""
    if value and abs(value) < 1:
        return f"{value:.3g}" if abs(value) >= 1e-4 else f"{value:.6f}"
    return f"{value:.{max(0, 3 - len(str(int(abs(value)))))}f}" if value % 1 else f"{value:.0f}"


def rate(interval: Interval | None) -> str:
    """`812 [805, 820]`; without limits only the number, "-" without a number."""
    if interval is None:
        return "-"
    if interval.low is None or interval.high is None:
        return number(interval.center)
    return f"{number(interval.center)} [{number(interval.low)}, {number(interval.high)}]"


def percent(efficiency: Interval, *, unit: str = " %") -> str:
    """`91 % [89, 93]`, or `91.3 % [91.0, 91.6]` where the interval is narrower than one percent."""
    low, high = efficiency.low, efficiency.high
    if low is None or high is None:
        return f"{100 * efficiency.center:.0f}{unit}"
    digits = 1 if high - low < 0.01 else 0
    center, lower, upper = (f"{100 * value:.{digits}f}" for value in (efficiency.center, low, high))
    return f"{center}{unit} [{lower}, {upper}]"


def gibibytes(num_bytes: int | None) -> str:
    """`0.41`, in 2^30 bytes; "-" where it is not known."""
    return "-" if num_bytes is None else f"{num_bytes / 2**30:.2f}"


_UNITS = ((2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB"))


def size_text(num_bytes: int) -> str:
    """`4 KiB`, `25 MiB`, `100 B`."""
    for factor, unit in _UNITS:
        if num_bytes >= factor:
            return f"{number(num_bytes / factor)} {unit}"
    return f"{num_bytes} B"


def ratio_text(interval: Interval) -> str:
    """`1.34 [1.30, 1.39]`."""
    if interval.low is None or interval.high is None:
        return number(interval.center)
    return f"{number(interval.center)} [{number(interval.low)}, {number(interval.high)}]"


def ratio_at_size(num_bytes: int, interval: Interval) -> str:
    """`1.34 [1.30, 1.39] at 4 MiB`."""
    return f"{ratio_text(interval)} at {size_text(num_bytes)}"


def microseconds(seconds: float | None) -> str:
    """`12.3`; "-" where it is not known."""
    return "-" if seconds is None else number(1e6 * seconds)


# Columns that are not numbers.
UNALIGNED_COLUMNS = (
    "backend",
    "notes",
    "exchange",
    "compared with",
    "framework",
    "script",
    "counted",
    "part of the loss",
    "contrast",
    "verdict",
)


@dataclass(frozen=True, slots=True)
class Grid:
    """Sections of rows of cells under named columns; an interval is what follows " [" in a cell."""

    columns: Sequence[str]
    sections: Sequence[Sequence[tuple[str, ...]]]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
        wide = self._table(narrow=False)
        unlimited = options.update(max_width=sys.maxsize)
        fits = console.measure(wide, options=unlimited).maximum <= options.max_width
        yield wide if fits else Group("", self._table(narrow=True), "")

    def _table(self, *, narrow: bool) -> Table:
        table = Table(
            box=box.SIMPLE_HEAD, show_edge=not narrow, pad_edge=False, padding=(0, 0 if narrow else 1, 0, 0)
        )
        for name in self.columns:
            table.add_column(
                escape(name), justify="left" if name in UNALIGNED_COLUMNS else "right", overflow="fold"
            )
        for section in self.sections:
            for cells in section:
                table.add_row(*(escape(cell.replace(" [", "\n[") if narrow else cell) for cell in cells))
            table.add_section()
        return table
