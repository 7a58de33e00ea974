"""How a step whose computation is replaced sleeps (`models/slept.py`), where a framework's graph has to do it."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any


def sleep_operation(framework: str) -> Callable[..., Any] | None:
    """The operation (begin, seconds, held) -> (end, held), by the wall clock; None for torch, which needs none.

    Raises UsageError where TensorFlow's operations were not built.
    """
    if framework != "tensorflow":
        return None
    native = importlib.import_module("dlscale.collectives.training._tensorflow_native")
    operation: Callable[..., Any] = native.library().operations.dlscale_sleep
    return operation
