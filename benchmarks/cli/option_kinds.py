"""Kinds of values that options have, checked as they are read: lists, counts, sizes, times."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import click

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

    name = "text"
    read: ClassVar[Callable[[str], Any]]

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The value of a text."""
        try:
            return type(self).read(value) if isinstance(value, str) else value
        except ValueError as error:
            self.fail(str(error), param, ctx)


def _kind(name: str, read: Callable[[str], Any]) -> type[Read]:
    return type(name.title(), (Read,), {"name": name, "read": staticmethod(read)})


Words = _kind("list", split_list)
Backends = _kind("backends", _backends)  # which must be known; what a study has is the verb's business
Counts = _kind("counts", parse_counts)
Folder = _kind("folder", _folder)  # it need not be there
Time = _kind("time", parse_seconds)  # in seconds
