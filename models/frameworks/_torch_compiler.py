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


class StandIn(ModuleType):
    """Stands for the compiler, or a module of it, by what is `given`: asked for anything else it loads the real one."""

    def __init__(self, name: str, **given: Any) -> None:
        super().__init__(name)
        vars(self).update(given)

    def __getattr__(self, name: str) -> Any:
        if isinstance(sys.modules.get(NAME), StandIn):
            del sys.modules[NAME], torch._dynamo
        return getattr(importlib.import_module(self.__name__), name)


def leave_out_compiler() -> None:
    """From now on the compiler is loaded only where it is used, unless it is loaded already."""
    if NAME in sys.modules or (spec := importlib.util.find_spec(NAME)) is None:
        return
    stand_in = StandIn(
        NAME,
        __spec__=spec,
        __file__=spec.origin,
        disable=lambda fn=None, *_, **__: fn if fn is not None else lambda function: function,
        graph_break=lambda *_, **__: None,
        # DistributedDataParallel asks which of its reducers to use, and would take another for compiled steps alone.
        utils=StandIn(f"{NAME}.utils", get_optimize_ddp_mode=lambda: "ddp_optimizer"),
        trace_rules=StandIn(f"{NAME}.trace_rules", clear_lru_cache=lambda: None),  # where a group is formed
    )
    sys.modules[NAME] = torch._dynamo = stand_in
