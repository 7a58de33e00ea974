"""The catalogue `results/published/figures.toml`: each figure's panels, and which of our series are compared with it.

It is read together with the values and statements, which must match it.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import PositiveFloat, PositiveInt, field_validator, model_validator

from dlscale.analysis.published.reference import Reference, ReferencePair, ReferenceRow, load_reference
from dlscale.analysis.published.values import (
    FOLDER,
    Statement,
    Value,
    check_x_unit,
    factor,
    read_statements,
    read_values,
)
from dlscale.base.definitions import Frozen, load_file
from dlscale.base.errors import UsageError, unknown
from dlscale.base.strings import Name, Text
from dlscale.benchmarks.records.cell import Cell

FIGURES = "figures.toml"
REAL = "real"  # matches any data that is read: publications do not know our names of data sets
SYNTHETIC = "synthetic"
NEEDED = ("workload", "scaling_mode", "framework", "backend", "system")  # to compare a series with ours


XScale = Literal["log2", "log", "linear"]


class Own(Frozen):
    """Required properties of our cells. None matches anything."""

    workload: Name | None = None
    preset: Name | None = None
    scaling_mode: Literal["weak", "strong"] | None = None
    framework: Name | None = None
    backend: Name | None = None
    system: Name | None = None
    device: Literal["cpu", "gpu"] | None = None
    precision: Name | None = None
    data: Text | None = None  # SYNTHETIC, REAL, or the name of the file or folder, which may have * and ?
    local_batch: PositiveInt | None = None
    global_batch: PositiveInt | None = None
    ranks_per_node: PositiveInt | None = None

    def narrowed(self, *others: Own | None) -> Own:
        """These requirements combined with those of `others`; if two differ, the later one holds."""
        fields = self.model_dump()
        for own in others:
            fields |= own.model_dump(exclude_none=True) if own else {}
        return Own(**fields)

    def accepts(self, cell: Cell, *, system: str) -> bool:
        """Whether a cell that ran on `system` meets the requirements."""
        fields = cell.model_dump() | {"system": system}
        wanted = self.model_dump(exclude_none=True, exclude={"data", "ranks_per_node"})
        if any(fields[name] != value for name, value in wanted.items()):
            return False
        if self.ranks_per_node and cell.num_ranks != cell.num_nodes * self.ranks_per_node:
            return False
        if self.data is None:
            return True
        if SYNTHETIC in (self.data, cell.data):
            return self.data == cell.data
        name = cell.data.partition(":")[0].lower()
        return self.data == REAL or fnmatch.fnmatchcase(name, self.data.lower())

    @property
    def missing(self) -> tuple[str, ...]:
        """The needed properties that are not given, without which no cell of ours can be compared."""
        return tuple(name for name in NEEDED if getattr(self, name) is None)

    @property
    def text(self) -> str:
        """The required properties, in words."""
        words = [
            self.workload,
            self.preset and f"preset {self.preset}",
            self.scaling_mode and f"{self.scaling_mode} scaling",
            self.framework,
            self.backend,
            self.system and f"on {self.system}",
            self.device and f"device {self.device}",
            self.precision,
            self.local_batch and f"{self.local_batch} samples per rank",
            self.global_batch and f"{self.global_batch} samples over all ranks",
            self.data and (f"{self.data} data" if self.data in (REAL, SYNTHETIC) else f"data {self.data}"),
            self.ranks_per_node and f"{self.ranks_per_node} rank{'s' * (self.ranks_per_node > 1)} per node",
        ]
        return ", ".join(word for word in words if word)


class Panel(Frozen):
    """One plot of a quantity over the figure's x axis. `series` are its series, by default all with the quantity.

    With `reference` it shows, instead of what is published, what was measured here: the rows of that file that are of
    its title and quantity, over an x axis of its own where it names one.
    """

    layout: Name  # the quantity
    y_label: Text
    y_unit: Text
    y_scale: Literal["linear", "log"]
    title: Text = ""
    series: tuple[Text, ...] = ()
    aside: bool = False  # series overlap: points are shifted around their true x, and not joined
    own: Own | None = None
    reference: Name | None = None
    x_label: Text | None = None
    x_unit: Text | None = None
    x_scale: XScale | None = None
    x_range: tuple[float, float] | None = None

    @model_validator(mode="after")
    def _check_unit(self) -> Panel:
        factor(self.layout, self.y_unit)
        if self.x_axis and not self.reference:
            raise ValueError(
                f"{', '.join(self.x_axis)}: only a panel with `reference` has an x axis of its own"
            )
        return self

    @property
    def x_axis(self) -> dict[str, Any]:
        """What of the x axis it has of its own."""
        return self.model_dump(include={"x_label", "x_unit", "x_scale", "x_range"}, exclude_none=True)

    @property
    def unit(self) -> float:
        """The panel's unit in the quantity's base unit."""
        return factor(self.layout, self.y_unit)

    def holds(self, series: str) -> bool:
        """Whether the panel includes a published series, if that has the quantity."""
        return not self.reference and (not self.series or series in self.series)


class Series(Frozen):
    """One published series: its name in the legend, and which of our cells may be compared with it."""

    label: Text = ""
    own: Own | None = None


class Figure(Frozen):
    """One published figure. `public` is a sentence that says which data are public.

    `missing` says which input of a prediction is not public, in figures without one.
    """

    id: Text
    title: Text
    publication: Text
    public: Text
    missing: Text = ""
    workload: Text  # in words, with the batch
    tolerance: PositiveFloat  # relative
    panels: tuple[Panel, ...]
    x_label: Text = ""
    x_unit: Text = ""
    x_scale: XScale = "linear"
    x_range: tuple[float, float] = (0, 1)
    base_x: PositiveFloat = 1  # where speed-up and efficiency are 1
    images_per_epoch: PositiveInt | None = None
    relative_to: Text | None = None  # our backend that `relative_throughput` is relative to
    named_points: bool = False  # each series is one point, labelled with its name
    own: Own | None = None
    series: Mapping[Text, Series] = {}

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

    def along(self, panel: Panel) -> Figure:
        """The figure with the x axis of that panel."""
        return self.model_copy(update=panel.x_axis)

    def label(self, series: str) -> str:
        """The name of a series in the legend."""
        entry = self.series.get(series)
        return (entry and entry.label) or series

    def comparable(self, series: str) -> Own:
        """The properties that our cells need to be compared with that series."""
        entry = self.series.get(series)
        return Own().narrowed(self.own, entry.own if entry else None)


class Place(Frozen):
    """Where a published number stands."""

    figure: Text
    series: Text = ""
    quantity: Text
    x: float | None = None


class Same(Frozen):
    """Two published values of the same quantity; without a tolerance they must agree within their rounding."""

    note: Text
    a: Place
    b: Place
    tolerance: PositiveFloat | None = None


class Catalogue(Frozen):
    """The file."""

    figures: Mapping[Text, Figure] = {}
    same: tuple[Same, ...] = ()

    @field_validator("figures", mode="before")
    @classmethod
    def _named(cls, entries: Any) -> Any:
        if not isinstance(entries, dict):
            return entries
        return {
            name: {"id": name} | entry if isinstance(entry, dict) else entry
            for name, entry in entries.items()
        }


class Published(Frozen):
    """All public data: figures in the catalogue's order, values and statements by figure."""

    figures: Mapping[Text, Figure]
    values: Mapping[Text, tuple[Value, ...]]
    statements: Mapping[Text, tuple[Statement, ...]]
    same: tuple[Same, ...] = ()
    references: Mapping[Name, Reference] = {}

    def figure(self, name: str) -> Figure:
        """The figure of that name. Raises UsageError if it is unknown."""
        if name not in self.figures:
            raise UsageError(unknown("published figure", name, list(self.figures)))
        return self.figures[name]

    def values_of(self, figure: str) -> tuple[Value, ...]:
        """The values of that figure."""
        return self.values.get(figure, ())

    def statements_of(self, figure: str) -> tuple[Statement, ...]:
        """The statements of that figure."""
        return self.statements.get(figure, ())

    def reference_rows(self, figure: Figure, panel: Panel) -> tuple[ReferenceRow, ...]:
        """What was measured here for a panel."""
        if panel.reference is None:
            return ()
        wanted = (panel.title, panel.layout, figure.along(panel).x_unit)
        rows = self.references[panel.reference].rows
        return tuple(row for row in rows if (row.panel, row.quantity, row.x_unit) == wanted)

    def reference_pair(self, wanted: ReferencePair, x: float) -> list[ReferenceRow]:
        """Both rows of a pair at that x; none where one is missing."""
        rows = self.references[wanted.file].rows if wanted.file in self.references else ()
        place = (wanted.panel, wanted.quantity, x)
        here = {row.series: row for row in rows if (row.panel, row.quantity, row.x) == place}
        return [here[name] for name in wanted.series] if here.keys() >= {*wanted.series} else []

    def series_of(self, figure: str) -> set[str]:
        """The names of all series of that figure."""
        return {row.series for row in (*self.values_of(figure), *self.statements_of(figure))}

    def at(self, place: Place) -> list[Value | Statement]:
        """The values and statements at a place."""
        wanted = (place.series, place.quantity, place.x)
        return [
            *(v for v in self.values_of(place.figure) if (v.series, v.quantity, v.x) == wanted),
            *(s for s in self.statements_of(place.figure) if (s.series, s.quantity, s.x_low) == wanted),
        ]

    def value(self, place: Place) -> Value | None:
        """The value at a place; None if none is public."""
        return next((row for row in self.at(place) if isinstance(row, Value)), None)

    def said_of(self, system: str, workload: str, scaling_mode: str) -> list[Statement]:
        """What is said of a workload's scaling on a system, in the figures of both."""
        wanted = (system, workload, scaling_mode)
        return [
            statement
            for figure in self.figures.values()
            if figure.own and (figure.own.system, figure.own.workload, figure.own.scaling_mode) == wanted
            for statement in self.statements_of(figure.id)
        ]


def load_published(folder: Path = FOLDER) -> Published:
    """All published data in a folder, checked. Raises UsageError, with file and place, if it is missing or invalid."""
    path = folder / FIGURES
    if not path.exists():
        raise UsageError(
            f"no published figures in {folder}: they come with the checkout; run dlscale there or name their folder"
        )
    catalogue = load_file(Catalogue, path)
    statements: dict[str, list[Statement]] = {}
    for statement in read_statements(folder):
        statements.setdefault(statement.figure, []).append(statement)
    published = Published(
        figures=catalogue.figures,
        values=read_values(folder),
        statements={name: tuple(rows) for name, rows in statements.items()},
        same=catalogue.same,
        references={
            panel.reference: load_reference(panel.reference, folder)
            for figure in catalogue.figures.values()
            for panel in figure.panels
            if panel.reference
        },
    )
    _check(published, path)
    return published


def _check(published: Published, path: Path) -> None:
    """Check that values, statements and catalogue match. Raises UsageError if they do not."""
    for name in (*published.values, *published.statements):
        if name not in published.figures:
            raise UsageError(
                f"{path}: no entry [figures.{name}], but there are values or statements of it; add one"
            )
    for name, figure in published.figures.items():
        named = {*figure.series, *(series for panel in figure.panels for series in panel.series)}
        if unknown := sorted(named - published.series_of(name)):
            raise UsageError(
                f"{path}, [figures.{name}]: no series {', '.join(map(repr, unknown))} is public; correct it"
            )
        for row in published.values_of(name):
            if row.x is not None and row.x_unit != figure.x_unit:
                raise UsageError(
                    f"{path}, [figures.{name}]: x in {figure.x_unit!r}, in {name}.csv in {row.x_unit!r}; correct one"
                )
        for panel in figure.panels:
            if panel.reference and not published.reference_rows(figure, panel):
                raise UsageError(
                    f"{path}, [figures.{name}]: no row of {panel.reference}.json has panel {panel.title!r}, quantity "
                    f"{panel.layout} and x in {figure.along(panel).x_unit!r}; correct one"
                )
    for same in published.same:
        for place in (same.a, same.b):
            if not published.value(place):
                raise UsageError(f"{path}, [[same]]: no value {place.model_dump()} is public; correct it")
