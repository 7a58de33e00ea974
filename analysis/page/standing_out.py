"""Launches and windows that stand out, as the page tells of them: they count everywhere."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dlscale.analysis.outliers.cells import MIN_WINDOWS, Outlier, Outliers
from dlscale.analysis.outliers.robust import deviations, stands_out, usual_deviation
from dlscale.analysis.page.words import plural
from dlscale.analysis.scaling import Row

Key = tuple[str, str, str]  # system, cell, kind of evidence
RING = "stands out, and counts"


@dataclass(frozen=True, slots=True, kw_only=True)
class StandingOut:
    """Of all cells, by system, cell and kind of evidence."""

    cells: Mapping[Key, Outliers]
    launches: Mapping[tuple[Key, Hashable], Outlier]  # and by study and block

    def of(self, key: Key, block: Hashable, seconds: NDArray[np.float64]) -> tuple[bool, tuple[str, ...]]:
        """Whether a launch stands out, and what is told of it and of its windows; `seconds` of these, [W]."""
        found = self.launches.get((key, block))
        cell = self.cells.get(key)
        windows = _windows(seconds) if cell and cell.num_windows_out else ()
        return found is not None, (*([how_far(found)] if found else []), *windows)


def standing_out(rows: Iterable[Row]) -> StandingOut:
    """What the table's rows have found."""
    cells = {
        (row.family.system, row.cell.id, str(row.evidence)): row.outliers for row in rows if row.outliers
    }
    return StandingOut(
        cells=cells,
        launches={(key, out.block): out for key, one in cells.items() for out in one.launches},
    )


def how_far(one: Outlier) -> str:
    """`stands out: its steps take 12 % longer than its cell and its block let expect, never steady`."""
    side = "longer" if one.factor > 1 else "less"
    unsteady = "" if one.steady else ", never steady"
    size = f"{100 * abs(one.factor - 1):.0f} %"
    return f"stands out: its steps take {size} {side} than its cell and its block let expect{unsteady}"


def _windows(seconds: NDArray[np.float64]) -> tuple[str, ...]:
    """By the rule of `outliers.cells`; only where that found any in the cell."""
    if len(seconds) < MIN_WINDOWS:
        return ()
    logs = np.log(seconds)
    out = stands_out(deviations(logs), usual=usual_deviation(logs))
    if not out.any():
        return ()
    num, longest = int(out.sum()), float(seconds[out].max() / np.median(seconds))
    some = f"{num} of {plural(len(seconds), 'window')} stand{'s' * (num == 1)} out"
    return (f"{some}, the longest {longest:.2f} times the median",)
