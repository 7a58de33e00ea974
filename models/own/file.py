"""A user's file, read and run: its names, and its mistakes as one line that says where.

What has to be there: `model()`, `loss`, `optimizer(...)` and `data()`; the rest is optional (docs/own-model.md). The
text is that of the study's copy, which has to have the digest of the cell, so that no rank runs another. While it runs
the file is a module of its own, as it would be for Python.
"""

from __future__ import annotations

import ast
import hashlib
import inspect
import linecache
import re
import sys
import traceback
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from types import ModuleType
from typing import Any, cast

import numpy as np

from dlscale.base.errors import UsageError
from dlscale.models.own import SUFFIX, FilePlace
from dlscale.models.own.randomness import GeneratorStates, generators_of, seed_generators

NEEDED = ("model", "loss", "optimizer", "data")
DIGITS = 12
STYLE = re.compile(r"\x1b\[[0-9;]*m")  # bold and colours, as in Keras's messages
LONGEST = 300  # characters of a user's own message
SAME = 1e-4  # relative difference of losses that are the same but for rounding
SUM = (
    "{file}: loss({arguments}) is twice as large for the same samples twice: it is a sum over them, and ranks average "
    "theirs; return the mean"
)
UNREPEATABLE = (
    "{file}: the network gives other outputs for the same samples, weights and seeds when it is called again, so that "
    "no step could be checked by taking it again; {remedy}"
)
SEED = 7  # of the global generators while a file is run and gives its data


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
            with _as_program(self.origin):
                return do()
        except UsageError:
            raise
        except (Exception, SystemExit) as error:
            raise self.mistake(error, what=what) from error

    def mistake(self, error: BaseException, *, what: str) -> UsageError:
        """One line about an error of the user's code: file, line, what it did."""
        line = line_of(error, self.origin)
        where = f"{self.name}, line {line}" if line else self.name
        remedy = "correct the file, or what it reads"
        if isinstance(error, ImportError) and self._is_beside(error):
            remedy = "modules beside the file are not copied with it: install them, or put them into the file"
        return UsageError(f"{where}: {what} raised {text_of(error)}; {remedy}")

    def _is_beside(self, error: ImportError) -> bool:
        """Whether what cannot be imported is in the file's folder, or was asked for as if it were."""
        if not error.name:
            return "relative import" in str(error)
        path = self.origin.parent / error.name.partition(".")[0]
        return path.is_dir() or path.with_suffix(SUFFIX).exists()

    def where(self, name: str) -> str:
        """The file, with the line of its function of that name."""
        code = getattr(self.names[name], "__code__", None)
        return f"{self.name}, line {code.co_firstlineno}" if code else self.name

    def number(self, name: str, default: int) -> int:
        """A positive number that the file may define. Raises UsageError for anything else."""
        value = self.names.get(name, default)
        if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 1:
            raise UsageError(f"{self.name}: {name} must be a positive whole number, found {value!r}")
        return int(value)

    @cached_property
    def generators(self) -> list[Any]:
        """The random generators that the file keeps as names of its own."""
        return generators_of(dict(self.names))

    @cached_property
    def states(self) -> GeneratorStates:
        """Where all generators were when the file had been read: `load_file` asks for them first."""
        return GeneratorStates(self.generators)

    @cached_property
    def clip_norm(self) -> float:
        """The largest norm of all gradients together that an update is made of; 0: any. Raises UsageError."""
        value = self.names.get("clip_norm", 0.0)
        number = isinstance(value, int | float | np.number) and not isinstance(value, bool)
        if not number or not 0 <= value < float("inf"):
            raise UsageError(f"{self.name}: clip_norm must be a number above 0, found {value!r}")
        return float(value)

    @cached_property
    def schedule(self) -> Callable[[int], float] | None:
        """What the learning rate is multiplied by, by the number of the step; None where it stays."""
        given = self.names.get("schedule")
        if given is None:
            return None
        if not callable(given) or hasattr(given, "step"):
            raise UsageError(
                f"{self.name}: schedule must be a function, found a {type(given).__name__}; write def schedule(step), "
                "which returns what the learning rate is multiplied by in step 0, 1, ..."
            )

        def factor(step: int) -> float:
            value = self.run(lambda: float(given(step)), what=f"schedule({step})")
            if not 0 <= value < float("inf"):
                raise UsageError(f"{self.where('schedule')}: schedule({step}) is {value}; return 0 or more")
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
            raise UsageError(
                f"{self.name}: metrics must be a dictionary of functions by name, found {found!r}; write "
                "metrics = {'auc': auc}, with auc(outputs, labels) of NumPy arrays"
            )
        for name, function in found.items():
            if isinstance(function, type):
                raise UsageError(f"{self.name}: metric {name} is a class; write {function.__name__}()")
            if _takes_labels_first(function) and not _is_librarys(function):
                raise UsageError(
                    f"{self.name}: metric {name} takes labels first, and it is called as {name}(outputs, labels); "
                    "change the order"
                )
        return {name: _as_called(function) for name, function in found.items()}

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


def load_file(place: FilePlace, digest: str | None = None) -> OwnFile:
    """The file, run once in this process; with a `digest` only the text that has it.

    Raises UsageError if it cannot be read or run, is another text, or lacks a name, which is seen before it is run.
    """
    try:
        text = place.path.read_bytes()
    except OSError as error:
        raise UsageError(
            f"{place.origin.name}: cannot be read ({error.strerror}); check --workloads"
        ) from None
    if digest not in (None, found := digest_of(text)):
        raise UsageError(
            f"{place.origin.name}: its digest is {found}, and the study was planned with {digest}: the copy in its "
            "folder was changed; run the study again with the file as it is now"
        )
    return _run(place.origin, text)


@cache
def _run(origin: Path, text: bytes) -> OwnFile:
    found = digest_of(text)
    module = ModuleType(f"own_{found}")  # which hides no other module
    module.__file__ = str(origin)
    own = OwnFile(origin=origin, digest=found, names=vars(module))
    try:
        tree = ast.parse(text, str(origin))
    except (SyntaxError, ValueError) as error:
        raise own.mistake(error, what="the file") from error
    except (MemoryError, RecursionError):
        raise UsageError(
            f"{own.name}: an expression is nested deeper than Python can read; write it as shorter ones"
        ) from None
    _check_script(own, tree)
    sys.modules[module.__name__] = module
    lines = text.decode(errors="replace").splitlines(keepends=True)
    # For tracebacks and `inspect`: the lines of the copy, whatever is at the origin now.
    linecache.cache[str(origin)] = (len(text), None, lines, str(origin))
    seed_generators(SEED)
    # The user's own program, asked for by name: running it is what the option is for.
    own.run(lambda: exec(compile(tree, str(origin), "exec"), vars(module)), what="the file")  # noqa: S102
    _check_bound(own, own.names)
    own.states.restore()
    for name in NEEDED:
        # A network can be called too, and is one alone: every replica needs its own.
        if isinstance(own.names[name], type) and name != "loss":
            continue
        if isinstance(own.names[name], type):
            raise UsageError(f"{own.name}: loss is a class; write loss = {own.names[name].__name__}()")
        if not callable(own.names[name]) or (name == "model" and hasattr(own.names[name], "state_dict")):
            kind = type(own.names[name]).__name__
            raise UsageError(f"{own.name}: {name} must be a function, found a {kind}; write def {name}(...)")
    return own


LIBRARIES = ("keras", "sklearn", "tensorflow", "tf_keras")  # whose metrics take labels first
LABELS = {"labels", "label", "y_true", "y", "targets", "target", "truth"}
OUTPUTS = {
    "outputs",
    "output",
    "y_pred",
    "y_score",
    "predictions",
    "prediction",
    "preds",
    "pred",
    "logits",
    "scores",
}


def _is_librarys(function: Any) -> bool:
    made = getattr(function, "func", function)  # of a functools.partial
    module = getattr(made, "__module__", None) or type(made).__module__
    return module.partition(".")[0] in LIBRARIES


def _takes_labels_first(function: Any) -> bool:
    """By the names of its arguments."""
    try:
        first, second, *_ = inspect.signature(function).parameters
    except (TypeError, ValueError):
        return False
    return first in LABELS and second in OUTPUTS


def _as_called(function: Any) -> Callable[..., Any]:
    """A metric of (outputs, labels). Keras's objects add up what they see, its functions give one for each sample."""
    if not _is_librarys(function) and not hasattr(function, "reset_state"):
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


def _check_script(own: OwnFile, tree: ast.Module) -> None:
    """Raises UsageError for a file without the names that are needed, and for one that trains while it is read."""
    found = _Names(tree)
    if not found.unknown:
        _check_bound(own, found.bound)
    if found.trains:
        raise UsageError(
            f"{own.name}, line {found.trains}: the file trains by itself there; leave that out, and write what it "
            "trains as functions (docs/own-model.md): nothing was run"
        )


def _check_bound(own: OwnFile, bound: Collection[str]) -> None:
    missing = [name for name in NEEDED if name not in bound]
    if missing:
        are = "are" if len(missing) > 1 else "is"
        raise UsageError(
            f"{own.name}: {_listed(missing)} {are} missing; it needs {_listed(NEEDED)} (docs/own-model.md), and "
            "`dlscale new` writes a start"
        )


_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_OWN_NAMES = (ast.Lambda, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_LOOPS = (ast.For, ast.AsyncFor, ast.While)
_BY_NAME = ("globals", "exec", "vars", "setattr")  # with which a module may bind names that nobody sees here
_TRAINING = ("fit", "step", "backward", "compile")  # methods of what has no methods where it is a function


class _Names:
    """The names that a module binds when it is run, and where it trains: in a loop, or by methods of what is needed."""

    def __init__(self, tree: ast.Module) -> None:
        self.bound: set[str] = set()
        self.unknown = False  # whether it may bind others
        self.trains = 0  # the line; 0: nowhere
        self._networks: set[str] = set()  # names of what model() returned
        self._walk(tree, in_loop=False)

    def _walk(self, node: ast.AST, *, in_loop: bool) -> None:
        """What is inside functions, classes and comprehensions has names of its own."""
        if isinstance(node, _OWN_NAMES):
            return
        if isinstance(node, (*_FUNCTIONS, ast.ClassDef)):
            self._bind(node.name, node, in_loop=in_loop)
            inner = [part for part in ast.walk(node) if isinstance(part, ast.Global)]
            self.bound.update(name for part in inner for name in part.names)
            return
        if isinstance(node, ast.Name):
            self.unknown |= node.id in _BY_NAME
            if isinstance(node.ctx, ast.Store):
                self._bind(node.id, node, in_loop=in_loop)
        elif isinstance(node, ast.alias):
            self.unknown |= node.name == "*"
            self._bind(node.asname or node.name.partition(".")[0], node, in_loop=in_loop)
        elif isinstance(node, ast.Call):
            called = node.func
            if isinstance(called, ast.Attribute) and self._trains(called):
                self.trains = self.trains or node.lineno
        elif isinstance(node, ast.Assign) and _calls_model(node.value):
            self._networks |= {target.id for target in node.targets if isinstance(target, ast.Name)}
        children: Iterable[ast.AST] = ast.iter_child_nodes(node)
        if isinstance(node, ast.If) and "__name__" in ast.unparse(node.test):
            children = node.orelse  # the rest is run as a program alone
        for child in children:
            self._walk(child, in_loop=in_loop or isinstance(node, _LOOPS))

    def _trains(self, method: ast.Attribute) -> bool:
        owner = method.value.id if isinstance(method.value, ast.Name) else ""
        if owner in NEEDED:
            return method.attr in _TRAINING
        return method.attr == "backward" or (method.attr == "fit" and owner in self._networks)

    def _bind(self, name: str, node: Any, *, in_loop: bool) -> None:
        self.bound.add(name)
        if in_loop and name in NEEDED:
            self.trains = self.trains or node.lineno


def _calls_model(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "model"


def _listed(names: Sequence[str]) -> str:
    *first, last = names
    return f"{', '.join(first)} and {last}" if first else last


def line_of(error: BaseException, origin: Path) -> int | None:
    """The line of the user's file where an error arose; None if it did not pass through it."""
    if isinstance(error, SyntaxError) and error.filename == str(origin):
        return error.lineno
    lines = [
        frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(origin)
    ]
    return lines[-1] if lines else None


def text_of(error: BaseException) -> str:
    """The kind of an error and what it says, in one line."""
    text = error.msg if isinstance(error, SyntaxError) else STYLE.sub("", str(error))
    text = " ".join(text.split())
    text = text if len(text) <= LONGEST else f"{text[:LONGEST]} ..."
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
