"""The algorithms by name: what each needs, its options, and whether a backend carries it.

An algorithm's module `dlscale.collectives.algorithms.<name>` has `Options`, a dataclass that checks its values. Which
algorithms a backend carries is `Capabilities.algorithms`.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from dlscale.base.errors import UsageError, unknown
from dlscale.collectives.option_kinds import read_into

SYNC = "sync"
Carrier = Literal["collective", "servers"]
"""What exchanges: operations on host buffers of all ranks together, or servers that hold the weights."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Algorithm:
    """An algorithm's row. `carriers`: what it runs over. `asynchronous`: over servers no rank waits for another."""

    name: str
    title: str
    summary: str
    source: str
    carriers: tuple[Carrier, ...]
    asynchronous: bool = False


NAMES = ("sync", "easgd", "downpour")

TABLE = {
    row.name: row
    for row in (
        Algorithm(
            name="sync",
            title="synchronous SGD",
            summary="every step applies the mean of all ranks' gradients",
            source="",
            carriers=("collective", "servers"),
        ),
        Algorithm(
            name="easgd",
            title="elastic averaging SGD",
            summary="ranks train alone, tied to a centre by an elastic force",
            source="Zhang, Choromanska, LeCun 2015, arXiv:1412.6651",
            carriers=("collective", "servers"),
            asynchronous=True,
        ),
        Algorithm(
            name="downpour",
            title="Downpour SGD",
            summary="ranks push gradients to servers and fetch weights, and nobody waits for anybody",
            source="Dean et al. 2012, NIPS; Zhang et al. 2016, arXiv:1511.05950",
            carriers=("servers",),
            asynchronous=True,
        ),
    )
}


def algorithm_named(name: str) -> Algorithm:
    """The row of an algorithm. Raises UsageError for an unknown name."""
    if name not in NAMES:
        raise UsageError(unknown("algorithm", name, NAMES))
    return TABLE[name]


def round_steps(name: str, options: Mapping[str, Any] | None = None) -> int:
    """Steps in which ranks exchange once: an algorithm's interval, or 1. Raises UsageError."""
    return int(getattr(read_algorithm(name, options), "interval", 1))


def read_algorithm(name: str, options: Mapping[str, Any] | None = None) -> Any:
    """The `Options` of an algorithm's module, filled and checked. Raises UsageError."""
    algorithm_named(name)
    module = importlib.import_module(f"dlscale.collectives.algorithms.{name}")
    return read_into(module.Options, options or {}, owner=f"algorithm {name}")
