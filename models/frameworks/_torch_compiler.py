"""Torch's compiler, left out of processes that compile nothing (docs/decisions/0002).

Torch's optimizers import `torch._dynamo` at their first call, compiled or not: 0.6 s of every start. Outside of
compiled code what they call of it does nothing. DistributedDataParallel asks it for more, and loads it.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from types import ModuleType
from typing import Any

import torch

NAME = "torch._dynamo"


class _NotLoaded(ModuleType):
    """Stands for `torch._dynamo` until somebody asks it for more than optimizers do, which loads it."""

    def disable(self, fn: Any = None, *_: Any, **__: Any) -> Any:
        """The function itself, or a decorator that returns it."""
        return fn if fn is not None else lambda function: function

    def graph_break(self, *_: Any, **__: Any) -> None:
        """Nothing: there is no graph."""

    def __getattr__(self, name: str) -> Any:
        if sys.modules.get(NAME) is self:
            del sys.modules[NAME], torch._dynamo
        return getattr(importlib.import_module(NAME), name)


def leave_out_compiler() -> None:
    """From now on the compiler is loaded only where it is used, unless it is loaded already."""
    if NAME in sys.modules:
        return
    spec = importlib.util.find_spec(NAME)
    if spec is None:
        return
    stand_in = _NotLoaded(NAME)
    stand_in.__spec__, stand_in.__file__ = spec, spec.origin
    sys.modules[NAME] = torch._dynamo = stand_in
