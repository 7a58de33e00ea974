"""A user's file, read and run: its names, and its mistakes as one line that says where.

What has to be there: `model()`, `loss`, `optimizer(...)` and `data()`; the rest is optional (docs/own-model.md). The
text is that of the study's copy, which has to have the digest of the cell, so that no rank runs another.
"""

from __future__ import annotations

import hashlib
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

from dlscale.base.errors import UsageError
from dlscale.models.own import FilePlace

NEEDED = ("model", "loss", "optimizer", "data")
DIGITS = 12
LONGEST = 300  # characters of a user's own message


def digest_of(text: bytes) -> str:
    """The first hex digits of a file's SHA-256."""
    return hashlib.sha256(text).hexdigest()[:DIGITS]


@dataclass(frozen=True, kw_only=True, eq=False)  # no slots: cached_property needs a dictionary
class OwnFile:
    """A file that was run, with the names that it defines."""

    origin: Path
    digest: str
    names: Mapping[str, Any]

    @property
    def name(self) -> str:
        """The file's, without folders."""
        return self.origin.name

    def call(self, name: str, *arguments: Any) -> Any:
        """What its function of that name returns. Raises UsageError with the line where it failed."""
        return self.run(lambda: self.names[name](*arguments), what=f"{name}()")

    def run(self, do: Callable[[], Any], *, what: str) -> Any:
        """What `do` returns; what the user's code raises there is a UsageError with the line."""
        try:
            return do()
        except UsageError:
            raise
        except Exception as error:
            raise self.mistake(error, what=what) from error

    def mistake(self, error: BaseException, *, what: str) -> UsageError:
        """One line about an error of the user's code: file, line, what it did."""
        line = line_of(error, self.origin)
        where = f"{self.name}, line {line}" if line else self.name
        return UsageError(f"{where}: {what} raised {_text(error)}; correct the file, or what it reads")

    def number(self, name: str, default: int) -> int:
        """A positive number that the file may define. Raises UsageError for anything else."""
        value = self.names.get(name, default)
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise UsageError(f"{self.name}: {name} must be a positive whole number, found {value!r}")
        return value

    @cached_property
    def metrics(self) -> dict[str, Callable[..., Any]]:
        """Name -> function of outputs and labels, both NumPy arrays. Raises UsageError."""
        found = self.names.get("metrics", {})
        if not isinstance(found, dict) or not all(
            isinstance(name, str) and name.isidentifier() and callable(function)
            for name, function in found.items()
        ):
            raise UsageError(
                f"{self.name}: metrics must be a dictionary of functions by name, found {found!r}; write "
                "metrics = {'auc': auc}, with auc(outputs, labels) of NumPy arrays"
            )
        return dict(found)

    @cached_property
    def lower_is_better(self) -> frozenset[str]:
        """The metrics of the file of which less is better. Raises UsageError for others."""
        named = self.names.get("lower_is_better", ())
        named = frozenset([named] if isinstance(named, str) else named)
        if unknown := sorted(map(str, named - set(self.metrics))):
            raise UsageError(
                f"{self.name}: lower_is_better names {', '.join(unknown)}, which metrics does not have; correct either"
            )
        return named


@cache
def load_file(place: FilePlace, digest: str | None = None) -> OwnFile:
    """The file, run once in this process; with a `digest` only the text that has it.

    Raises UsageError if it cannot be read or run, is another text, or lacks a name.
    """
    origin = place.origin
    try:
        text = place.path.read_bytes()
    except OSError as error:
        raise UsageError(f"{origin.name}: cannot be read ({error.strerror}); check --workloads") from None
    found = digest_of(text)
    if digest not in (None, found):
        raise UsageError(
            f"{origin.name}: its digest is {found}, and the study was planned with {digest}: the copy in its folder "
            "was changed; run the study again with the file as it is now"
        )
    names: dict[str, Any] = {"__file__": str(origin), "__name__": origin.stem}
    own = OwnFile(origin=origin, digest=found, names=names)
    try:
        # The user's own program, asked for by name: running it is what the option is for.
        exec(compile(text, str(origin), "exec"), names)  # noqa: S102
    except SystemExit as error:
        raise own.mistake(error, what="the file") from None
    except Exception as error:
        raise own.mistake(error, what="the file") from error
    if missing := [name for name in NEEDED if name not in names]:
        raise UsageError(
            f"{own.name}, line {len(text.splitlines())}: the file ends without {', '.join(missing)}; it needs "
            f"{', '.join(NEEDED)} (docs/own-model.md), and `dlscale new workload` writes a start"
        )
    for name in NEEDED:
        # A network can be called too, and is one alone: every replica needs its own.
        if not callable(names[name]) or (name == "model" and hasattr(names[name], "state_dict")):
            if isinstance(names[name], type):
                continue
            raise UsageError(
                f"{own.name}: {name} must be a function, found a {type(names[name]).__name__}; write def {name}(...)"
            )
    return own


def line_of(error: BaseException, origin: Path) -> int | None:
    """The line of the user's file where an error arose; None if it did not pass through it."""
    if isinstance(error, SyntaxError) and error.filename == str(origin):
        return error.lineno
    lines = [
        frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(origin)
    ]
    return lines[-1] if lines else None


def _text(error: BaseException) -> str:
    text = " ".join((error.msg if isinstance(error, SyntaxError) else str(error)).split())
    text = text if len(text) <= LONGEST else f"{text[:LONGEST]} ..."
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
