"""The algorithms by which ranks train one network, by name, and their options.

Synchronous SGD is what backends do by themselves: every step applies the mean of all ranks' gradients. Each other
algorithm is a module `<name>.py`, which cites its source and has `Options`, a dataclass that checks its values.
`Capabilities.algorithms` says which backend carries which.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dlscale.base.errors import UsageError, unknown
from dlscale.collectives.option_kinds import read_into

SYNC = "sync"
NAMES = (SYNC, "easgd", "downpour")


@dataclass(frozen=True, slots=True)
class NoOptions:
    """Those of synchronous SGD."""


def round_steps(name: str, options: Mapping[str, Any] | None = None) -> int:
    """Steps in which ranks exchange once: an algorithm's interval, or 1. Raises UsageError."""
    return int(getattr(read_algorithm(name, options), "interval", 1))


def read_algorithm(name: str, options: Mapping[str, Any] | None = None) -> Any:
    """The `Options` of an algorithm's module, filled and checked. Raises UsageError."""
    if name not in NAMES:
        raise UsageError(unknown("algorithm", name, NAMES))
    kind = NoOptions
    if name != SYNC:
        kind = importlib.import_module(f"dlscale.collectives.algorithms.{name}").Options
    return read_into(kind, options or {}, owner=f"algorithm {name}")
