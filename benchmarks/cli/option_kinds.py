"""Kinds of values that options have, checked as they are read: lists, counts, sizes, times."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import click

from dlscale.base.errors import UsageError
from dlscale.base.quantities import parse_counts, parse_seconds, split_list
from dlscale.collectives import capabilities


def _folder(text: str) -> Path:
    if not text.strip():  # which would be the working folder
        raise ValueError("the path is empty; give a folder")
    return Path(text)


def _backends(text: str) -> list[str]:
    names = split_list(text)
    for name in names:
        capabilities(name)  # raises UsageError for one that is no backend's
    return names


class Read(click.ParamType[Any]):
    """What `read` makes of a text; a malformed one is a one-line error."""

    def __init__(self, name: str, read: Callable[[str], Any]) -> None:
        self.name, self._read = name, read

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:  # noqa: ARG002
        """The value of a text. Raises UsageError."""
        try:
            return self._read(value) if isinstance(value, str) else value
        except ValueError as error:
            flag = param.opts[0] if param else self.name
            raise UsageError(f"{flag} {value}: {error}") from None


Words = partial(Read, "list", split_list)
Backends = partial(
    Read, "backends", _backends
)  # which must be known; what a study has is the verb's business
Counts = partial(Read, "counts", parse_counts)
Folder = partial(Read, "folder", _folder)  # it need not be there
Time = partial(Read, "time", parse_seconds)  # in seconds
