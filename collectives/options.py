"""Reading a backend's options."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any, TypeVar

from dlscale.models.errors import UsageError

T = TypeVar("T")


def read_options(kind: type[T], options: Mapping[str, Any], *, backend: str) -> T:
    """The dataclass `kind` filled from `options`.

    Raises UsageError for an option that it does not have or whose type differs from the default's.
    """
    known = {field.name: field.default for field in fields(kind)}  # type: ignore[arg-type]
    for name, value in options.items():
        if name not in known:
            offer = f"choose from: {', '.join(known)}" if known else "it has none"
            raise UsageError(f"backend {backend} has no option {name!r}; {offer}")
        if type(value) is not type(known[name]):
            raise UsageError(
                f"option {name} of backend {backend} is {value!r}; give a {type(known[name]).__name__}"
            )
    return kind(**options)
