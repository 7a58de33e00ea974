"""Reads the TOML files that define systems and studies; `Frozen` is the base of all that is read from a file.

A mistake in a definition is a `UsageError` that names the file, the field, what was expected and what was given.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable
from importlib import resources
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic_core import ErrorDetails

from dlscale.base.errors import UsageError


class Frozen(BaseModel):
    """Checked on the way in, immutable afterwards; unknown fields are an error."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=True)


M = TypeVar("M", bound=BaseModel)


def names(folder: str) -> list[str]:
    """Names that dlscale knows: the files of benchmarks/systems or benchmarks/studies without `.toml`."""
    files = resources.files("dlscale.benchmarks").joinpath(folder).iterdir()
    return sorted(file.name.removesuffix(".toml") for file in files if file.name.endswith(".toml"))


def path_of(name: str, *, folder: str) -> Path:
    """The file of one of `names`."""
    return Path(str(resources.files("dlscale.benchmarks").joinpath(folder, f"{name}.toml")))


def load(kind: type[M], name: str, *, folder: str) -> M:
    """The definition of that name, or in the file `name` if it ends in .toml.

    Raises UsageError for an unknown name and for a file that is not valid TOML or has wrong or unknown fields.
    """
    if name.endswith(".toml"):
        path = Path(name)
        if not path.is_file():
            raise UsageError(
                f"no file {name}; give the path of a TOML file, or one of: {', '.join(names(folder))}"
            )
    elif name in names(folder):
        path = path_of(name, folder=folder)
    else:
        what = "study" if folder.endswith("studies") else folder.rstrip("s")
        raise UsageError(
            f"no {what} {name!r}; choose one of: {', '.join(names(folder))}, or give the path of a .toml file"
        )
    try:
        return kind.model_validate(tomllib.loads(path.read_text(encoding="utf-8")))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} is not valid TOML: {error}; correct that line") from None
    except ValidationError as error:
        raise UsageError(f"{path}: {first_problem(error)}") from None


def first_problem(error: ValidationError) -> str:
    """The first of `problems`."""
    return problems(error)[0]


def problems(error: ValidationError) -> list[str]:
    """Pydantic's complaints, one line each: field, what was expected, what was found.

    What a field could have been instead stands in the same line, and is left out where the user's choice is clear
    because something inside it is wrong.
    """
    by_place: dict[str, list[ErrorDetails]] = {}
    for problem in error.errors():
        by_place.setdefault(_place(problem["loc"]), []).append(problem)
    return [
        f"{place or 'the file'}: {', or '.join(dict.fromkeys(map(_expected, found)))}{_given(found[0])}"
        for place, found in by_place.items()
        if not place or not any(other.startswith(f"{place}.") for other in by_place)
    ]


def _place(parts: tuple[int | str, ...]) -> str:
    """A field's name without pydantic's marks for members of a union: a class, literal['...'], str."""
    marks = r"[A-Z][a-z][A-Za-z]*|[a-z-]+\[.*\]|str|int|float|bool"
    return ".".join(str(part) for part in parts if not re.fullmatch(marks, str(part)))


def _expected(problem: ErrorDetails) -> str:
    if problem["type"] == "value_error":
        return str(problem["ctx"]["error"])
    if problem["type"] in ("model_type", "dict_type"):
        return "a table is expected, such as { value = ..., source = ... } for a fact"
    return problem["msg"][0].lower() + problem["msg"][1:]


def _given(problem: ErrorDetails) -> str:
    """What stands in the file, where the complaint does not say it and it is short."""
    if problem["type"] in ("missing", "value_error") or isinstance(problem["input"], dict):
        return ""
    return f" (found {problem['input']!r})"


def one_of(kind: str, asked: str, known: Iterable[str]) -> str:
    """`asked`, if it is among `known`; UsageError with the list if not."""
    choices = list(known)
    if asked not in choices:
        raise UsageError(f"no {kind} {asked!r}; choose one of: {', '.join(choices)}")
    return asked
