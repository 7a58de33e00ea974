"""Reading `results/published` as a whole: catalogue, values and statements that fit together."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError

from dlscale.analysis.published.catalogue import Figure, Place, Same
from dlscale.analysis.published.values import FOLDER, Statement, Value, read_statements, read_values
from dlscale.benchmarks.record import Frozen
from dlscale.models.errors import UsageError

FIGURES = "figures.toml"
Checked = TypeVar("Checked", bound=Frozen)


class Published(Frozen):
    """All that is public: figures in the catalogue's order, values and statements by figure."""

    figures: Mapping[str, Figure]
    values: Mapping[str, tuple[Value, ...]]
    statements: Mapping[str, tuple[Statement, ...]]
    same: tuple[Same, ...]

    def figure(self, name: str) -> Figure:
        """Raises UsageError for an unknown one."""
        if name not in self.figures:
            raise UsageError(f"no published figure {name!r}; choose one of: {', '.join(self.figures)}")
        return self.figures[name]

    def values_of(self, figure: str) -> tuple[Value, ...]:
        """Of that figure."""
        return self.values.get(figure, ())

    def statements_of(self, figure: str) -> tuple[Statement, ...]:
        """Of that figure."""
        return self.statements.get(figure, ())

    def find(self, place: Place) -> Value | None:
        """The value there; None if none is public."""
        wanted = (place.series, place.quantity, place.x)
        rows = self.values_of(place.figure)
        return next((row for row in rows if (row.series, row.quantity, row.x) == wanted), None)


def load(folder: Path = FOLDER) -> Published:
    """Everything in the folder, checked. Raises UsageError with file and line, or if there is no such folder."""
    path = folder / FIGURES
    if not path.exists():
        raise UsageError(
            f"no published figures in {folder}: they come with the checkout; run dlscale there or name their folder"
        )
    figures, same = _catalogue(path)
    statements: dict[str, list[Statement]] = {}
    for one in read_statements(folder):
        statements.setdefault(one.figure, []).append(one)
    published = Published(
        figures=figures,
        values=read_values(folder),
        statements={name: tuple(rows) for name, rows in statements.items()},
        same=same,
    )
    _check(published, path)
    return published


def _catalogue(path: Path) -> tuple[dict[str, Figure], tuple[Same, ...]]:
    text = path.read_text(encoding="utf-8")
    try:
        found = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{path}: {error}; correct it") from None
    figures = {
        name: _checked(path, text, f"[figures.{name}]", Figure, {"id": name, **entry})
        for name, entry in found.get("figures", {}).items()
    }
    same = tuple(_checked(path, text, "[[same]]", Same, entry) for entry in found.get("same", []))
    return figures, same


def _checked(path: Path, text: str, header: str, model: type[Checked], entry: dict[str, Any]) -> Checked:
    try:
        return model.model_validate(entry)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        line = text[: text.find(header)].count("\n") + 1
        place = ".".join(str(part) for part in first["loc"])
        said = first["msg"].removeprefix("Value error, ")
        raise UsageError(
            f"{path}, line {line}, {header}: {place + ': ' if place else ''}{said}; correct it"
        ) from None


def _check(published: Published, path: Path) -> None:
    """Raises UsageError if values, statements and catalogue do not fit together."""
    for name in (*published.values, *published.statements):
        if name not in published.figures:
            raise UsageError(
                f"{path}: no entry [figures.{name}], but there are values or statements of it; add one"
            )
    for name, figure in published.figures.items():
        known = {row.series for row in (*published.values_of(name), *published.statements_of(name))}
        named = {*figure.series, *(one for panel in figure.panels for one in panel.series)}
        if unknown := sorted(named - known):
            raise UsageError(
                f"{path}, [figures.{name}]: no series {', '.join(map(repr, unknown))} is public; correct it"
            )
        for row in published.values_of(name):
            if row.x is not None and row.x_unit != figure.x_unit:
                raise UsageError(
                    f"{path}, [figures.{name}]: x in {figure.x_unit!r}, in {name}.csv in {row.x_unit!r}; correct one"
                )
    for same in published.same:
        for place in (same.a, same.b):
            if not published.find(place):
                raise UsageError(f"{path}, [[same]]: no value {place.model_dump()} is public; correct it")
