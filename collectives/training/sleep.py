"""How a step whose computation is replaced sleeps (`models/slept.py`), where a framework's graph has to do it."""

from __future__ import annotations

import importlib

from dlscale.models.slept import SleepOperations


def sleep_operations(framework: str) -> SleepOperations | None:
    """What a graph of the framework sleeps with; None for torch, which needs nothing.

    Raises UsageError where TensorFlow's operations were not built.
    """
    if framework != "tensorflow":
        return None
    native = importlib.import_module("dlscale.collectives.training._tensorflow_native")
    operations = native.library().operations
    return SleepOperations(sleep=operations.dlscale_sleep, arrival=operations.dlscale_arrival)
