"""Reads the TOML files that define systems and studies; `Frozen` is the base class of all definitions.

A mistake in a definition is a `UsageError` that names the file, the field, what was expected and what was given.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Iterable, Mapping
from importlib import resources
from pathlib import Path
from typing import Any, Self, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic_core import ErrorDetails

from dlscale.base.errors import UsageError, unknown
from dlscale.base.files import read_regular
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
LARGEST_INTEGER = 2**64
DEEPEST = 64  # tables in tables
M = TypeVar("M", bound=BaseModel)


def parse_tables(text: Any, parse: Callable[[Any], Any] = tomllib.loads) -> dict[str, Any]:
    """The tables of a TOML text, or the object of JSON with `parse=json.loads`.

    Raises ValueError for whatever is wrong. The parsers alone raise RecursionError too, and pass on what ends with a
    traceback where a program uses it: deep tables, integers that no float can hold, halves of characters.
    """
    try:
        tables = parse(text)
        within = [(tables, 0)]
        while within:
            value, depth = within.pop()
            if depth > DEEPEST:
                raise RecursionError
            if isinstance(value, str):
                value.encode()
            elif isinstance(value, int) and abs(value) > LARGEST_INTEGER:
                raise ValueError(f"an integer is larger than {LARGEST_INTEGER}")
            elif isinstance(value, dict | list):
                items = [*value, *value.values()] if isinstance(value, dict) else value
                within += [(item, depth + 1) for item in items]
    except RecursionError:
        raise ValueError("tables or lists are nested too deep") from None
    if not isinstance(tables, dict):
        raise ValueError(f"a table was expected, not {type(tables).__name__}")
    return tables


def names(folder: str) -> dict[str, Path]:
    """The known names, in order, and their files: those of a folder of benchmarks that end in `.toml`."""
    files = resources.files("dlscale.benchmarks").joinpath(folder).iterdir()
    paths = [Path(str(file)) for file in files if file.name.endswith(".toml")]
    return dict(sorted((path.stem, path) for path in paths))


def load(kind: type[M], name: str, *, folder: str = "") -> M:
    """The definition of that name in a folder, or in the file `name` if it ends in .toml.

    Raises UsageError for an unknown name, invalid TOML, and wrong or unknown fields.
    """
    path = Path(name)
    if not name.endswith(".toml"):
        path = Path(str(resources.files("dlscale.benchmarks").joinpath(folder, f"{path.name}.toml")))
        if path.stem != name or not path.is_file():
            what = "study" if folder.endswith("studies") else folder.rstrip("s")
            raise UsageError(f"{unknown(what, name, names(folder))}, or give the path of a .toml file")
    try:
        tables = parse_tables(read_regular(path, limit=LARGEST_BYTES, links=True).decode("utf-8-sig"))
    except ValueError as error:
        raise UsageError(f"{path} is not valid TOML: {error}; correct that") from None
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
        # Without pydantic's labels for members of a union: a class, literal['...'], str.
        marks = r"[A-Z][a-z][A-Za-z]*|[a-z-]+\[.*\]|(constrained-)?(str|int|float|bool)"
        place = ".".join(str(part) for part in problem["loc"] if not re.fullmatch(marks, str(part)))
        # A field that is not known may have any name.
        by_place.setdefault(visible(" ".join(place.split())), []).append(problem)
    lines = []
    for place, errors in by_place.items():
        if place and any(other.startswith(f"{place}.") for other in by_place):
            continue
        own = [problem["type"] == "value_error" for problem in errors]  # ours, which say what was found
        texts = [
            str(problem["ctx"]["error"]) if is_own else problem["msg"][0].lower() + problem["msg"][1:]
            for problem, is_own in zip(errors, own, strict=True)
        ]
        found = repr(errors[0]["input"])
        told = (
            own[0] or errors[0]["type"] in ("missing", "json_invalid") or found[0] == "{" or len(found) > 80
        )
        lines.append(
            f"{place or 'the file'}: {', or '.join(dict.fromkeys(texts))}" + f" (found {found})" * (not told)
        )
    return lines


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
