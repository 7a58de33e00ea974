"""A user's file, run: the names that it defines, and its mistakes as one line that says where.

What has to be there: `model()`, `loss`, `optimizer(...)` and `data()`; the rest is optional (docs/own-model.md). The
text is that of the study's copy, which has to have the digest of the cell, so that no rank runs another. While it runs
the file is a module of its own, as it would be for Python.
"""

from __future__ import annotations

import hashlib
import linecache
import math
import os
import re
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path
from types import ModuleType
from typing import Any, cast

import numpy as np

from dlscale.base.errors import UsageError
from dlscale.models.own.model import FilePlace
from dlscale.models.own.randomness import Generators

NEEDED = ("model", "loss", "optimizer", "data")
DIGITS = 12
STYLE = re.compile(r"\x1b\[[0-9;]*m")  # bold and colours, as in Keras's messages
KERAS = re.compile(rb"^\s*(import|from)\s+(keras|tensorflow)\b", re.MULTILINE)
LONGEST = 300  # characters of a user's own message
SEED = 7  # of the global generators while a file is run and gives its data
NETWORK = ("state_dict", "trainable_variables")  # what a network has and a function does not
LIBRARIES = ("keras", "sklearn", "tensorflow", "tf_keras")  # whose metrics take labels first


class TooLongError(BaseException):
    """The file takes too long; no `except Exception` of its own stops that."""


@dataclass(frozen=True, kw_only=True, eq=False)  # no slots: cached_property needs a dictionary
class OwnFile:
    """A file that was run, with the names that it defines."""

    origin: Path
    digest: str
    names: Mapping[str, Any]
    generators: Generators = field(default_factory=Generators)
    states: list[Any] = field(default_factory=list)  # of the generators when the file had been run

    @property
    def name(self) -> str:
        """The file's, without folders."""
        return self.origin.name

    def wrong(self, text: str, *, at: str = "", error: BaseException | None = None) -> UsageError:
        """A mistake in the file: on the line of its function `at`, or where that error arose."""
        line = getattr(getattr(self.names.get(at), "__code__", None), "co_firstlineno", None)
        line = _line_of(error, self.origin) if error else line
        return UsageError(f"{self.name}{f', line {line}' if line else ''}: {text}")

    def call(self, name: str, *arguments: Any) -> Any:
        """What its function of that name returns. Raises UsageError with the line where it failed."""
        return self.run(lambda: self.names[name](*arguments), what=f"{name}()")

    def run(self, do: Callable[[], Any], *, what: str) -> Any:
        """What `do` returns; what the user's code raises there is a UsageError with the line."""
        try:
            with _as_program(self.origin):
                return do()
        except UsageError:
            raise
        except (Exception, SystemExit, TooLongError) as error:
            remedy = "correct the file, or what it reads"
            if isinstance(error, ImportError):
                remedy = "install that; a module beside the file is not copied with it: put it into the file"
            raise self.wrong(f"{what} raised {text_of(error)}; {remedy}", error=error) from error

    def number(self, name: str, default: int) -> int:
        """A positive number that the file may define. Raises UsageError for anything else."""
        value = self.names.get(name, default)
        if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 1:
            raise self.wrong(f"{name} must be a positive whole number, found {value!r}")
        return int(value)

    @cached_property
    def clip_norm(self) -> float:
        """The largest norm of all gradients together that an update is made of; 0: any. Raises UsageError."""
        value = self.names.get("clip_norm", 0.0)
        if not isinstance(value, int | float | np.number) or not 0 <= value < math.inf:
            raise self.wrong(f"clip_norm must be a number above 0, found {value!r}")
        return float(value)

    @cached_property
    def schedule(self) -> Callable[[int], float] | None:
        """What the learning rate is multiplied by, by the number of the step; None where it stays."""
        given = self.names.get("schedule")
        if given is None:
            return None
        if not callable(given) or hasattr(given, "step"):
            raise self.wrong(
                f"schedule must be a function, found a {type(given).__name__}; write def schedule(step), which returns "
                "what the learning rate is multiplied by in step 0, 1, ..."
            )

        def factor(step: int) -> float:
            value = self.run(lambda: float(given(step)), what=f"schedule({step})")
            if not 0 <= value < math.inf:
                raise self.wrong(f"schedule({step}) is {value}; return 0 or more", at="schedule")
            return float(value)

        return factor

    @cached_property
    def metrics(self) -> dict[str, Callable[..., Any]]:
        """Name -> function of outputs and labels, both NumPy arrays. Raises UsageError."""
        found = self.names.get("metrics", {})
        if not isinstance(found, dict) or not all(
            isinstance(name, str) and name.isidentifier() and callable(function)
            for name, function in found.items()
        ):
            raise self.wrong(
                f"metrics must be a dictionary of functions by name, found {found!r}; write metrics = {{'auc': auc}}, "
                "with auc(outputs, labels) of NumPy arrays"
            )
        for name, function in found.items():
            if isinstance(function, type):
                raise self.wrong(f"metric {name} is a class; write {function.__name__}()")
        return {name: _as_called(function) for name, function in found.items()}

    @cached_property
    def lower_is_better(self) -> frozenset[str]:
        """The metrics of the file of which less is better. Raises UsageError for others."""
        named = self.names.get("lower_is_better", ())
        named = frozenset([named] if isinstance(named, str) else named)
        if unknown := sorted(map(str, named - set(self.metrics))):
            raise self.wrong(
                f"lower_is_better names {', '.join(unknown)}, which metrics does not have; correct either"
            )
        return named


def load_file(place: FilePlace, digest: str | None = None) -> OwnFile:
    """The file, run once in this process; with a `digest` only the text that has it.

    Raises UsageError if it cannot be read or run, is another text, or lacks a name.
    """
    try:
        text = place.path.read_bytes()
    except OSError as error:
        raise UsageError(
            f"{place.origin.name}: cannot be read ({error.strerror}); check --workloads"
        ) from None
    found = hashlib.sha256(text).hexdigest()[:DIGITS]
    if digest not in (None, found):
        raise UsageError(
            f"{place.origin.name}: its digest is {found}, and the study was planned with {digest}: the copy in its "
            "folder was changed; run the study again with the file as it is now"
        )
    return _run(place.origin, text, found)


@cache
def _run(origin: Path, text: bytes, digest: str) -> OwnFile:
    module = ModuleType(f"own_{digest}")  # which hides no other module
    module.__file__ = str(origin)
    sys.modules[module.__name__] = module
    # For tracebacks and `inspect`: the lines of the copy, whatever is at the origin now.
    lines = text.decode(errors="replace").splitlines(keepends=True)
    linecache.cache[str(origin)] = (len(text), None, lines, str(origin))
    begun = OwnFile(origin=origin, digest=digest, names=vars(module))
    begun.generators.seed(SEED)
    begun.run(lambda: _use_plain_keras(text), what="import of keras")
    # The user's own program, asked for by name: running it is what the option is for.
    begun.run(lambda: exec(compile(text, str(origin), "exec"), vars(module)), what="the file")  # noqa: S102
    _check_names(begun)
    generators = Generators(begun.names)
    return OwnFile(
        origin=origin,
        digest=digest,
        names=begun.names,
        generators=generators,
        states=generators.states(),
    )


def _use_plain_keras(text: bytes) -> None:
    """Keras over TensorFlow with its defaults, whatever `keras.json` of the home folder says."""
    os.environ["KERAS_BACKEND"] = "tensorflow"
    if KERAS.search(text):
        import keras

        keras.config.set_floatx("float32")
        keras.config.set_epsilon(1e-7)
        keras.config.set_image_data_format("channels_last")


def _check_names(own: OwnFile) -> None:
    """Raises UsageError for a file without what is needed."""
    if missing := [name for name in NEEDED if name not in own.names]:
        raise own.wrong(
            f"without {', '.join(missing)}; it needs {', '.join(NEEDED)} (docs/own-model.md), and `dlscale new` writes "
            "a start"
        )
    for name in NEEDED:
        value = own.names[name]
        kind = type(value).__name__
        if isinstance(value, type):
            if name == "loss":
                raise own.wrong(f"loss is a class; write loss = {value.__name__}()")
        # A network can be called too, and is one alone: every replica needs its own.
        elif not callable(value) or (name == "model" and any(hasattr(value, part) for part in NETWORK)):
            raise own.wrong(f"{name} must be a function, found a {kind}; write def {name}(...)")


def _as_called(function: Any) -> Callable[..., Any]:
    """A metric of (outputs, labels). Keras's objects add up what they see, its functions give one for each sample."""
    made = getattr(function, "func", function)  # of a functools.partial
    library = (getattr(made, "__module__", None) or type(made).__module__).partition(".")[0]
    if library not in LIBRARIES and not hasattr(function, "reset_state"):
        return cast(Callable[..., Any], function)

    def measure(outputs: Any, labels: Any) -> float:
        if hasattr(function, "reset_state"):
            function.reset_state()
        return float(np.mean(function(labels, outputs)))

    return measure


@contextmanager
def _as_program(origin: Path) -> Iterator[None]:
    """Command line of a program that was started without options."""
    before, sys.argv = sys.argv, [str(origin)]
    try:
        yield
    finally:
        sys.argv = before


def _line_of(error: BaseException, origin: Path) -> int | None:
    """The line of the user's file where an error arose; None if it did not pass through it."""
    if isinstance(error, SyntaxError) and error.filename == str(origin):
        return error.lineno
    frames = traceback.extract_tb(error.__traceback__)
    return next((frame.lineno for frame in reversed(frames) if frame.filename == str(origin)), None)


def text_of(error: BaseException) -> str:
    """The kind of an error and what it says, in one line."""
    text = error.msg if isinstance(error, SyntaxError) else STYLE.sub("", str(error))
    text = " ".join(text.split())
    text = text if len(text) <= LONGEST else f"{text[:LONGEST]} ..."
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
