"""Published values and statements, read from `results/published` and checked: each has a unit and a source.

`<figure>.csv` has a row per value; `statements.csv` has statements in words, with their numbers if any. `kind` marks
numbers that were read from a plot or computed. Each quantity has a list of accepted units; computations use the
first one.
"""

from __future__ import annotations

import csv
import io
import re
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, get_args

from pydantic import (
    AfterValidator,
    ConfigDict,
    Field,
    PositiveInt,
    StringConstraints,
    ValidationError,
    model_validator,
)

from dlscale.base.definitions import Frozen, first_problem
from dlscale.base.errors import UsageError
from dlscale.base.files import read_regular
from dlscale.base.strings import Text, visible

FOLDER = Path(__file__).resolve().parents[2] / "results" / "published"
STATEMENTS = "statements.csv"
Kind = Literal["text", "table", "source code", "read off a figure", "derived"]
KINDS = get_args(Kind)

_RATE = {"images/s": 1.0, "samples/s": 1.0}
_RATIO = {"1": 1.0, "%": 0.01}
_TIME = {"s": 1.0, "ms": 1e-3, "min": 60.0, "h": 3600.0}
_SAMPLES = {"samples": 1.0, "K samples": 1024.0}
_COUNT = {"1": 1.0}

# Unit -> factor to the quantity's base unit. `K samples` as papers print 8K for 8192.
UNITS: dict[str, dict[str, float]] = {
    **dict.fromkeys(("throughput", "throughput_per_device"), _RATE),
    **dict.fromkeys(("speed_up", "relative_throughput", "relative_time", "training_loss"), _COUNT),
    **dict.fromkeys(("ams", "p_value", "compression", "statements_added", "settings_faster"), _COUNT),
    **dict.fromkeys(("efficiency", "top1_accuracy", "top1_error", "accuracy"), _RATIO),
    **dict.fromkeys(("signal_efficiency", "background_rejection"), _RATIO),
    **dict.fromkeys(("seconds_per_sample", "seconds_per_step", "seconds_per_epoch"), _TIME),
    "time_to_solution": _TIME,
    **dict.fromkeys(("global_batch", "local_batch"), _SAMPLES),
    "images_per_epoch": {"images": 1.0},
    "gradient_bytes": {"MB": 1e6},
    "flop_rate": {"TFLOP/s": 1e12, "PFLOP/s": 1e15},
}
HALF_WIDTH = "_half_width"  # ends the name of an uncertainty: `throughput_half_width`
RATIOS = ("speed_up", "efficiency")  # quantities that are 1 at a figure's base

# Statements about places on the x axis: where scaling is linear, where it ends, what was run.
PLACES = ("linear", "scaling_ends", "sweep")
X_UNITS = ("nodes", "GPUs", "devices", "processes", "machines", "images", "epochs", "s")


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


Filled = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1), AfterValidator(visible)]


class _Public(Frozen):
    """Common fields of values and statements."""

    model_config = ConfigDict(populate_by_name=True)

    figure: Filled
    series: Text
    quantity: Text
    kind: Kind
    source: Filled
    note: Text

    @property
    def about(self) -> bool:
        """Whether the publication itself calls the number approximate."""
        return self.note.startswith("about") or self.note.endswith("; about")

    @model_validator(mode="after")
    def _check_derived(self) -> _Public:
        if self.kind == "derived" and "formula" not in self.note and " = " not in self.note:
            raise ValueError("a derived value has its formula in the note")
        return self


class Value(_Public):
    """One published number. `printed` is the number as published, which determines its rounding."""

    x: float | None  # None: not given in the publication
    x_unit: Text
    printed: Text = Field(alias="y")
    y_unit: Text
    workload: Text
    framework: Text
    backend: Text
    system: Text
    devices_per_node: PositiveInt | None

    @model_validator(mode="after")
    def _check_units(self) -> Value:
        if not self.series:
            raise ValueError("series: missing; a value belongs to a series")
        factor(self.quantity, self.y_unit)
        if not re.fullmatch(r"\d+(\.\d+)?", self.printed):
            raise ValueError(
                f"y is {self.printed or 'empty'!r}; give the number with the digits that are printed"
            )
        if self.x is not None:
            check_x_unit(self.x_unit)
        return self

    @property
    def y(self) -> float:
        """The value in the quantity's base unit."""
        return float(self.printed) * factor(self.quantity, self.y_unit)

    @property
    def rounding(self) -> float:
        """The rounding error of `y`: half a unit of the last printed digit."""
        decimals = len(self.printed.partition(".")[2])
        return 0.5 * 10.0**-decimals * factor(self.quantity, self.y_unit)

    @property
    def ends(self) -> tuple[float, float]:
        """The lowest and highest number that is printed like this one."""
        return self.y - self.rounding, self.y + self.rounding


class Statement(_Public):
    """A statement of a publication in words. `low` and `high` are None without such a bound or number."""

    statement: Text
    label: Text  # a short form for figures
    low: float | None
    high: float | None
    unit: Text
    x_low: float | None
    x_high: float | None
    x_unit: Text

    @model_validator(mode="after")
    def _check_units(self) -> Statement:
        if not self.statement:
            raise ValueError("missing; say in words what is public")
        numbers = (self.low, self.high)
        if any(number is not None for number in numbers):
            factor(self.quantity, self.unit)
        elif self.quantity and self.quantity not in PLACES:
            raise ValueError(f"{self.quantity} without a number; give low or high")
        if (self.x_low is None) != (self.x_high is None):
            raise ValueError("x_low without x_high; give both, equal for one place")
        if self.x_low is not None:
            check_x_unit(self.x_unit)
        for low, high in (numbers, (self.x_low, self.x_high)):
            if low is not None and high is not None and low > high:
                raise ValueError(f"low {low} above high {high}")
        return self

    @property
    def ends(self) -> tuple[float | None, float | None]:
        """`low` and `high` in the quantity's base unit."""
        known = self.low is not None or self.high is not None
        scale = factor(self.quantity, self.unit) if known else 1.0
        low, high = (None if end is None else end * scale for end in (self.low, self.high))
        return low, high


Row = TypeVar("Row", Value, Statement)


def read_values(folder: Path = FOLDER) -> dict[str, tuple[Value, ...]]:
    """The values of each figure, from its CSV. Raises UsageError with file and line."""
    paths = sorted(path for path in folder.glob("*.csv") if path.name != STATEMENTS)
    values = {path.stem: _rows(path, Value) for path in paths}
    for path in paths:
        _check_file(path, values[path.stem])
    return values


def read_statements(folder: Path = FOLDER) -> tuple[Statement, ...]:
    """All statements, in the file's order. Raises UsageError with file and line."""
    path = folder / STATEMENTS
    return _rows(path, Statement) if path.exists() else ()


def _rows(path: Path, model: type[Row]) -> tuple[Row, ...]:
    """The rows of a file; an empty cell is None unless the field is text."""
    columns = {field.alias or name: field for name, field in model.model_fields.items()}
    rows: list[Row] = []
    try:
        reader = csv.DictReader(io.StringIO(read_regular(path, links=True).decode(), newline=""))
        if sorted(reader.fieldnames or ()) != sorted(columns):
            found = str(reader.fieldnames)[:400]
            raise UsageError(f"{path}, line 1: columns {found}; expected {', '.join(columns)}")
        for row in reader:
            if None in row or None in row.values():
                raise UsageError(f"{path}, line {reader.line_num}: not {len(columns)} cells; correct it")
            cells: dict[str, Any] = {
                name: None if text == "" and columns[name].annotation is not str else text
                for name, text in row.items()
            }
            rows.append(model.model_validate(cells))
    except ValidationError as error:
        problem = first_problem(error).removeprefix("the file: ")
        raise UsageError(f"{path}, line {reader.line_num}: {problem}; correct it") from None
    except csv.Error as error:
        raise UsageError(f"{path}, line {reader.line_num}: {error}; correct it") from None
    except (OSError, ValueError) as error:
        raise UsageError(f"{path} cannot be read ({error}); correct it") from None
    return tuple(rows)


def _check_file(path: Path, rows: tuple[Value, ...]) -> None:
    """Raise UsageError if a row belongs to another figure, is duplicated, or is a half width without a value."""
    seen: dict[tuple[str, str, float | None], int] = {}
    for line, row in enumerate(rows, start=2):
        if row.figure != path.stem:
            raise UsageError(
                f"{path}, line {line}: figure {row.figure!r} in the file of {path.stem!r}; correct it"
            )
        key = (row.series, row.quantity, row.x)
        if key in seen:
            raise UsageError(f"{path}, line {line}: {key} stands in line {seen[key]} already; correct it")
        seen[key] = line
    for (series, quantity, x), line in seen.items():
        if quantity.endswith(HALF_WIDTH) and (series, quantity.removesuffix(HALF_WIDTH), x) not in seen:
            raise UsageError(f"{path}, line {line}: {quantity} of {series} at {x} has no value to belong to")
