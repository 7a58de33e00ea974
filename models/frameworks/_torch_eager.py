"""Spares processes that compile nothing the import of torch's compiler, a quarter of a launch's start-up.

torch's optimizers import `torch._dynamo` when they are made and in every step, for two functions that have no effect
outside of compiled code. A stand-in module has these two; whoever asks for anything else gets the real module, and from
then on everybody does.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

import torch

NAME = "torch._dynamo"
MARK = "__dynamo_disable"  # on functions of torch: what `torch._dynamo.disable` made of them


class _StandIn(ModuleType):
    """What eager code needs of `torch._dynamo`."""

    def __init__(self) -> None:
        super().__init__(NAME)
        self._excluded: list[Callable[..., Any]] = []

    @staticmethod
    def graph_break(msg: str = "") -> None:
        """Nothing is being compiled."""

    def disable(self, fn: Any = None, recursive: bool = True, **options: Any) -> Any:
        """A function of torch's own, which asks for no wrapping, as it is: it is not compiled."""
        if fn is None or options.get("wrapping", True):  # of a program that has something to compile
            return self.__getattr__("disable")(fn, recursive, **options)
        self._excluded.append(fn)
        return fn

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and name != "__path__":  # of whoever looks at all modules
            raise AttributeError(name)
        if sys.modules.get(NAME) is self:
            del sys.modules[NAME]
            for function in self._excluded:
                vars(function).pop(MARK, None)
        return getattr(importlib.import_module(NAME), name)


def put_off_compiler() -> None:
    """Until it is needed, `torch._dynamo` is not imported; without effect if it has been."""
    if NAME not in sys.modules:
        sys.modules[NAME] = torch._dynamo = _StandIn()
