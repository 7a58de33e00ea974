"""Kinds of values that options have, checked as they are read: lists, counts, several values of a setting, a target."""

from __future__ import annotations

from typing import Any, NamedTuple

import click

from dlscale.analysis.figures.form import parse_width
from dlscale.base.quantities import parse_counts, split_list
from dlscale.benchmarks.records.record import Setting
from dlscale.benchmarks.study.axes import checked_values, read_variables
from dlscale.benchmarks.study.owned_options import parse_algorithm_options, parse_backend_options
from dlscale.collectives import capabilities
from dlscale.models.slept import Slept, read_slept


class Words(click.ParamType[list[str]]):
    """Words separated by commas or spaces."""

    name = "list"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> list[str]:  # noqa: ARG002
        """The words of `value`."""
        return value if isinstance(value, list) else split_list(value)


class Backends(Words):
    """Names of backends, which must be known; what a study has is the verb's business."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> list[str]:
        """The names in `value`. Raises UsageError for one that is no backend's."""
        names = super().convert(value, param, ctx)
        for name in names:
            capabilities(name)
        return names


class Counts(click.ParamType[list[int]]):
    """Positive counts as a list or a range."""

    name = "counts"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> list[int]:
        """The counts in `value`; a malformed one is a one-line error."""
        try:
            return value if isinstance(value, list) else parse_counts(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


class Width(click.ParamType[float]):
    """The width of a printed figure, in inches."""

    name = "width"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """The inches in `value`; a malformed width is a one-line error."""
        try:
            return value if isinstance(value, float) else parse_width(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


class Several(click.ParamType[Any]):
    """One value, or several between `|`, each a curve of its own."""

    name = "values"

    def __init__(self, kind: click.ParamType[Any]) -> None:
        self._kind = kind

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The value, or the list of values; a malformed one is a one-line error."""
        if not isinstance(value, str) or "|" not in value:
            return self._kind.convert(value, param, ctx)
        words = value.split("|")
        try:
            checked_values(words, what=repr(value))
        except ValueError as error:
            self.fail(str(error), param, ctx)
        return [self._kind.convert(word, param, ctx) for word in words]


class Variables(click.ParamType[dict[str, Any]]):
    """NAME=VALUE of environment variables, separated by commas or spaces."""

    name = "variables"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """{variable: value or values}; a malformed one is a one-line error."""
        try:
            return value if isinstance(value, dict) else read_variables(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


class BackendOptions(click.ParamType[dict[str, dict[str, Setting]]]):
    """BACKEND.OPTION=VALUE, separated by commas or spaces."""

    name = "options"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """{backend: {option: value}}; a malformed one is a one-line error."""
        try:
            return value if isinstance(value, dict) else parse_backend_options(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


class AlgorithmOptions(click.ParamType[dict[str, dict[str, Setting]]]):
    """ALGORITHM.OPTION=VALUE, separated by commas or spaces."""

    name = "options"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """{algorithm: {option: value}}; a malformed one is a one-line error."""
        try:
            return value if isinstance(value, dict) else parse_algorithm_options(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


class ByProfile(NamedTuple):
    """Sleep by a profile: of a study, or a stored one, of a system or without a name the only one."""

    name: str

    @property
    def option(self) -> str:
        """The option, as it was given."""
        return f"--compute profile{':' * bool(self.name)}{self.name}"


class Compute(click.ParamType[Slept | ByProfile | None]):
    """`real`, `sleep:FORWARD,BACKWARD`, `profile` or `profile:STUDY`."""

    name = "computation"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> Slept | ByProfile | None:
        """What replaces computation; a malformed value is a one-line error."""
        if isinstance(value, str) and value.partition(":")[0] == "profile":
            return ByProfile(value.partition(":")[2])
        try:
            return read_slept(value) if isinstance(value, str) else value
        except ValueError as error:
            self.fail(str(error), param, ctx)


class Goal(click.ParamType[dict[str, str | float]]):
    """METRIC=THRESHOLD."""

    name = "target"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The fields of a study's target; a malformed one is a one-line error."""
        if isinstance(value, dict):
            return value
        metric, _, number = value.partition("=")
        try:
            return {"metric": metric.strip(), "threshold": float(number)}
        except ValueError:
            self.fail(f"{value!r} is not a target; write METRIC=THRESHOLD, e.g. auc=0.95", param, ctx)
