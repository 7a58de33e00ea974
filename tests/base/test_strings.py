"""No string that somebody else wrote reaches a path, a terminal, a page or a table as it is."""

import dataclasses
import importlib
import re
import typing
from importlib import resources
from pathlib import Path
from types import UnionType
from typing import Any

import numpy as np
import pytest
from pydantic import BaseModel, TypeAdapter, ValidationError

from dlscale.analysis.render.text import as_cell
from dlscale.base.strings import Name, visible

HOSTILE = "../a\x1b[2J\u202ecod\x00\x9b\u2028\U000e0041"
FOLDERS = ("base", "models", "collectives", "benchmarks", "analysis")


def models():
    """All models of pydantic, and its dataclasses, in the files that mention one."""
    for folder in FOLDERS:
        top = Path(str(resources.files(f"dlscale.{folder}")))
        for path in sorted(top.rglob("*.py")):
            if not re.search(
                r"\((Frozen|BaseModel|[A-Z]\w+)\):|^@checked", path.read_text("utf-8"), re.MULTILINE
            ):
                continue
            if path.name.startswith("_") and path.name != "__init__.py":
                continue
            parts = path.relative_to(top.parent).with_suffix("").parts
            module = importlib.import_module(".".join(["dlscale", *parts]).removesuffix(".__init__"))
            for item in vars(module).values():
                if isinstance(item, type) and item.__module__ == module.__name__ and _is_model(item):
                    yield item


def _is_model(item):
    return issubclass(item, BaseModel) or (
        dataclasses.is_dataclass(item) and hasattr(item, "__pydantic_validator__")
    )


def strings(annotation):
    """The types of strings within a type, each with what is declared about it."""
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if annotation in (str, Any) or (origin is typing.Annotated and arguments[0] in (str, Any)):
        yield annotation
    elif origin is typing.Annotated:
        yield from strings(arguments[0])
    elif origin not in (typing.Literal, np.ndarray) and (origin or isinstance(annotation, UnionType)):
        for argument in arguments:
            yield from strings(argument)


def is_safe(kind):
    """Whether a type refuses a hostile value, or one with such values within, or makes them visible."""
    anything = Any in (kind, *typing.get_args(kind))
    try:
        value = TypeAdapter(kind).validate_python([{HOSTILE: HOSTILE}] if anything else HOSTILE)
    except ValidationError:
        return True
    return all(map(str.isprintable, [*value[0], *value[0].values()] if anything else [value]))


def test_every_string_of_every_model_is_refused_or_made_visible():
    fields = [
        (f"{model.__module__}.{model.__qualname__}.{name}", kind)
        for model in models()
        for name, annotation in typing.get_type_hints(model, include_extras=True).items()
        if typing.get_origin(annotation) is not typing.ClassVar
        for kind in strings(annotation)
    ]
    assert len(fields) > 250  # the models are found
    unsafe = [place for place, kind in fields if not is_safe(kind)]
    assert not unsafe


@pytest.mark.parametrize(
    "name", ["..", ".hidden", "a/b", "a\\b", "../x", "", "-rf", "a b", "a\n", "é", "x" * 121, "a\u202eb"]
)
def test_what_could_leave_a_folder_is_no_name(name):
    with pytest.raises(ValidationError, match="cannot name a folder"):
        TypeAdapter(Name).validate_python(name)


def test_what_is_seen_stays_as_it_is():
    text = "réseau 模型 ελ\n\tعربي - 3 %  \u00a0"
    assert visible(text) == text
    assert visible("\x1b[31mred\r\u202e") == "\\x1b[31mred\\r\\u202e"
    assert visible("a\u200db\u3164c\u2800") == "a\\u200db\\u3164c\\u2800"


@pytest.mark.parametrize(
    "text", ["=cmd()", "+1+1", "-2-3", "@sum", "\t=1", "\r=1", "-1e5x", "  =1", "|cmd", "\uff1d1"]
)
def test_a_cell_that_a_spreadsheet_would_compute_is_text(text):
    assert as_cell(text) == f"'{text}"


@pytest.mark.parametrize("value", ["-1.5", "+3", "-1e-05", "-", "-inf", "ring", "", -2, None, 0.5, True])
def test_numbers_and_other_cells_stay(value):
    assert as_cell(value) == value
