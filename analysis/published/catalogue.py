"""The catalogue `results/published/figures.toml`, read together with the values and statements that it lays out."""

from __future__ import annotations

import fnmatch
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal, Self

import pandas as pd
from pydantic import PositiveFloat, PositiveInt, StringConstraints, model_validator

from dlscale.analysis.published.values import check_x_unit, factor, read_measured, read_public
from dlscale.base.definitions import Frozen, load
from dlscale.base.errors import UsageError, unknown
from dlscale.base.strings import Name, Text

FOLDER = Path(__file__).resolve().parents[2] / "results" / "published"
FIGURES = "figures.toml"
RATIOS = ("speed_up", "efficiency")  # quantities that are 1 at a figure's base
NEEDED = ("workload", "scaling_mode", "framework", "backend", "system")  # to compare a series with ours
REAL, SYNTHETIC = "real", "synthetic"  # data; `real` is any that is read
FileName = Annotated[str, StringConstraints(pattern=r"^[a-z0-9-]+$")]  # of a figure, without an ending
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

    def accepts(self, cells: pd.DataFrame) -> pd.Series:
        """Which cells meet the requirements."""
        kept = cells["data"].map(self._reads).astype(bool)
        for name, value in self.model_dump(exclude_none=True, exclude={"data", "ranks_per_node"}).items():
            kept &= cells[name] == value
        if self.ranks_per_node:
            kept &= cells["num_ranks"] == cells["num_nodes"] * self.ranks_per_node
        return kept

    def _reads(self, data: str) -> bool:
        if self.data is None or SYNTHETIC in (self.data, data):
            return self.data in (None, data)
        name = data.partition(":")[0].lower()
        return self.data == REAL or fnmatch.fnmatchcase(name, self.data.lower())

    def lacks(self, stand_in: str | None) -> bool:
        """Whether a needed property is not given, without which no cell of ours can be compared."""
        return any(getattr(self, name) is None for name in NEEDED if not (name == "system" and stand_in))

    @property
    def text(self) -> str:
        """The required properties, as a study has them."""
        fields = self.model_dump(exclude_none=True)
        return ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in fields.items())


class Panel(Frozen):
    """One plot of a quantity over the figure's x axis. `series` are its series, by default all with the quantity.

    With `reference` it shows what was measured here: that file's rows with its title and quantity.
    """

    layout: Name  # the quantity
    y_label: Text
    y_unit: Text
    y_scale: Literal["linear", "log"]
    title: Text = ""
    series: tuple[Text, ...] = ()
    bars: bool = False  # a row per point in the place of a curve over x
    own: Own | None = None
    reference: Name | None = None
    x_label: Text | None = None
    x_unit: Text | None = None
    x_scale: XScale | None = None

    @model_validator(mode="after")
    def _check_unit(self) -> Self:
        factor(self.layout, self.y_unit)
        if (self.x_label or self.x_unit or self.x_scale) and not self.reference:
            raise ValueError("only a panel with `reference` has an x axis of its own")
        return self


class Series(Frozen):
    """One published series: its name in the legend, and which of our cells may be compared with it."""

    label: Text = ""
    own: Own | None = None


class Figure(Frozen):
    """One published figure: `public` says which data are, `missing` which input of a prediction is not."""

    id: Text = ""  # its name in the file
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
    base_x: PositiveFloat = 1  # where speed-up and efficiency are 1
    images_per_epoch: PositiveInt | None = None
    relative_to: Text | None = None  # our backend that `relative_throughput` is relative to
    own: Own | None = None
    series: Mapping[Text, Series] = {}

    @model_validator(mode="after")
    def _check_axes(self) -> Self:
        if self.panels and not self.x_label:
            raise ValueError("x_label is missing")
        if self.panels:
            check_x_unit(self.x_unit)
        return self

    def label(self, series: str) -> str:
        """The name of a series in the legend."""
        return (series in self.series and self.series[series].label) or series

    def comparable(self, series: str) -> Own:
        """The properties that our cells need to be compared with that series."""
        return Own().narrowed(self.own, self.series[series].own if series in self.series else None)


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

    figures: Mapping[FileName, Figure] = {}
    same: tuple[Same, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """All public data: figures in the catalogue's order; frames of what was published and of what was measured here."""

    figures: Mapping[str, Figure]
    values: pd.DataFrame
    measured: pd.DataFrame
    same: tuple[Same, ...] = ()

    def figure(self, name: str) -> Figure:
        """The figure of that name. Raises UsageError if it is unknown."""
        return self.named([name])[0]

    def named(self, names: Collection[str]) -> list[Figure]:
        """The figures of those names, all without any. Raises UsageError if one is unknown."""
        for name in names:
            if name not in self.figures:
                raise UsageError(unknown("published figure", name, list(self.figures)))
        return [self.figures[name] for name in names or self.figures]

    def at(self, place: Place) -> pd.DataFrame:
        """The values and statements at a place."""
        rows = select(self.values, figure=place.figure, series=place.series, quantity=place.quantity)
        return rows[rows["x"].isna() if place.x is None else rows["x"] == place.x]

    def measured_for(self, figure: Figure, panel: Panel) -> pd.DataFrame:
        """What was measured here for a panel."""
        place = {"panel": panel.title, "quantity": panel.layout, "x_unit": panel.x_unit or figure.x_unit}
        return select(self.measured, source=panel.reference, **place)


def select(frame: pd.DataFrame, **wanted: object) -> pd.DataFrame:
    """The rows with these values."""
    for name, value in wanted.items():
        frame = frame[frame[name] == value]
    return frame


def load_published(folder: Path = FOLDER) -> Published:
    """All published data in a folder, checked. Raises UsageError, with file and place, if it is missing or invalid."""
    path = folder / FIGURES
    if not path.exists():
        raise UsageError(
            f"no published figures in {folder}: they come with the checkout; run dlscale there or name their folder"
        )
    catalogue = load(Catalogue, str(path))
    figures = {name: it.model_copy(update={"id": name}) for name, it in catalogue.figures.items()}
    names = {panel.reference for it in figures.values() for panel in it.panels if panel.reference}
    known = {"values": read_public(folder), "measured": read_measured(folder, names)}
    published = Published(figures=figures, same=catalogue.same, **known)
    for problem in _problems(published):
        raise UsageError(f"{path}{problem}; correct it")
    return published


def _problems(published: Published) -> Iterator[str]:
    """What of values, statements and catalogue does not match."""
    rows = published.values
    for name in sorted({*rows["figure"]} - {*published.figures}):
        yield f": no entry [figures.{name}], but there are values or statements of it"
    for name, figure in published.figures.items():
        own = select(rows, figure=name)
        named = {*figure.series, *(series for panel in figure.panels for series in panel.series)}
        if absent := sorted(named - set(own["series"])):
            yield f", [figures.{name}]: no series {', '.join(map(repr, absent))} is public"
        for unit in {*own.loc[own["statement"].eq("") & own["x"].notna(), "x_unit"]} - {figure.x_unit}:
            yield f", [figures.{name}]: x in {figure.x_unit!r}, in {name}.csv in {unit!r}"
        for panel in figure.panels:
            if panel.reference and published.measured_for(figure, panel).empty:
                what = f"panel {panel.title!r}, quantity {panel.layout} and x in the panel's unit"
                yield f", [figures.{name}]: no row of {panel.reference}.json has {what}"
    for place in (place for same in published.same for place in (same.a, same.b)):
        if published.at(place)["statement"].ne("").all():
            yield f", [[same]]: no value {place.model_dump()} is public"
