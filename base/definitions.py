"""Reads the TOML files that define systems and studies; `Frozen` is the base class of all definitions.

A mistake in a definition is a `UsageError` that names the file, the field, what was expected and what was given.
"""

from __future__ import annotations

import codecs
import os
import re
from collections.abc import Iterable, Mapping
from importlib import resources
from pathlib import Path
from typing import Any, Self, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic_core import ErrorDetails

from dlscale.base.errors import UsageError, unknown
from dlscale.base.files import read_regular
from dlscale.base.parsing import parse_toml
from dlscale.base.strings import visible


class Frozen(BaseModel):
    """Checked on the way in, immutable afterwards; unknown fields are an error, and numbers that are not finite."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, defer_build=True)

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """Pydantic's copy, without values that were computed of the fields before they changed."""
        copy = super().model_copy(update=update, deep=deep)
        if update:
            kept = type(self).model_fields
            for name in [name for name in vars(copy) if name not in kept]:
                del copy.__dict__[name]
        return copy


LARGEST_BYTES = 16 << 20  # of a definition
M = TypeVar("M", bound=BaseModel)


def names(folder: str) -> list[str]:
    """The known names: the files of a folder of benchmarks without `.toml`."""
    files = resources.files("dlscale.benchmarks").joinpath(folder).iterdir()
    return sorted(file.name.removesuffix(".toml") for file in files if file.name.endswith(".toml"))


def path_of(name: str, *, folder: str) -> Path:
    """The file of a known name."""
    return Path(str(resources.files("dlscale.benchmarks").joinpath(folder, f"{name}.toml")))


def load(kind: type[M], name: str, *, folder: str) -> M:
    """The definition of that name, or in the file `name` if it ends in .toml.

    Raises UsageError for an unknown name, invalid TOML, and wrong or unknown fields.
    """
    if name.endswith(".toml"):
        path = Path(name)
        if not os.path.isfile(path):  # unlike Path's own, False also for a name that no file can have
            raise UsageError(
                f"no file {name}; give the path of a TOML file, or one of: {', '.join(names(folder))}"
            )
    elif name in names(folder):
        path = path_of(name, folder=folder)
    else:
        what = "study" if folder.endswith("studies") else folder.rstrip("s")
        raise UsageError(f"{unknown(what, name, names(folder))}, or give the path of a .toml file")
    return load_file(kind, path)


def load_file(kind: type[M], path: Path) -> M:
    """The definition in a TOML file that exists. Raises UsageError for invalid TOML, and wrong or unknown fields."""
    try:
        content = read_regular(path, limit=LARGEST_BYTES, links=True)
        if content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
            raise UsageError(f"{path} is in UTF-16, and TOML is UTF-8; save it as UTF-8")
        tables = parse_toml(content.decode("utf-8-sig"))
    except ValueError as error:
        raise UsageError(f"{path} is not valid TOML: {error}; correct that line") from None
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from None
    try:
        return kind.model_validate(tables)
    except ValidationError as error:
        lines = problems(error)
        numbered = "; ".join(f"({number}) {line}" for number, line in enumerate(lines, 1))
        raise UsageError(f"{path}: {numbered if len(lines) > 1 else lines[0]}") from None


def read_json(kind: type[M], path: Path, *, remedy: str, links: bool = False) -> M:
    """What one of our own JSON files has. Raises UsageError with the remedy where it is missing or invalid."""
    try:
        return kind.model_validate_json(read_regular(path, links=links))
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}; {remedy}") from None
    except ValidationError as error:
        raise UsageError(f"{path}: {first_problem(error)}; {remedy}") from None


def first_problem(error: ValidationError) -> str:
    """The first of `problems`."""
    return problems(error)[0]


def problems(error: ValidationError) -> list[str]:
    """Pydantic's errors, one line each: field, what was expected, what was found.

    Alternatives for a field stand on the same line, unless a field inside it is wrong, which shows the user's choice.
    """
    by_place: dict[str, list[ErrorDetails]] = {}
    for problem in error.errors():
        by_place.setdefault(_place(problem["loc"]), []).append(problem)
    return [
        f"{place or 'the file'}: {', or '.join(dict.fromkeys(map(_expected, errors)))}{_given(errors[0])}"
        for place, errors in by_place.items()
        if not place or not any(other.startswith(f"{place}.") for other in by_place)
    ]


def _place(parts: tuple[int | str, ...]) -> str:
    """A field's name without pydantic's labels for members of a union: a class, literal['...'], str."""
    marks = r"[A-Z][a-z][A-Za-z]*|[a-z-]+\[.*\]|(constrained-)?(str|int|float|bool)"
    place = ".".join(str(part) for part in parts if not re.fullmatch(marks, str(part)))
    return visible(" ".join(place.split()))  # a field that is not known may have any name


# Pydantic's kinds of errors in plain words; {...} are its own facts.
_WORDS = {
    "missing": "it is missing",
    **dict.fromkeys(("extra_forbidden", "unexpected_keyword_argument"), "there is no such field"),
    "json_invalid": "no complete JSON",
    **dict.fromkeys(("literal_error", "enum"), "{expected} is expected"),
    **dict.fromkeys(
        ("model_type", "dict_type", "model_attributes_type"),
        "a table is expected, such as {{ value = ..., source = ... }} for a fact",
    ),
    **dict.fromkeys(("list_type", "tuple_type", "set_type"), "a list is expected"),
    **dict.fromkeys(("string_type", "string_sub_type"), "a text is expected"),
    **dict.fromkeys(("int_type", "int_parsing", "int_from_float"), "a whole number is expected"),
    "int_parsing_size": "a whole number of fewer digits is expected",
    **dict.fromkeys(("float_type", "float_parsing"), "a number is expected"),
    "finite_number": "a finite number is expected",
    **dict.fromkeys(("bool_type", "bool_parsing"), "yes or no is expected"),
    "greater_than": "more than {gt:.16g} is expected",
    "greater_than_equal": "at least {ge:.16g} is expected",
    "less_than": "less than {lt:.16g} is expected",
    "less_than_equal": "at most {le:.16g} is expected",
    "too_short": "a list of at least {min_length} is expected",
    "too_long": "a list of at most {max_length} is expected",
    "string_too_short": "a text is expected",
    "string_too_long": "a text of at most {max_length} characters is expected",
    "string_pattern_mismatch": "a text of another form is expected",
    "path_type": "a path is expected",
}
_LONGEST_VALUE = 80


def _expected(problem: ErrorDetails) -> str:
    context = problem.get("ctx", {})
    if problem["type"] == "value_error":
        return str(context["error"])
    if words := _WORDS.get(problem["type"]):
        return words.format(**context)
    return problem["msg"][0].lower() + problem["msg"][1:]


def _given(problem: ErrorDetails) -> str:
    """The value in the file, if it is short and the message does not contain it."""
    if problem["type"] in ("missing", "value_error", "json_invalid") or isinstance(problem["input"], dict):
        return ""
    text = repr(problem["input"])
    return f" (found {text})" if len(text) <= _LONGEST_VALUE else ""


def one_of(kind: str, name: str, known: Iterable[str]) -> str:
    """Returns `name` if it is among `known`. Raises UsageError, which lists them, if not."""
    choices = list(known)
    if name not in choices:
        raise UsageError(unknown(kind, name, choices))
    return name


def where_given(default: Any, **constraints: Any) -> Any:
    """A field that is written only where it is not the default, so that what has nothing of it keeps its digest."""
    if isinstance(default, dict | list):  # pydantic would make a deep copy of it for every object
        constraints["default_factory"] = default.copy
    else:
        constraints["default"] = default
    return Field(exclude_if=lambda value: value == default, **constraints)
