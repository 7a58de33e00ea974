"""An entry of `results/published/figures.toml`: how a figure is laid out, and what of ours belongs beside it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Literal

from pydantic import PositiveFloat, PositiveInt, field_validator, model_validator

from dlscale.analysis.published.units import check_x_unit, factor
from dlscale.benchmarks.record import Cell, Frozen

REAL = "real"  # any data that is read: what a cell calls its data no publication can know
NEEDED = (
    "workload",
    "scaling_mode",
    "framework",
    "backend",
    "system",
)  # to compare a series with one of ours


class Own(Frozen):
    """What a cell of ours must be. None: anything."""

    workload: str | None = None
    preset: str | None = None
    scaling_mode: Literal["weak", "strong"] | None = None
    framework: str | None = None
    backend: str | None = None
    system: str | None = None
    device: Literal["cpu", "gpu"] | None = None
    precision: str | None = None
    data: str | None = None  # a cell's, or REAL
    local_batch: PositiveInt | None = None
    global_batch: PositiveInt | None = None
    ranks_per_node: PositiveInt | None = None

    def narrowed(self, *others: Own | None) -> Own:
        """With what `others` ask for besides; of two that differ the later one holds."""
        fields = self.model_dump()
        for other in others:
            fields |= other.model_dump(exclude_none=True) if other else {}
        return Own(**fields)

    def accepts(self, cell: Cell, *, system: str) -> bool:
        """Whether a cell that ran on `system` is what is asked for."""
        fields = cell.model_dump() | {"system": system}
        for name, wanted in self.model_dump(exclude_none=True, exclude={"data", "ranks_per_node"}).items():
            if fields[name] != wanted:
                return False
        if self.ranks_per_node and cell.num_ranks != cell.num_nodes * self.ranks_per_node:
            return False
        return self.data is None or self.data == (cell.data if cell.data == "synthetic" else REAL)

    @property
    def missing(self) -> tuple[str, ...]:
        """What is not said, so that no cell of ours can be the same thing."""
        return tuple(name for name in NEEDED if getattr(self, name) is None)


class Panel(Frozen):
    """One plot: the quantity over the figure's x. Without `series` all that have the quantity are in it."""

    layout: str
    y_label: str
    y_unit: str
    y_scale: Literal["linear", "log"]
    title: str = ""
    series: tuple[str, ...] = ()
    aside: bool = (
        False  # series lie on each other: they are moved aside around their true place, and not joined
    )
    own: Own | None = None

    @model_validator(mode="after")
    def _check_unit(self) -> Panel:
        factor(self.layout, self.y_unit)
        return self

    def holds(self, series: str) -> bool:
        """Whether a published series is drawn in it, if it has the quantity."""
        return not self.series or series in self.series


class Series(Frozen):
    """One published series: its name in the legend, and what of ours may be compared with it."""

    label: str = ""
    own: Own | None = None


class Figure(Frozen):
    """One published figure. `public` says in a sentence what of it is public."""

    id: str
    title: str
    publication: str
    public: str
    workload: str  # in words, with the batch
    tolerance: PositiveFloat  # relative
    panels: tuple[Panel, ...]
    x_label: str = ""
    x_unit: str = ""
    x_scale: Literal["log2", "log", "linear"] = "linear"
    x_range: tuple[float, float] = (0, 1)
    base_x: PositiveFloat = 1  # where speed-up and efficiency are 1
    images_per_epoch: PositiveInt | None = None
    relative_to: str | None = None  # our backend that `relative_throughput` is relative to
    named_points: bool = False  # each series is one point, with its name beside it
    own: Own | None = None
    series: Mapping[str, Series] = {}

    @field_validator("id")
    @classmethod
    def _check_id(cls, text: str) -> str:
        if not re.fullmatch(r"[a-z0-9-]+", text):
            raise ValueError("small letters, digits and hyphens only: it is a file's name")
        return text

    @model_validator(mode="after")
    def _check_axes(self) -> Figure:
        if self.panels:
            check_x_unit(self.x_unit)
        if self.panels and not self.x_label:
            raise ValueError("x_label is missing")
        return self

    def label(self, series: str) -> str:
        """Its name in the legend."""
        entry = self.series.get(series)
        return (entry and entry.label) or series

    def comparable(self, series: str) -> Own:
        """What a cell of ours must be to be compared with that series."""
        entry = self.series.get(series)
        return Own().narrowed(self.own, entry.own if entry else None)


class Place(Frozen):
    """One published value."""

    figure: str
    series: str
    quantity: str
    x: float


class Same(Frozen):
    """Two published values of the same thing. Without a tolerance they must agree within their rounding."""

    note: str
    a: Place
    b: Place
    tolerance: PositiveFloat | None = None
