"""Standard output and error of every verb: clean text, a full disk or a closed pipe in one line and an exit status.

Text of records, files and options may come from somebody else: control characters in it would move the cursor, hide
lines or rename the window.
"""

from __future__ import annotations

import errno
import io
import os
import shutil
import sys
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, TextIO, cast

import click

from dlscale.base.errors import UsageError
from dlscale.base.strings import visible_but_colours

if TYPE_CHECKING:
    from rich.console import Console


class ReaderGoneError(Exception):
    """The reader of standard output or error has closed it. Not an OSError: click would exit with 1 for one."""


class CleanStream:
    """A stream of text that passes on nothing that would steer a terminal."""

    def __init__(self, stream: TextIO) -> None:
        self.stream = stream

    def write(self, text: str) -> int:
        """Write `text`, cleaned. Raises UsageError if that fails, ReaderGoneError if nobody reads."""
        with _as_usage_error():
            return self.stream.write(visible_but_colours(text))

    def flush(self) -> None:
        """Write what is buffered. Raises as `write`."""
        with _as_usage_error():
            self.stream.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


@contextmanager
def clean_streams() -> Iterator[None]:
    """Inside, standard output and error are clean.

    Raises UsageError if standard output is closed or cannot be written, ReaderGoneError if its reader has gone.
    """
    output, error = sys.stdout, sys.stderr
    if error is None:
        sys.stderr = error = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 - open until the end
    if output is None:
        raise UsageError("standard output is closed; send it to a file, or to /dev/null")
    for stream in (output, error):
        if isinstance(stream, io.TextIOWrapper):  # half a character, or a terminal without Unicode
            stream.reconfigure(errors="backslashreplace")
    sys.stdout, sys.stderr = cast("TextIO", CleanStream(output)), cast("TextIO", CleanStream(error))
    try:
        yield
        sys.stdout.flush()
    except (OSError, UsageError, ReaderGoneError):
        _drop_the_rest(output)
        raise
    finally:
        sys.stdout, sys.stderr = output, error


def say(text: str, *, err: bool = False) -> None:
    """Print sentences. A terminal that is narrower gets them broken between words, files and pipes as they are."""
    if (sys.stderr if err else sys.stdout).isatty():
        width = shutil.get_terminal_size().columns
        text = textwrap.fill(
            text, width, break_long_words=False, break_on_hyphens=False, subsequent_indent="  "
        )
    click.echo(text, err=err)


def live_console(*, stderr: bool = False) -> Console:
    """A console for lines that are drawn again; a dumb terminal, which cannot move the cursor, counts as none.

    What else is printed on it must be `visible`.
    """
    from rich.console import Console  # half of the time that `dlscale --help` takes

    stream = sys.stderr if stderr else sys.stdout
    file = stream.stream if isinstance(stream, CleanStream) and stream.isatty() else stream
    console = Console(file=file)
    return Console(file=file, force_terminal=False) if console.is_dumb_terminal else console


@contextmanager
def _as_usage_error() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno == errno.EPIPE:
            raise ReaderGoneError from None
        raise UsageError(
            f"standard output cannot be written: {error.strerror}; free space, or send it elsewhere"
        ) from None


def _drop_the_rest(output: TextIO) -> None:
    """Discard what is still buffered: at its end the interpreter would try to write it again, and complain."""
    try:
        output.flush()
    except OSError:
        with suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), output.fileno())
