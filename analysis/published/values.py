"""Published values and statements (`results/published/*.csv`) and what was measured here, checked, as rows of a frame.

`<figure>.csv` has a row per value and `statements.csv` a row per statement in words. Numbers in frames are in their
quantity's base unit, the first one of its list.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, Self, TypeVar

import pandas as pd
from pydantic import AfterValidator, Field, PositiveInt, StringConstraints, ValidationError, model_validator

from dlscale.base.definitions import Frozen, first_problem, read_json
from dlscale.base.errors import UsageError
from dlscale.base.files import read_regular
from dlscale.base.strings import Text, visible

STATEMENTS = "statements.csv"
SERIES = Path("reference") / "series"  # what was measured here, beside the published values
Kind = Literal["text", "table", "source code", "read off a figure", "derived"]
Filled = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1), AfterValidator(visible)]

_COUNT, _RATIO, _RATE = {"1": 1.0}, {"1": 1.0, "%": 0.01}, {"images/s": 1.0, "samples/s": 1.0}
_TIME = {"s": 1.0, "ms": 1e-3, "min": 60.0, "h": 3600.0}
_OF_QUANTITIES: dict[str, dict[str, float]] = {
    "throughput throughput_per_device": _RATE,
    "speed_up relative_throughput relative_time training_loss ams p_value compression": _COUNT,
    "statements_added settings_faster": _COUNT,
    "efficiency top1_accuracy top1_error accuracy signal_efficiency background_rejection": _RATIO,
    "seconds_per_sample seconds_per_step seconds_per_epoch time_to_solution": _TIME,
    "global_batch local_batch": {"samples": 1.0, "K samples": 1024.0},  # as papers print 8K for 8192
    "images_per_epoch": {"images": 1.0},
    "gradient_bytes": {"MB": 1e6},
    "flop_rate": {"TFLOP/s": 1e12, "PFLOP/s": 1e15},
}
# Quantity -> unit -> factor to the quantity's base unit.
UNITS = {quantity: units for names, units in _OF_QUANTITIES.items() for quantity in names.split()}
HALF_WIDTH = "_half_width"  # ends the name of an uncertainty: `throughput_half_width`
PLACES = ("linear", "scaling_ends", "sweep")  # statements about places on the x axis
X_UNITS = ("nodes", "GPUs", "devices", "processes", "machines", "images", "epochs", "s")

_TEXTS = [
    *("figure", "panel", "evidence", "series", "quantity", "x_unit", "kind", "source", "note", "system"),
    *("backend", "statement", "label", "method"),
]
_NUMBERS = ["x", "x_high", "y", "low", "high", "n"]


def factor(quantity: str, unit: str) -> float:
    """Factor from `unit` to the quantity's base unit. Raises ValueError for an unknown quantity or unit."""
    units = UNITS.get(quantity.removesuffix(HALF_WIDTH))
    if units is None:
        raise ValueError(f"no quantity {quantity!r}; choose one of: {', '.join((*UNITS, *PLACES))}")
    if unit not in units:
        raise ValueError(f"{quantity} in {unit or 'no unit'!r}; choose one of: {', '.join(units)}")
    return units[unit]


def check_x_unit(unit: str) -> None:
    """Raises ValueError unless the unit is known."""
    if unit not in X_UNITS:
        raise ValueError(f"x in {unit or 'no unit'!r}; choose one of: {', '.join(X_UNITS)}")


def _check_ordered(*numbers: float | None) -> None:
    known = [number for number in numbers if number is not None]
    if known != sorted(known):
        raise ValueError(f"low {known[0]:g} above high {known[-1]:g}, or a value that is not between them")


class _Public(Frozen, populate_by_name=True):
    """What values and statements have in common."""

    figure: Filled
    series: Text
    quantity: Text
    kind: Kind
    source: Filled
    note: Text
    x_unit: Text

    @model_validator(mode="after")
    def _check_derived(self) -> Self:
        if self.kind == "derived" and "formula" not in self.note and " = " not in self.note:
            raise ValueError("a derived value has its formula in the note")
        return self


class Value(_Public):
    """One published number. `printed` is the number as published, which determines its rounding."""

    series: Filled
    x: float | None  # None: not given in the publication
    printed: Annotated[str, StringConstraints(pattern=r"^\d+(\.\d+)?$")] = Field(alias="y")
    y_unit: Text
    workload: Text
    framework: Text
    backend: Text
    system: Text
    devices_per_node: PositiveInt | None

    @model_validator(mode="after")
    def _check_units(self) -> Self:
        factor(self.quantity, self.y_unit)
        if self.x is not None:
            check_x_unit(self.x_unit)
        return self

    @property
    def cells(self) -> dict[str, Any]:
        """Its row: `low` and `high` are the lowest and the highest number that is printed like this one."""
        scale, decimals = factor(self.quantity, self.y_unit), len(self.printed.partition(".")[2])
        y, rounding = float(self.printed) * scale, 0.5 * 10.0**-decimals * scale
        return self.model_dump() | {"x_high": self.x, "y": y, "low": y - rounding, "high": y + rounding}


class Statement(_Public):
    """A statement of a publication in words. `low` and `high` are None without such a bound or number."""

    statement: Filled
    label: Text  # a short form for figures
    low: float | None
    high: float | None
    unit: Text
    x_low: float | None
    x_high: float | None

    @model_validator(mode="after")
    def _check_units(self) -> Self:
        if (self.low, self.high) != (None, None):
            factor(self.quantity, self.unit)
        elif self.quantity and self.quantity not in PLACES:
            raise ValueError(f"{self.quantity} without a number; give low or high")
        if (self.x_low is None) != (self.x_high is None):
            raise ValueError("x_low without x_high; give both, equal for one place")
        if self.x_low is not None:
            check_x_unit(self.x_unit)
        _check_ordered(self.low, self.high)
        _check_ordered(self.x_low, self.x_high)
        return self

    @property
    def cells(self) -> dict[str, Any]:
        """Its row: `y` is a single number in words."""
        scale = factor(self.quantity, self.unit) if self.unit else 1.0
        low, high = (None if end is None else end * scale for end in (self.low, self.high))
        numbers = {"x": self.x_low, "low": low, "high": high, "y": low if low == high else None}
        return self.model_dump() | numbers


class ReferenceRow(Frozen, extra="ignore"):
    """A point that was measured here: `low` and `high` are the interval of `y` over `n` launches."""

    panel: Text = ""
    evidence: Literal["measured", "emulated"]
    series: Text
    system: Text
    backend: Text | None = None
    x: float
    x_unit: Text
    quantity: Text
    y: float
    low: float | None
    high: float | None
    y_unit: Text
    n: PositiveInt
    method: Text

    @model_validator(mode="after")
    def _check_units(self) -> Self:
        factor(self.quantity, self.y_unit)
        check_x_unit(self.x_unit)
        _check_ordered(self.low, self.y, self.high)
        return self


class Reference(Frozen, extra="ignore"):
    """A file of `results/reference/series`."""

    title: Text
    rows: tuple[ReferenceRow, ...]


Row = TypeVar("Row", Value, Statement)


def frame_of(rows: list[dict[str, Any]]) -> pd.DataFrame:
    """Rows as a frame: text that is missing is empty, a missing number NaN; `evidence` is "published" if not given.

    `about` marks numbers that the publication itself calls approximate; `about` and `unit` follow from the others.
    """
    frame = pd.DataFrame(rows).reindex(columns=[*_TEXTS, *_NUMBERS])
    frame[_TEXTS] = frame[_TEXTS].astype(object).where(frame[_TEXTS].notna(), "")
    units = [next(iter(UNITS.get(name.removesuffix(HALF_WIDTH), [""]))) for name in frame["quantity"]]
    about = [note.startswith("about") or note.endswith("; about") for note in frame["note"]]
    evidence = frame["evidence"].replace("", "published")
    return frame.astype(dict.fromkeys(_NUMBERS, float)).assign(unit=units, about=about, evidence=evidence)


def read_public(folder: Path) -> pd.DataFrame:
    """All values, then all statements of a folder, `series` being a publication's. Raises UsageError with the line."""
    paths = sorted(path for path in folder.glob("*.csv") if path.name != STATEMENTS)
    parts: list[Sequence[Value | Statement]] = [_rows(path, Value) for path in paths]
    parts += [_rows(folder / STATEMENTS, Statement)] if (folder / STATEMENTS).exists() else []
    return frame_of([row.cells for part in parts for row in part])


def read_measured(folder: Path, names: set[str]) -> pd.DataFrame:
    """What was measured here beside a folder of published values; `source` is the file. Raises UsageError."""
    rows = []
    for name in sorted(names):
        path, remedy = folder.parent / SERIES / f"{name}.json", "correct it, or the panel's `reference`"
        series = read_json(Reference, path, remedy=remedy, links=True)
        rows += [row.model_dump() | {"source": name, "note": series.title} for row in series.rows]
    scales = [factor(row["quantity"], row["y_unit"]) for row in rows]
    frame = frame_of(rows)
    ends = {end: frame[end] * scales for end in ("y", "low", "high")}
    return frame.assign(x_high=frame["x"], **ends)


def _rows(path: Path, model: type[Row]) -> list[Row]:
    """The rows of a file; an empty cell is None unless the field is text. Values are of one figure, one at a place."""
    columns = {field.alias or name: field for name, field in model.model_fields.items()}
    rows: list[Row] = []
    line = 1
    try:
        reader = csv.DictReader(io.StringIO(read_regular(path, links=True).decode(), newline=""))
        if sorted(reader.fieldnames or ()) != sorted(columns):
            raise ValueError(f"columns {str(reader.fieldnames)[:400]}; expected {', '.join(columns)}")
        for row in reader:
            line = reader.line_num
            if None in row or None in row.values():
                raise ValueError(f"not {len(columns)} cells")
            numbers = [name for name, field in columns.items() if field.annotation is not str]
            empty = {name: None for name in numbers if not row[name]}
            rows.append(model.model_validate(row | empty))
            if model is Value and row["figure"] != path.stem:
                raise ValueError(f"figure {row['figure']!r} in the file of {path.stem!r}")
            if model is Value and _place(rows[-1]) in map(_place, rows[:-1]):
                raise ValueError(f"{_place(rows[-1])} stands in a line before")
    except OSError as error:
        raise UsageError(f"{path} cannot be read ({error}); correct it") from None
    except (ValueError, csv.Error) as error:
        problem = first_problem(error) if isinstance(error, ValidationError) else error
        text = str(problem).removeprefix("the file: ")
        raise UsageError(f"{path}, line {line}: {text}; correct it") from None
    return rows


def _place(row: Any) -> tuple[Any, ...]:
    return row.series, row.quantity, row.x
