"""Standard output and error of every verb: sentences, tables, and streams that nobody reads."""

from __future__ import annotations

import io
import os
import shutil
import sys
import textwrap
from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress

import click

MIN_COLUMNS = 110  # where the output goes to a file, which has no width to keep to


def open_streams() -> None:
    """Let closed streams end in /dev/null, and characters that a stream does not have be escapes."""
    sys.stdout = sys.stdout or open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 - open until the end
    sys.stderr = sys.stderr or open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def drop_unwritten() -> None:
    """Discard what cannot be written: the interpreter would try again at its end, and complain."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            with suppress(OSError, ValueError):
                os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def say(text: str, *, err: bool = False) -> None:
    """Print a sentence. A terminal that is narrower gets it broken between words, files and pipes as it is."""
    if (sys.stderr if err else sys.stdout).isatty():
        width = shutil.get_terminal_size().columns
        text = textwrap.fill(text, width, break_long_words=False, break_on_hyphens=False)
    click.echo(text, err=err)


def show_table(columns: Sequence[str], rows: Iterable[Sequence[object]], *, words: Collection[str]) -> None:
    """Print a table, whose columns of `words` begin at the left."""
    from rich.console import Console  # half of the time that `dlscale --help` takes
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for column in columns:
        table.add_column(column, justify="left" if column in words else "right")
    for row in rows:
        table.add_row(*map(str, row))
    Console(width=None if sys.stdout.isatty() else MIN_COLUMNS, markup=False).print(table)
