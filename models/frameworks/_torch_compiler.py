"""Torch's compiler, left out of processes that compile nothing (docs/decisions/0002).

Torch's optimizers, process groups and DistributedDataParallel call `torch._dynamo`, compiled or not: 0.6 s of every
start to import it. Outside of compiled code what they call of it does nothing.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from types import ModuleType
from typing import Any

import torch

NAME = "torch._dynamo"


class _Part(ModuleType):
    """Stands for a module of the compiler by what it is `given`; all else is that of the real one."""

    def __init__(self, name: str, **given: Any) -> None:
        super().__init__(name)
        vars(self).update(given)

    def __getattr__(self, name: str) -> Any:
        _ = torch._dynamo.__path__  # the compiler first, or it would import this part twice
        return getattr(importlib.import_module(self.__name__), name)


class _NotLoaded(ModuleType):
    """Stands for `torch._dynamo` until somebody asks it for more than is called by training, which loads it."""

    def __init__(self) -> None:
        super().__init__(NAME)
        # DistributedDataParallel asks which of its reducers to use, and would take another for compiled steps alone.
        self.utils = _Part(f"{NAME}.utils", get_optimize_ddp_mode=lambda: "ddp_optimizer")
        self.trace_rules = _Part(
            f"{NAME}.trace_rules", clear_lru_cache=lambda: None
        )  # where a group is formed

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
    stand_in = _NotLoaded()
    stand_in.__spec__, stand_in.__file__ = spec, spec.origin
    sys.modules[NAME] = torch._dynamo = stand_in
