"""Series that were measured here beside what is published: `results/reference/series/<name>.json`, written once.

A figure's panel that names a file shows its rows, and no published point; claims may order two of its series.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import PositiveFloat, PositiveInt, model_validator

from dlscale.analysis.published.values import FOLDER, check_x_unit, factor
from dlscale.base.definitions import Frozen, read_json
from dlscale.base.strings import Name, Text

SERIES = Path("reference") / "series"  # beside the published values


class ReferenceStudy(Frozen, extra="ignore"):
    """What was run."""

    study: Name
    system: Name
    command: Text
    commit: Text


class ReferenceRow(Frozen, extra="ignore"):
    """A point: `low` and `high` are the interval of `y` over `n` launches, where there is one."""

    panel: Text = ""
    evidence: Literal["measured", "emulated"]
    series: Text
    system: Text
    backend: Text | None = None
    x: PositiveFloat
    x_unit: Text
    quantity: Text
    y: float
    low: float | None
    high: float | None
    y_unit: Text
    n: PositiveInt
    method: Text

    @model_validator(mode="after")
    def _check_units(self) -> ReferenceRow:
        factor(self.quantity, self.y_unit)
        check_x_unit(self.x_unit)
        if self.low is not None and self.high is not None and not self.low <= self.y <= self.high:
            raise ValueError(f"{self.y:g} is not between {self.low:g} and {self.high:g}")
        return self

    def in_unit(self, value: float | None, unit: float) -> float | None:
        """A number of the row in a unit of its quantity's base unit; None of None."""
        return None if value is None else value * factor(self.quantity, self.y_unit) / unit


class ReferencePair(Frozen):
    """Two series that were measured here, and a quantity: the first over the second is compared with a ratio."""

    file: Name  # of results/reference/series
    panel: Text = ""
    quantity: Name
    series: tuple[Text, Text]


class Reference(Frozen, extra="ignore"):
    """The series of one file."""

    title: Text
    studies: tuple[ReferenceStudy, ...]
    rows: tuple[ReferenceRow, ...]


def load_reference(name: str, folder: Path = FOLDER) -> Reference:
    """The series of that name beside a folder of published values. Raises UsageError if they are missing or invalid."""
    path = folder.parent / SERIES / f"{name}.json"
    return read_json(Reference, path, remedy="correct it, or the panel's `reference`", links=True)
