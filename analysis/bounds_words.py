"""Bounds in plain words and as columns."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from dlscale.analysis.bounds import Limit, lowest_of
from dlscale.analysis.frame import options_text
from dlscale.benchmarks.record import Cell


def sentence(cell: Cell, found: Sequence[Limit]) -> str:
    """`ring on 8 ranks cannot keep more than 87 %; wire 87 % (...); loader 100 %; memory not known: ... .`"""
    options = options_text(cell)
    name = f"{cell.backend} ({options})" if options else cell.backend
    subject = f"{name} on {cell.num_ranks} ranks"
    lowest = lowest_of(found)
    unknown = [f"{limit.kind} not known: {limit.words}" for limit in found if limit.efficiency is None]
    if lowest is None:
        return f"{subject}: no bound is known; {'; '.join(unknown)}."
    others = [_known(limit) for limit in found if limit.efficiency is not None and limit is not lowest]
    told = "; ".join([f"{_known(lowest)} ({lowest.words})", *others, *unknown])
    if _percent(lowest) == "100 %":
        return f"{subject}: no known bound is below 100 %; {told}."
    return f"{subject} cannot keep more than {_percent(lowest)}; {told}."


def columns(found: Iterable[Limit]) -> dict[str, float | None]:
    """`bound_wire`, `bound_memory` and `bound_loader`, as efficiencies; None where not known."""
    known = {limit.kind: limit.efficiency for limit in found}
    return {f"bound_{kind}": known.get(kind) for kind in ("wire", "memory", "loader")}


def loosest(found: Sequence[tuple[int, Limit]]) -> dict[str, list[tuple[int, float]]]:
    """Kind -> (number of ranks, efficiency) that nobody exceeds: of several backends' bounds the highest.

    A kind that is not known for all of those on some number of ranks has no point there: the unknown one may be higher.
    """
    best: dict[tuple[str, int], float | None] = {}
    for num_ranks, limit in found:
        key = (limit.kind, num_ranks)
        known = None if limit.efficiency is None else max(limit.efficiency, best.get(key) or 0.0)
        best[key] = None if key in best and best[key] is None else known
    points: dict[str, list[tuple[int, float]]] = {}
    for (kind, num_ranks), efficiency in sorted(best.items()):
        if efficiency is not None:
            points.setdefault(kind, []).append((num_ranks, efficiency))
    return points


def _known(limit: Limit) -> str:
    return f"{limit.kind} {_percent(limit)}"


def _percent(limit: Limit) -> str:
    return f"{100 * (limit.efficiency or 0.0):.3g} %"
