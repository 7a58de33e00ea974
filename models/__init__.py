"""What is trained: the facts, networks and data of each workload."""

from __future__ import annotations

import importlib

from dlscale.base.errors import UsageError, unknown
from dlscale.models.workload import Workload

NAMES = ("hep_cnn", "cosmogan", "resnet50", "inception_v3", "gpt")


def load_workload(name: str) -> Workload:
    """The facts of a workload; imports no framework. Raises UsageError for an unknown name."""
    if name not in NAMES:
        raise UsageError(unknown("workload", name, NAMES))
    workload: Workload = importlib.import_module(f"dlscale.models.{name}").WORKLOAD
    return workload
