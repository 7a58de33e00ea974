"""The algorithms by name, and their options.

An algorithm's module `dlscale.collectives.algorithms.<name>` has `Options`, a dataclass that checks its values. Which
algorithms a backend carries is `Capabilities.algorithms`.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

from dlscale.base.errors import UsageError, unknown
from dlscale.collectives.option_kinds import read_into

SYNC = "sync"
NAMES = (SYNC, "easgd", "downpour")


def round_steps(name: str, options: Mapping[str, Any] | None = None) -> int:
    """Steps in which ranks exchange once: an algorithm's interval, or 1. Raises UsageError."""
    return 1 if name == SYNC else int(getattr(read_algorithm(name, options), "interval", 1))


def read_algorithm(name: str, options: Mapping[str, Any] | None = None) -> Any:
    """The `Options` of an algorithm's module, filled and checked. Raises UsageError."""
    check_name(name)
    module = importlib.import_module(f"dlscale.collectives.algorithms.{name}")
    return read_into(module.Options, options or {}, owner=f"algorithm {name}")


def check_name(name: str) -> None:
    """Returns if there is an algorithm of that name. Raises UsageError."""
    if name not in NAMES:
        raise UsageError(unknown("algorithm", name, NAMES))
