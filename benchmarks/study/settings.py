"""Options of a study: its fields that have a description, as flags, `--set`, make variables and documents know them.

An option is declared once, as a field of `Study` or of one of its tables (`TABLES`). Text becomes a value by the type
of the field, the same in a study's file and on a command line.
"""

from __future__ import annotations

import difflib
import types
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel, TypeAdapter, ValidationError
from pydantic.fields import FieldInfo

from dlscale.base import definitions
from dlscale.base.errors import UsageError, did_you_mean
from dlscale.benchmarks.study.axes import (
    FIELDS,
    TARGET_FIELDS,
    VARIABLES,
    checked_values,
    path_of,
    read_options,
    read_values,
    read_variables,
)
from dlscale.benchmarks.study.study import TABLES, Study
from dlscale.collectives import NAMES as BACKENDS
from dlscale.collectives.algorithms.registry import NAMES as ALGORITHMS


def _options(
    table: str, own_names: Collection[str], others: Collection[str]
) -> Callable[[str], dict[str, Any]]:
    """Reads the options of backends, or of algorithms, which are not given to each other."""

    def read(text: str) -> dict[str, Any]:
        own = read_options(text)
        if wrong := [owner for owner in own if owner in others and owner not in own_names]:
            raise ValueError(f"{wrong[0]} belongs to {table}; write --set {table}={text}")
        return {f"{owner}.{option}": value for owner in own for option, value in own[owner].items()}

    return read


def _goal(text: str) -> dict[str, Any]:
    metric, _, number = text.partition("=")
    try:
        return {"target.metric": metric.strip(), "target.threshold": float(number)}
    except ValueError:
        raise ValueError(f"{text!r} is not a target; write METRIC=THRESHOLD, e.g. auc=0.95") from None


# Fields whose text names several values: what comes out is {name: value}.
SEVERAL = {
    "backend_options": _options("algorithm_options", BACKENDS, ALGORITHMS),
    "algorithm_options": _options("backend_options", ALGORITHMS, BACKENDS),
    VARIABLES: read_variables,
    "target": _goal,
}
FORMS = {
    "backend_options": "BACKEND.OPTION=VALUE,...",
    "algorithm_options": "ALGORITHM.OPTION=VALUE,...",
    "environment_variables": "NAME=VALUE,...",
    "target": "METRIC=THRESHOLD",
    "results": "a folder",
    "compute": "real, sleep:FORWARD,BACKWARD or profile:STUDY",
}


# Of pydantic: what these say a field's form says, too.
FORM_ERRORS = {
    "literal_error",
    "enum",
    "int_parsing",
    "float_parsing",
    "bool_parsing",
    "list_type",
    "too_short",
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
    def form(self) -> str:
        """What a value is: `a whole number`."""
        several = (" or several with commas" if self._commas else " or several between |") * self.several
        return FORMS.get(self.name) or f"{_form(self.type)}{several}"

    @property
    def _commas(self) -> bool:
        """Whether commas may stand between several values, as nothing else has them there."""
        return get_origin(self.type) is Literal or self.name == "split"

    def read(self, text: str) -> Any:
        """The value in `text`; those of the fields in `SEVERAL` by their names. Raises ValueError."""
        if self.name in SEVERAL:
            return SEVERAL[self.name](text)
        words = (text.replace(",", "|") if self._commas else text).split("|")
        if self.several and len(words) > 1:
            checked_values(words, what=repr(text))
            return [self._checked(word) for word in words]
        return self._checked(text)

    def _checked(self, text: str) -> Any:
        try:
            value = TypeAdapter(self.type).validate_python(text)
        except ValidationError as error:
            kinds = {problem["type"] for problem in error.errors()}
            if not text.strip() or kinds <= FORM_ERRORS:
                words = map(str, get_args(self.type)) if get_origin(self.type) is Literal else ()
                raise ValueError(f"{self.last} is {self.form}{did_you_mean(text, words)}") from None
            problem, *_ = definitions.first_problem(error).removeprefix("the file: ").partition(" (found ")
            raise ValueError(f"{problem}; {self.last} is {self.form}") from None
        if isinstance(value, Path) and not text.strip():  # which would be the working folder
            raise ValueError(f"{self.last} is {self.form}")
        return value


def options_of(model: type[BaseModel], *, table: str = "") -> dict[str, Option]:
    """The options among a model's fields, by name."""
    found = {}
    for name, info in model.model_fields.items():
        if not info.description:
            continue
        extra = info.json_schema_extra if isinstance(info.json_schema_extra, dict) else {}
        full = f"{table}.{name}" if table else name
        panel = extra.get("panel")
        found[full] = Option(
            name=full,
            help=info.description,
            type=_constrained(info),
            panel=panel if isinstance(panel, str) else None,
            several=name in (TARGET_FIELDS if table == "target" else () if table else FIELDS),
        )
    return found


def variables(options: Mapping[str, Option]) -> dict[str, Option]:
    """Make variable -> option: the last part of its name in capitals, or all of it where that is another's."""
    lasts = [option.last for option in options.values()]
    return {
        (option.last if "." not in option.name or lasts.count(option.last) == 1 else option.name.replace(".", "_"))
        .upper(): option
        for option in options.values()
    }  # fmt: skip


def find(name: str, options: Mapping[str, Option]) -> Option:
    """The option of that name, or of the short name that a make variable has. Raises UsageError with the nearest."""
    if option := options.get(name) or variables(options).get(name.upper()):
        return option
    known = {option.last: full for full, option in options.items()} | {full: full for full in options}
    nearest = difflib.get_close_matches(name.rpartition(".")[2], known, n=1, cutoff=0.5)
    hint = f"the nearest is {known[nearest[0]]}" if nearest else "docs/commands.md lists all fields"
    raise UsageError(f"--set {name}: a study has no field {name!r}; {hint}")


def assigned(words: Sequence[str], options: Mapping[str, Option]) -> dict[str, Any]:
    """{name of an option or a setting: its value} of words NAME=VALUE.

    Settings that are no field have the names that they have everywhere: BACKEND.OPTION, ALGORITHM.OPTION and an
    environment variable in capitals. Raises UsageError.
    """
    values: dict[str, Any] = {}
    for word in words:
        name, equals, text = (part.strip() for part in word.partition("="))
        if not (name and equals):
            raise UsageError(f"--set {word}: write NAME=VALUE, e.g. --set rules.max_steps=2000")
        try:
            found = _setting(name, text) or by_name(find(name, options), text)
        except ValueError as error:
            raise UsageError(f"--set {word}: {error}") from None
        if twice := sorted(values.keys() & found):
            raise UsageError(f"--set {twice[0]} is given twice; give it once")
        values |= found
    return values


def by_name(option: Option, text: str) -> dict[str, Any]:
    """{name: value} of an option's text. Raises ValueError."""
    value = option.read(text)
    return value if option.name in SEVERAL else {option.name: value}


def _setting(name: str, text: str) -> dict[str, Any]:
    """{name: value} for a backend's or algorithm's option, or an environment variable; else nothing."""
    if name.isupper():
        return read_variables(f"{name}={text}") if text else {}
    owner, dot, _ = name.partition(".")
    if not (dot and text) or owner in TABLES:
        return {}
    try:
        path_of(name)
    except ValueError:
        return {}
    return {name: read_values(text)}


def nested(values: Mapping[str, Any]) -> dict[str, Any]:
    """Values by name as a study's file has them, in tables. Raises ValueError for what is neither field nor setting."""
    fields: dict[str, Any] = {}
    for name, value in values.items():
        of_table = name in OPTIONS or name.partition(".")[0] in TABLES
        *tables, last = name.split(".") if of_table else path_of(name)
        place = fields
        for table in tables:
            place = place.setdefault(table, {})
        place[last] = value
    return fields


def _constrained(info: FieldInfo) -> Any:
    """The type of a field with its constraints."""
    return Annotated[info.annotation, *info.metadata] if info.metadata else info.annotation


_NAMES = {bool: "yes or no", int: "a whole number", float: "a number", str: "a text"}


def _form(kind: Any) -> str:
    """A type in words."""
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is Annotated:
        reads = any(getattr(part, "func", None) is not None for part in arguments[1:])
        if reads and arguments[0] is float:
            return "a time such as 240s, 4min or 1h"
        return _form(arguments[0])
    if origin in (Union, types.UnionType):
        return " or ".join(dict.fromkeys(_form(part) for part in arguments if part is not type(None)))
    if origin is Literal:
        return f"one of {', '.join(map(str, arguments))}" if len(arguments) > 1 else str(arguments[0])
    if origin is list:
        inner = _form(arguments[0])
        counts = inner == _NAMES[int]
        choices = f": {inner}" * (inner != _NAMES[str])
        return "counts such as 1,2,4 or 1:64:x2" if counts else f"a list with commas{choices}"
    return _NAMES.get(kind) or "a file"


GOAL = Option(
    name="target",
    help="METRIC=THRESHOLD that trainings must reach, e.g. auc=0.95; default: the study's.",
    type=str,
    panel="What",
)
OPTIONS: dict[str, Option] = {
    **options_of(Study),
    "target": GOAL,
    **{
        name: option
        for table, model in TABLES.items()
        for name, option in options_of(model, table=table).items()
    },
}
