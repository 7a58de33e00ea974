"""Spares processes that compile nothing the import of torch's compiler, a quarter of a launch's start-up.

torch's optimizers import `torch._dynamo` when they are made and in every step, for two functions that have no effect
outside of compiled code. A stand-in module has these two; whoever asks it for anything else gets the real module.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

import torch

NAME = "torch._dynamo"


class _StandIn(ModuleType):
    """What eager code needs of `torch._dynamo`."""

    @staticmethod
    def graph_break(msg: str = "") -> None:
        """Nothing is being compiled."""

    @staticmethod
    def disable(fn: Callable[..., Any], *_: Any, **__: Any) -> Callable[..., Any]:
        """The function itself: it is not compiled."""
        return fn

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and name != "__path__":  # of whoever looks at all modules
            raise AttributeError(name)
        if sys.modules.get(NAME) is self:
            del sys.modules[NAME]
        return getattr(importlib.import_module(NAME), name)


def put_off_compiler() -> None:
    """Until it is needed, `torch._dynamo` is not imported; without effect if it has been."""
    if NAME not in sys.modules:
        sys.modules[NAME] = torch._dynamo = _StandIn(NAME)
