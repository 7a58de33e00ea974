"""Options of a study: its fields that have a description, as flags, `--set`, make variables and documents know them.

An option is declared once, as a field of `Study` or of one of its tables (`TABLES`). Text becomes a value by the type
of the field, the same in a study's file and on a command line. Options of backends and algorithms and environment
variables have the names that they have everywhere: `ring.teams`, `easgd.interval`, `MPICH_ASYNC_PROGRESS`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from math import isfinite
from typing import Annotated, Any, Literal, get_args, get_origin

from pydantic import BaseModel, TypeAdapter, ValidationError

from dlscale.base import definitions
from dlscale.base.errors import UsageError, did_you_mean
from dlscale.base.quantities import split_list
from dlscale.benchmarks.study.study import AXES, OPTION_TABLES, TABLES, VARIABLE, VARIABLES, Study

# An option of a backend or an algorithm, or an environment variable.
SETTING = re.compile(rf"[a-z_0-9]+\.[A-Za-z_0-9]+|{VARIABLE.pattern}")
SEVERAL = (*OPTION_TABLES, VARIABLES)  # fields whose text has several NAME=VALUE


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

    def read(self, text: str) -> dict[str, Any]:
        """{name of a field or setting: its value, or a list of its values}. Raises ValueError."""
        if not text.strip():
            raise ValueError(f"{self.last} is empty; give a value")
        if self.name == "target":
            metric, equals, threshold = text.partition("=")
            if not equals:
                raise ValueError("write METRIC=THRESHOLD, e.g. auc=0.95")
            return {"target.metric": metric.strip(), "target.threshold": threshold.strip()}
        if self.name in SEVERAL:
            return assigned(split_list(text), {})
        kind = TypeAdapter(self.type)
        try:
            values = [kind.validate_python(word) for word in (text.split("|") if self.several else [text])]
        except ValidationError as error:
            problem = definitions.first_problem(error).partition(": ")[2]  # without its place
            hint = f"; write several values as {text.replace(',', '|')}" * (self.several and "," in text)
            choices = get_args(self.type) if get_origin(self.type) is Literal else ()
            raise ValueError(problem + did_you_mean(text, choices) + hint) from None
        return {self.name: values if values[1:] else values[0]}


def _setting(name: str, text: str) -> Any:
    """The value in `text`, or those between `|`; of options what is valid TOML and finite, else a string."""
    values: list[Any] = text.split("|")
    for place, word in enumerate([] if VARIABLE.fullmatch(name) else values):
        with suppress(ValueError):
            value = definitions.parse_tables(f"value = {word}")["value"]
            is_one = isinstance(value, str | bool | int) or (isinstance(value, float) and isfinite(value))
            values[place] = value if is_one else word
    return values if values[1:] else values[0]


def options_of(model: type[BaseModel], *, table: str = "") -> dict[str, Option]:
    """The options among a model's fields, by name."""
    options = [
        Option(
            name=f"{table}.{name}" if table else name,
            help=info.description,
            type=Annotated[info.annotation, *info.metadata] if info.metadata else info.annotation,
            panel=(info.json_schema_extra or {}).get("panel") or None,  # type: ignore[union-attr, arg-type]
            several=name in AXES,
        )
        for name, info in model.model_fields.items()
        if info.description
    ]
    return {option.name: option for option in options}


def variables(options: Mapping[str, Option]) -> dict[str, Option]:
    """Make variable -> option: the last part of its name in capitals, or all of it where that is another's."""
    lasts = [option.last for option in options.values()]
    return {
        (name if lasts.count(option.last) > 1 else option.last).replace(".", "_").upper(): option
        for name, option in options.items()
    }


def assigned(words: Sequence[str], options: Mapping[str, Option]) -> dict[str, Any]:
    """{name of a field or a setting: its value} of words NAME=VALUE; a short name is a make variable's.

    Raises UsageError.
    """
    values: dict[str, Any] = {}
    for word in words:
        name, equals, text = (part.strip() for part in word.partition("="))
        if not (name and equals):
            raise UsageError(f"--set {word}: write NAME=VALUE, e.g. --set rules.max_steps=2000")
        option = options.get(name) or variables(options).get(name.upper())
        try:
            if option:
                read = option.read(text)
            elif text and SETTING.fullmatch(name) and name.partition(".")[0] not in TABLES:
                read = {name: _setting(name, text)}
            else:
                meant = did_you_mean(name, [*options, *(option.last for option in options.values())])
                raise ValueError(f"a study has no field {name!r}{meant}; docs/commands.md lists all")
        except ValueError as error:
            raise UsageError(f"--set {word}: {error}") from None
        if twice := sorted(values.keys() & read):
            raise UsageError(f"--set {twice[0]} is given twice; give it once")
        values |= read
    return values


GOAL = Option(
    name="target",
    help="METRIC=THRESHOLD that trainings must reach, e.g. auc=0.95; default: the study's.",
    type=str,
    panel="What",
)
OPTIONS: dict[str, Option] = options_of(Study) | {"target": GOAL}
for table, model in TABLES.items():
    OPTIONS |= options_of(model, table=table)
