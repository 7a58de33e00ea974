"""Options of backends and of algorithms, read into dataclasses whose defaults say which types they have."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any, TypeVar

from dlscale.base.errors import UsageError

T = TypeVar("T")


def read_into(kind: type[T], options: Mapping[str, Any], *, owner: str) -> T:
    """The dataclass `kind` filled from `options`. Raises UsageError as `read_into_kinds`."""
    chosen: T = read_into_kinds((kind,), options, owner=owner)[0]
    return chosen


def read_into_kinds(kinds: Sequence[type], options: Mapping[str, Any], *, owner: str) -> tuple[Any, ...]:
    """The dataclasses `kinds`, each filled with its own of `options`, which belong to `owner`: "backend ring".

    Raises UsageError for an option that none of them has or whose type differs from the default's.
    """
    own = [{field.name: field.default for field in fields(kind)} for kind in kinds]
    defaults = {name: default for of_kind in own for name, default in of_kind.items()}
    for name, value in options.items():
        if name not in defaults:
            choices = f"choose from: {', '.join(defaults)}" if defaults else "it has none"
            raise UsageError(f"{owner} has no option {name!r}; {choices}")
        expected = type(defaults[name])
        if type(value) is not expected and (type(value), expected) != (int, float):
            raise UsageError(f"option {name} of {owner} is {value!r}; give a {expected.__name__}")
    return tuple(
        kind(**{name: value for name, value in options.items() if name in of_kind})
        for kind, of_kind in zip(kinds, own, strict=True)
    )
