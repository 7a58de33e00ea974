"""Reading the TOML files that define systems and studies."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable
from importlib import resources
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, ValidationError

from dlscale.models.errors import UsageError

M = TypeVar("M", bound=BaseModel)


def names(folder: str) -> list[str]:
    """Names that dlscale knows: the files of benchmarks/systems or benchmarks/studies without `.toml`."""
    files = resources.files("dlscale.benchmarks").joinpath(folder).iterdir()
    return sorted(file.name.removesuffix(".toml") for file in files if file.name.endswith(".toml"))


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
        path = Path(str(resources.files("dlscale.benchmarks").joinpath(folder, f"{name}.toml")))
    else:
        what = folder.rstrip("s") if folder != "studies" else "study"
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
    """The first of pydantic's complaints in one line: field, what was found, what was expected."""
    problem = error.errors()[0]
    place = ".".join(str(part) for part in problem["loc"]) or "the file"
    found = "" if problem["type"] == "missing" else f" (found {problem['input']!r})"
    return f"{place}: {problem['msg'][0].lower()}{problem['msg'][1:]}{found}"


def one_of(kind: str, asked: str, known: Iterable[str]) -> str:
    """`asked`, if it is among `known`; UsageError with the list if not."""
    choices = list(known)
    if asked not in choices:
        raise UsageError(f"no {kind} {asked!r}; choose one of: {', '.join(choices)}")
    return asked
