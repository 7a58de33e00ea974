"""Options that several verbs share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import click

from dlscale.benchmarks.backend_options import parse_backend_options
from dlscale.benchmarks.record import Setting
from dlscale.benchmarks.units import parse_counts, split_list

F = TypeVar("F", bound=Callable[..., Any])


class Words(click.ParamType[list[str]]):
    """Words separated by commas or spaces."""

    name = "list"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> list[str]:  # noqa: ARG002
        """The words of `value`."""
        return value if isinstance(value, list) else split_list(value)


class Counts(click.ParamType[list[int]]):
    """Positive counts as a list or a range."""

    name = "counts"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> list[int]:
        """The counts in `value`; a malformed one ends in one line."""
        try:
            return value if isinstance(value, list) else parse_counts(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


class BackendOptions(click.ParamType[dict[str, dict[str, Setting]]]):
    """BACKEND.OPTION=VALUE, separated by commas or spaces."""

    name = "options"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """{backend: {option: value}}; a malformed one ends in one line."""
        try:
            return value if isinstance(value, dict) else parse_backend_options(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


def results_option(command: F) -> F:
    """--results."""
    return click.option(
        "--results",
        type=click.Path(path_type=Path, file_okay=True),
        default=Path("results"),
        show_default=True,
        help="Folder of all studies' records.",
    )(command)


def json_option(command: F) -> F:
    """--json."""
    return click.option(
        "--json", "as_json", is_flag=True, help="Print JSON with stable keys instead of a table."
    )(command)


def say_given_up(cases: Sequence[str], max_attempts: int | None) -> None:
    """Which cases are not tried again."""
    if cases:
        what = f"{len(cases)} cases failed {max_attempts} times and are"
        what = what if len(cases) > 1 else f"1 case failed {max_attempts} times and is"
        click.echo(
            f"{what} left: {', '.join(cases[:3])}{' ...' * (len(cases) > 3)}; --max-attempts tries again"
        )
