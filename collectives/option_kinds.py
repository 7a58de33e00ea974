"""Options of backends and of algorithms: dataclasses whose fields say which types and values they take."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from numbers import Integral, Real
from typing import Any, ClassVar, TypeVar

from dlscale.base.errors import UsageError, did_you_mean

T = TypeVar("T")


def option(default: Any, takes: Callable[[Any], bool], remedy: str) -> Any:
    """A field of `CheckedOptions` that takes only some values; `remedy` says which."""
    return field(default=default, metadata={"takes": takes, "remedy": remedy})


def at_least(least: int, default: int, *, most: int | None = None) -> Any:
    """A number's field."""
    if most is None:
        return option(default, lambda value: value >= least, f"give {least} or more")
    return option(default, lambda value: least <= value <= most, f"give {least} to {most}")


def one_of(choices: Sequence[Any], default: Any) -> Any:
    """A field with one of these values."""
    listed = ", ".join(str(choice) for choice in choices if choice != "")
    return option(default, lambda value: value in choices, f"choose from: {listed}")


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedOptions:
    """Options with values that their fields take. Raises UsageError for others, and if some do not fit together."""

    owner: ClassVar[str] = ""  # what has the options: "algorithm easgd"
    servers_update: ClassVar[bool] = False  # whether servers update weights by a rule of the algorithm

    def __post_init__(self) -> None:
        for each in fields(self):
            value = getattr(self, each.name)
            of = f" of {self.owner}" if self.owner else ""
            _check_type(value, each.default, option=f"{each.name}{of}")
            if each.metadata and not each.metadata["takes"](value):
                raise UsageError(f"option {each.name}{of} is {value!r}; {each.metadata['remedy']}")
        self.check_together()

    def check_together(self) -> None:
        """Returns if the options fit each other. Raises UsageError."""


def read_into(kind: type[T], options: Mapping[str, Any], *, owner: str) -> T:
    """The dataclass `kind` filled from `options`. Raises UsageError as `read_into_kinds`."""
    chosen: T = read_into_kinds((kind,), options, owner=owner)[0]
    return chosen


def read_options(kind: type[T], options: Mapping[str, Any], *, backend: str) -> T:
    """The options of a backend. Raises UsageError as `read_into_kinds`."""
    return read_into(kind, options, owner=f"backend {backend}")


def read_into_kinds(kinds: Sequence[type], options: Mapping[str, Any], *, owner: str) -> tuple[Any, ...]:
    """The dataclasses `kinds`, each filled with its own of `options`, which belong to `owner`: "backend ring".

    Raises UsageError for an option that none of them has or whose type differs from the default's.
    """
    own = [{each.name: each.default for each in fields(kind)} for kind in kinds]
    defaults = {name: default for of_kind in own for name, default in of_kind.items()}
    for name, value in options.items():
        if name not in defaults:
            choices = f"choose from: {', '.join(defaults)}" if defaults else "it has none"
            raise UsageError(f"{owner} has no option {name!r}{did_you_mean(name, defaults)}; {choices}")
        _check_type(value, defaults[name], option=f"{name} of {owner}")
    return tuple(
        kind(**{name: value for name, value in options.items() if name in of_kind})
        for kind, of_kind in zip(kinds, own, strict=True)
    )


_TYPES: dict[type, type] = {bool: bool, int: Integral, float: Real, str: str}
_KINDS = {bool: "true or false", int: "a whole number", float: "a number", str: "a text"}


def _check_type(value: Any, default: Any, *, option: str) -> None:
    """Returns if `value` is of the default's type, of which NumPy has more. Raises UsageError."""
    expected = type(default)
    if not isinstance(value, _TYPES[expected]) or (isinstance(value, bool) and expected is not bool):
        raise UsageError(f"option {option} is {value!r}; give {_KINDS[expected]}")
