"""What can be compared: the factors of a study, and what their values are called."""

from __future__ import annotations

from collections.abc import Sequence

from dlscale.analysis.comparison.fields import table
from dlscale.analysis.words import backend_name
from dlscale.benchmarks.record import Cell
from dlscale.models.errors import UsageError

# Of a cell. Two values of any other field do another work, or are another size.
FACTORS = (
    *("backend", "framework", "environment", "precision", "compiled", "memory_format", "device", "data"),
    *("batch", "num_servers", "cores_per_rank", "threads_per_rank"),
)


def check_factor(name: str) -> str:
    """`name` as it is; `servers` is `num_servers`. Raises UsageError for one that cannot be compared inside a study."""
    name = {"servers": "num_servers", "local_batch": "batch", "global_batch": "batch"}.get(name, name)
    if name not in FACTORS:
        raise UsageError(f"no factor {name!r} to compare inside a study; choose one of: {', '.join(FACTORS)}")
    return name


def fields_of(factor: str) -> frozenset[str]:
    """The fields of a cell that differ with the factor: its own, and those that follow from it."""
    known = table()
    own = known.factors([factor])
    return own.union(*(known.follows.get(name, ()) for name in own)) & Cell.model_fields.keys()


def level_of(cell: Cell, factor: str) -> str:
    """The factor's value, in words: `ring`, `grpc_ps, 2 servers`, `tensorflow`, `bf16`."""
    if factor == "backend":
        servers = f", {cell.num_servers} server{'s' * (cell.num_servers > 1)}" if cell.num_servers else ""
        return backend_name(cell) + servers
    if factor == "batch":
        weak = cell.scaling_mode == "weak"
        return f"{cell.local_batch} per rank" if weak else f"{cell.global_batch} in all"
    if factor == "compiled":
        return "compiled" if cell.compiled else "not compiled"
    return str(getattr(cell, factor))


def find_level(word: str, levels: Sequence[str], *, factor: str) -> str:
    """The level that a user means: its name, or the beginning of just one. Raises UsageError with all of them."""
    if word in levels:
        return word
    matching = [level for level in levels if level.startswith(word)]
    if len(matching) == 1:
        return matching[0]
    what = "no" if not matching else "several values begin with"
    raise UsageError(f"{what} {word!r} of {factor} in these records; choose one of: {', '.join(levels)}")
