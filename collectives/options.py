"""Reading a backend's options."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any, TypeVar

from dlscale.models.errors import UsageError

T = TypeVar("T")
U = TypeVar("U")


def read_options(kind: type[T], options: Mapping[str, Any], *, backend: str) -> T:
    """The dataclass `kind` filled from `options`.

    Raises UsageError for an option that it does not have or whose type differs from the default's.
    """
    _check(_defaults(kind), options, backend=backend)
    return kind(**options)


def check_kinds(kinds: Sequence[type], options: Mapping[str, Any], *, backend: str) -> None:
    """Returns if `options` are of the dataclasses `kinds` together, and each takes its own. Raises UsageError."""
    _check(
        {name: value for kind in kinds for name, value in _defaults(kind).items()}, options, backend=backend
    )
    for kind in kinds:
        own = _defaults(kind)
        kind(**{name: value for name, value in options.items() if name in own})


def read_two(first: type[T], second: type[U], options: Mapping[str, Any], *, backend: str) -> tuple[T, U]:
    """As `read_options`, where the backend's options are those of two dataclasses."""
    own = _defaults(first)
    _check({**own, **_defaults(second)}, options, backend=backend)
    return (
        first(**{name: value for name, value in options.items() if name in own}),
        second(**{name: value for name, value in options.items() if name not in own}),
    )


def _defaults(kind: type) -> dict[str, Any]:
    return {field.name: field.default for field in fields(kind)}


def _check(known: Mapping[str, Any], options: Mapping[str, Any], *, backend: str) -> None:
    for name, value in options.items():
        if name not in known:
            offer = f"choose from: {', '.join(known)}" if known else "it has none"
            raise UsageError(f"backend {backend} has no option {name!r}; {offer}")
        if type(value) is int and type(known[name]) is float:
            continue
        if type(value) is not type(known[name]):
            raise UsageError(
                f"option {name} of backend {backend} is {value!r}; give a {type(known[name]).__name__}"
            )
