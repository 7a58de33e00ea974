"""Options of a study: its fields that have a description, as flags, `--set`, make variables and documents know them.

An option is declared once, as a field of `Study` or of one of its tables (`TABLES`). Text becomes a value by the type
of the field, the same in a study's file and on a command line. Options of backends and algorithms and environment
variables have the names that they have everywhere: `ring.teams`, `easgd.interval`, `MPICH_ASYNC_PROGRESS`.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, get_args, get_origin

from pydantic import BaseModel, TypeAdapter, ValidationError

from dlscale.base import definitions
from dlscale.base.errors import UsageError, did_you_mean
from dlscale.base.parsing import parse_toml
from dlscale.base.quantities import split_list
from dlscale.benchmarks.study.study import (
    AXES,
    TABLES,
    TARGET_AXES,
    VARIABLE,
    VARIABLES,
    Study,
    check_variable,
    checked_values,
    place_of,
)

OWNED = re.compile(r"[a-z_0-9]+\.[A-Za-z_0-9]+")  # an option of a backend or an algorithm
# Fields whose text has several NAME=VALUE, and an example of each.
SEVERAL = {
    "backend_options": "horovod.cycle_time_ms=0.5",
    "algorithm_options": "easgd.interval=4",
    VARIABLES: "MPICH_ASYNC_PROGRESS=0|1",
    "target": "auc=0.95",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """A field that can be set."""

    name: str  # rules.max_steps
    help: str
    type: Any = field(repr=False)  # with the field's constraints
    panel: str | None = None  # of the help, where it is an everyday flag
    several: bool = False  # values between | make a curve each

    @property
    def last(self) -> str:
        """Its name without the table."""
        return self.name.rpartition(".")[2]

    @property
    def flag(self) -> str:
        """`--batch`."""
        return "--" + self.name.replace("_", "-")

    @property
    def spelling(self) -> str:
        """What a user writes: `--batch`, `--set rules.max_steps`."""
        return self.flag if self.panel else f"--set {self.name}"

    @property
    def choices(self) -> tuple[str, ...]:
        """The values that there are; empty where they are not listed."""
        return get_args(self.type) if get_origin(self.type) is Literal else ()

    @property
    def commas(self) -> bool:
        """Whether commas may stand between several values, as nothing else has them there."""
        return bool(self.choices) or self.name == "split"

    def read(self, text: str) -> dict[str, Any]:
        """{name of a field or setting: its value, or a list of its values}. Raises ValueError."""
        if not text.strip():
            raise ValueError(f"{self.last} is empty; give a value")
        if self.name == "target":
            metric, _, threshold = text.partition("=")
            try:
                return {"target.metric": metric.strip(), "target.threshold": float(threshold)}
            except ValueError:
                raise ValueError(f"{text!r} is not a target; write METRIC=THRESHOLD, e.g. auc=0.95") from None
        if self.name in SEVERAL:
            return dict(self._read_setting(word) for word in split_list(text))
        words = (text.replace(",", "|") if self.commas else text).split("|") if self.several else [text]
        values = [self._checked(word) for word in words]
        return {
            self.name: checked_values(values, what=repr(text)) if self.several and values[1:] else values[0]
        }

    def _read_setting(self, word: str) -> tuple[str, Any]:
        name, _, value = word.partition("=")
        if not (value and is_setting(name)):
            raise ValueError(f"{word!r} is not among {self.name}; write e.g. {SEVERAL[self.name]}")
        if place_of(name)[0] != self.name:
            raise ValueError(f"{name} belongs to {place_of(name)[0]}; write --set {word}")
        return name, read_setting(name, value)

    def _checked(self, text: str) -> Any:
        try:
            return TypeAdapter(self.type).validate_python(text)
        except ValidationError as error:
            problem = definitions.first_problem(error).partition(": ")[2]  # without its place
            known = {*re.findall(r"'([^']+)'", problem)} - {text}
            several = (
                f"; write several values as {text.replace(',', '|')}" if self.several and "," in text else ""
            )
            raise ValueError(f"{problem}{did_you_mean(text, known)}{several}") from None


def is_setting(name: str) -> bool:
    """Whether a name is that of an environment variable or of an option of a backend or an algorithm."""
    owned = OWNED.fullmatch(name) and name.partition(".")[0] not in TABLES
    return bool(owned or VARIABLE.fullmatch(name))


def read_setting(name: str, text: str) -> Any:
    """The value in `text`, or those between `|`; of options what is valid TOML, else a string. Raises ValueError."""
    words = text.split("|")
    if VARIABLE.fullmatch(name):
        check_variable(name)
        values: list[Any] = words
    else:
        values = [_value(word) for word in words]
    return checked_values(values, what=name) if values[1:] else values[0]


def _value(text: str) -> Any:
    try:
        value = parse_toml(f"value = {text}")["value"]
    except ValueError:
        return text
    return value if isinstance(value, str | int | float | bool) else text


def options_of(model: type[BaseModel], *, table: str = "") -> dict[str, Option]:
    """The options among a model's fields, by name."""
    axes = TARGET_AXES if table == "target" else () if table else AXES
    return {
        f"{table}.{name}" if table else name: Option(
            name=f"{table}.{name}" if table else name,
            help=info.description,
            type=Annotated[info.annotation, *info.metadata] if info.metadata else info.annotation,
            panel=(info.json_schema_extra or {}).get("panel") or None,  # type: ignore[union-attr, arg-type]
            several=name in axes,
        )
        for name, info in model.model_fields.items()
        if info.description
    }


def variables(options: Mapping[str, Option]) -> dict[str, Option]:
    """Make variable -> option: the last part of its name in capitals, or all of it where that is another's."""
    lasts = [option.last for option in options.values()]
    return {
        (name if lasts.count(option.last) > 1 else option.last).replace(".", "_").upper(): option
        for name, option in options.items()
    }


def find(name: str, options: Mapping[str, Option]) -> Option:
    """The option of that name, or of the short name that a make variable has. Raises UsageError with the nearest."""
    if option := options.get(name) or variables(options).get(name.upper()):
        return option
    known = {option.last: full for full, option in options.items()} | {full: full for full in options}
    nearest = difflib.get_close_matches(name.rpartition(".")[2], known, n=1, cutoff=0.5)
    hint = f"the nearest is {known[nearest[0]]}" if nearest else "docs/commands.md lists all fields"
    raise UsageError(f"--set {name}: a study has no field {name!r}; {hint}")


def assigned(words: Sequence[str], options: Mapping[str, Option]) -> dict[str, Any]:
    """{name of a field or a setting: its value} of words NAME=VALUE. Raises UsageError."""
    values: dict[str, Any] = {}
    for word in words:
        name, equals, text = (part.strip() for part in word.partition("="))
        if not (name and equals):
            raise UsageError(f"--set {word}: write NAME=VALUE, e.g. --set rules.max_steps=2000")
        try:
            named = text and is_setting(name)
            read = {name: read_setting(name, text)} if named else find(name, options).read(text)
        except ValueError as error:
            raise UsageError(f"--set {word}: {error}") from None
        if twice := sorted(values.keys() & read):
            raise UsageError(f"--set {twice[0]} is given twice; give it once")
        values |= read
    return values


def nested(values: Mapping[str, Any]) -> dict[str, Any]:
    """Values by name as a study's file has them, in tables."""
    fields: dict[str, Any] = {}
    for name, value in values.items():
        *tables, last = place_of(name)
        place = fields
        for table in tables:
            place = place.setdefault(table, {})
        place[last] = value
    return fields


GOAL = Option(
    name="target",
    help="METRIC=THRESHOLD that trainings must reach, e.g. auc=0.95; default: the study's.",
    type=str,
    panel="What",
)
OPTIONS: dict[str, Option] = options_of(Study) | {"target": GOAL}
OPTIONS |= {
    name: option for table, model in TABLES.items() for name, option in options_of(model, table=table).items()
}
