"""The engines by name, and a memory of what they answered, in the user's cache.

An answer follows from the engine, its version and settings, the network, the exchange and the sizes. Answers on one
network are one file, ${XDG_CACHE_HOME:-~/.cache}/dlscale/predictions/<engine>-<version>-<digest>.json; a file that
cannot be read is as if it were not there.
"""

from __future__ import annotations

import hashlib
import importlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from dlscale.analysis.predict.engine import Engine, Method, NetworkExchange
from dlscale.analysis.predict.loggp import LogGP
from dlscale.analysis.predict.network import Network
from dlscale.base.errors import UsageError
from dlscale.base.files import read_regular, write_atomically
from dlscale.base.parsing import parse_json
from dlscale.base.redaction import home_folder

ENGINES = ("auto", "loggp", "simgrid")
SIMGRID_MODULE = "dlscale.analysis.predict.simgrid_engine"
LARGEST_BYTES = 64 << 20


def engine_named(
    name: str, *, background_flows: int = 0, slow_nodes: Mapping[int, float] | None = None
) -> Engine:
    """The engine of that name; auto is SimGrid where it is installed, else the formulas.

    Other traffic and slow nodes (node -> the share of its link's rate) are SimGrid's alone. Raises UsageError.
    """
    disturbed = bool(background_flows or slow_nodes)
    if name == "loggp":
        if disturbed:
            raise UsageError(
                "--background-flows and --slow-nodes need flows that share links, which engine loggp does not "
                "simulate; give --engine simgrid"
            )
        return LogGP()
    try:
        module = importlib.import_module(SIMGRID_MODULE)
    except ModuleNotFoundError as error:
        if error.name != SIMGRID_MODULE:
            raise
        reason: str | None = "this dlscale has no SimGrid engine"
    else:
        reason = module.available()
    if reason is None:
        engine: Engine = module.SimGrid(background_flows=background_flows, slow_nodes=slow_nodes)
        return engine
    if name == "auto" and not disturbed:
        return LogGP()
    raise UsageError(f"engine simgrid cannot be used here: {reason}; or give --engine loggp")


def digest_of(value: Any) -> str:
    """12 hexadecimal digits that change with any field of a dataclass."""
    return hashlib.sha256(json.dumps(asdict(value), sort_keys=True).encode()).hexdigest()[:12]


def cache_folder() -> Path | None:
    """The user's cache of predictions; None for a user who has no place for one."""
    named, home = Path(os.environ.get("XDG_CACHE_HOME", "")), home_folder()
    if not named.is_absolute() and home is None:
        return None
    top = named if named.is_absolute() or home is None else home / ".cache"
    return top / "dlscale" / "predictions"


class RememberingEngine:
    """Another engine's answers, asked for once (`Engine`). `save` writes the new ones."""

    def __init__(self, engine: Engine, folder: Path | None) -> None:
        self.name, self.version = engine.name, engine.version
        self._engine, self._folder = engine, folder
        # What an engine was made with changes its answers, such as the traffic of other jobs.
        self._settings = {
            name: str(value)
            for name, value in getattr(engine, "__dict__", {}).items()
            if not name.startswith("_")
        }
        self._known: dict[Path, dict[str, list[float]]] = {}
        self._changed: set[Path] = set()

    def exchange_seconds(
        self, network: Network, exchange: NetworkExchange, sizes: Sequence[int]
    ) -> list[float]:
        """Seconds of the exchange for each of `sizes` in bytes, alone on the network and free of noise."""
        if self._folder is None:
            return self._engine.exchange_seconds(network, exchange, sizes)
        path = self._folder / f"{self.name}-{self.version}-{digest_of(network)}.json"
        known = self._known.setdefault(path, _read(path) if path not in self._known else {})
        key = json.dumps([self._settings, asdict(exchange), list(sizes)], sort_keys=True)
        if key not in known:
            known[key] = self._engine.exchange_seconds(network, exchange, sizes)
            self._changed.add(path)
        return known[key]

    def method(self, exchange: NetworkExchange) -> Method:
        """The other engine's."""
        return self._engine.method(exchange)

    def save(self) -> None:
        """Write what is new; a cache that cannot be written is no error."""
        for path in self._changed:
            try:
                path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
                write_atomically(path, json.dumps(_read(path) | self._known[path]), durable=False)
            except (OSError, UsageError):
                continue
        self._changed.clear()


def _read(path: Path) -> dict[str, list[float]]:
    """The answers in a file; none where it is not there or not what was written."""
    try:
        content = parse_json(read_regular(path, limit=LARGEST_BYTES))
    except (OSError, ValueError):
        return {}
    if not isinstance(content, dict):
        return {}
    return {
        key: seconds
        for key, seconds in content.items()
        if isinstance(seconds, list) and seconds and all(_is_time(value) for value in seconds)
    }


def _is_time(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < float("inf")
