"""Kinds of values that options have, checked as they are read: lists, counts, sizes, times."""

from __future__ import annotations

from typing import Any

import click

from dlscale.analysis.form import parse_width
from dlscale.base.quantities import parse_counts, parse_seconds, split_list
from dlscale.benchmarks.records.record import Setting
from dlscale.benchmarks.study.axes import read_options
from dlscale.collectives import capabilities


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


class BackendOptions(click.ParamType[dict[str, dict[str, Setting]]]):
    """BACKEND.OPTION=VALUE, separated by commas or spaces."""

    name = "options"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """{backend: {option: value}}; a malformed one is a one-line error."""
        try:
            return value if isinstance(value, dict) else read_options(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


class Time(click.ParamType[float]):
    """A duration such as 90s, 4min or 1h, in seconds."""

    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """The seconds in `value`; a malformed one is a one-line error."""
        try:
            return value if isinstance(value, float) else parse_seconds(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)
