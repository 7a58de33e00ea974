"""Bounds that no efficiency can exceed: by the wire, by the memory and by the loader.

All are relative to base case (a), 1 rank without a communication layer, whose step takes C seconds for the samples
of one rank:

    wire     W = 2 (n - 1) / n * S / B    S bytes of gradients, n nodes that send B bytes per second each
    memory   W = 2 (r S - K) / M          r ranks of a node read their gradients once and write the sums once, but for K
                                          bytes that its caches may keep; M bytes per second of memory, all ranks
                                          copying at once
    loader   C / L                        fetching a step's samples takes L seconds

With W seconds of traffic the bound is min(1, C / W) if the exchange is overlapped with the computation, C / (C + W)
if it follows it (`network_bound`). A bound that is not known is None, with the reason: never 1. The sentences and
the columns stand below the arithmetic.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from dlscale.analysis.families import Family, base_cell
from dlscale.analysis.findings.communication_only import NodesOf, cache_bytes, copy_rates
from dlscale.analysis.records import CellTimes, cell_times, latest_good, options_text
from dlscale.analysis.render.text import size_text
from dlscale.base.errors import UsageError
from dlscale.benchmarks.records.record import Cell, Record
from dlscale.models import load_workload

FLOAT32_BYTES, BFLOAT16_BYTES = 4, 2  # of a gradient on its way; float32 unless a backend says otherwise


@dataclass(frozen=True, slots=True, kw_only=True)
class Rate:
    """Bytes per second, and who says so."""

    bytes_per_second: float
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """`efficiency` is None where it is not known; `words` say what it was computed from, or why it is not known."""

    kind: Literal["wire", "memory", "loader"]
    efficiency: float | None
    seconds: float | None  # that a step needs for it at least
    words: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Of one cell, in the order wire, memory, loader."""

    cell: Cell
    family: Family
    evidence: str
    found: tuple[Limit, ...]


def lowest_of(found: Iterable[Limit]) -> Limit | None:
    """The one that binds; None if none is known."""
    known = [one for one in found if one.efficiency is not None]
    return min(known, key=lambda one: one.efficiency or 0.0, default=None)


def efficiency_limits(records: Iterable[Record], *, memory: Rate | None = None) -> tuple[Limits, ...]:
    """One for each training on more than 1 rank that gave a number.

    `memory` is what a node's memory moves, by somebody else's measurement; without it the copies count that were
    measured beside an exchange alone.
    """
    good = latest_good(records)
    samples = {(record.system, record.case.cell.id): record for record in good}
    everything, copies = cell_times(good, controls={"train", "loader"}), copy_rates(good)
    found = []
    for one in everything:
        if one.cell.control == "train" and one.cell.num_ranks > 1:
            sample = samples[one.family.system, one.cell.id]
            compute = _compute_seconds(one, everything)
            moved = memory or _copied(one, copies)
            exchange = [_wire(one, sample, compute), _memory(one, sample, compute, moved)]
            found.append(
                Limits(
                    cell=one.cell,
                    family=one.family,
                    evidence=one.evidence,
                    found=(*exchange, _loader(one, everything, compute)),
                )
            )
    return tuple(found)


def gradient_bytes(record: Record) -> int | None:
    """Of one rank's gradients, as they travel; None for a workload that is not known here."""
    cell = record.case.cell
    try:
        parameters = load_workload(cell.workload).preset(cell.preset).num_parameters
    except UsageError:
        return None
    return parameters * (
        BFLOAT16_BYTES if record.backend_settings.get("wire") == "bfloat16" else FLOAT32_BYTES
    )


def _compute_seconds(one: CellTimes, others: Sequence[CellTimes]) -> float | None:
    """The base case's step, for as many samples as a rank of `one` trains on; geometric mean over launches."""
    family = [other for other in others if other.family == one.family]
    base = base_cell(one.cell, [other.cell for other in family], same_backend=False)
    launches = next((other for other in family if other.cell == base), None)
    if base is None or launches is None:
        return None
    return _typical(launches) * one.cell.local_batch / base.local_batch


def _wire(one: CellTimes, record: Record, compute: float | None) -> Limit:
    cell = one.cell
    num_bytes = gradient_bytes(record)
    stated = record.configuration.fabric.get("bandwidth") if record.configuration else None
    reason = _no_exchange(cell, num_bytes, compute)
    if not reason and cell.num_nodes == 1:
        reason = "one node: no gradient goes over the network"
    if not reason and one.evidence == "emulated":
        reason = "emulated: the nodes do not have the network that the system's file states"
    if not reason and not isinstance(stated, int | float):
        reason = "the system's file states no bandwidth of the network"
    if reason or num_bytes is None or compute is None or stated is None:
        return _unknown("wire", reason)
    rate = float(stated)
    traffic = network_bound(
        num_nodes=cell.num_nodes,
        num_ranks=cell.num_ranks,
        compute_seconds=compute,
        gradient_bytes=num_bytes,
        bytes_per_second=rate,
    )
    amount = f"2 (n - 1) / n x {num_bytes / 1e6:.3g} MB of gradients"
    return _limit(
        "wire", traffic, record, f"{amount} at {rate / 1e9:.3g} GB/s per node, as the system's file states"
    )


def _copied(one: CellTimes, copies: Mapping[NodesOf, float]) -> Rate | str:
    """What a node's memory moves, or why nobody knows: copies are made by one thread of each rank."""
    cell = one.cell
    found = copies.get((one.family, cell.num_ranks, cell.num_nodes, one.evidence))
    if found is None:
        return f"what memory moves was not measured on {cell.num_ranks} ranks"
    if cell.cores_per_rank > 1:
        return f"copies by one thread per rank, of {cell.cores_per_rank} cores, do not say what memory moves"
    return Rate(bytes_per_second=found, source="all ranks copying at once")


def _memory(one: CellTimes, record: Record, compute: float | None, memory: Rate | str) -> Limit:
    cell = one.cell
    num_bytes, cache = gradient_bytes(record), cache_bytes(record)
    ranks = math.ceil(cell.num_ranks / cell.num_nodes)
    reason = _no_exchange(cell, num_bytes, compute)
    if not reason and ranks == 1:
        reason = "one rank per node"
    if not reason and num_bytes and ranks * num_bytes <= cache:
        reason = f"{ranks * num_bytes / 1e6:.3g} MB of gradients fit into {size_text(cache)} of cache"
    if not reason and isinstance(memory, str):
        reason = memory
    if reason or num_bytes is None or compute is None or isinstance(memory, str):
        return _unknown("memory", reason)
    traffic = NetworkBound(
        num_nodes=cell.num_nodes,
        num_ranks=cell.num_ranks,
        compute_seconds=compute,
        wire_seconds=2 * (ranks * num_bytes - cache) / memory.bytes_per_second,
    )
    own = f"{ranks} ranks x {num_bytes / 1e6:.3g} MB of gradients"
    amount = f"2 x ({own} - {size_text(cache)} of cache)" if cache else f"2 x {own}, if no cache keeps them,"
    words = f"{amount} at {memory.bytes_per_second / 1e9:.3g} GB/s of memory ({memory.source})"
    return _limit("memory", traffic, record, words)


def _loader(one: CellTimes, others: Sequence[CellTimes], compute: float | None) -> Limit:
    cell = one.cell
    if cell.data == "synthetic":
        return _unknown("loader", "no data are read")
    if compute is None:
        return _unknown("loader", "base case (a), none on 1 rank, was not measured")
    fetching = [
        other
        for other in others
        if (other.family, other.cell.control, other.cell.num_ranks) == (one.family, "loader", cell.num_ranks)
    ]
    if not fetching:
        return _unknown("loader", f"fetching alone was not measured on {cell.num_ranks} ranks")
    seconds = _typical(min(fetching, key=lambda other: other.evidence != one.evidence))
    rate = cell.global_batch / seconds
    return Limit(
        kind="loader",
        efficiency=min(1.0, compute / seconds),
        seconds=seconds,
        words=f"{cell.num_ranks} ranks that only fetch get {rate:.3g} samples/s",
    )


def _no_exchange(cell: Cell, num_bytes: int | None, compute: float | None) -> str:
    """Why there is no bound on an exchange at all; empty if there may be one."""
    if cell.backend == "none":
        return "nothing is exchanged"
    if cell.num_servers:
        return "servers: what goes over a link depends on where they are"
    if num_bytes is None:
        return f"the size of {cell.workload} ({cell.preset}) is not known here"
    return "" if compute else "base case (a), none on 1 rank, was not measured"


def _limit(kind: Literal["wire", "memory"], traffic: NetworkBound, record: Record, words: str) -> Limit:
    in_line = record.backend_settings.get("overlap") is False
    how = "in line after the computation" if in_line else "all of it hidden"
    return Limit(
        kind=kind,
        efficiency=traffic.exposed if in_line else traffic.hidden,
        seconds=traffic.wire_seconds,
        words=f"{words}, {how}",
    )


def _unknown(kind: Literal["wire", "memory", "loader"], reason: str) -> Limit:
    return Limit(kind=kind, efficiency=None, seconds=None, words=reason)


def _typical(launches: CellTimes) -> float:
    return float(np.exp(np.mean(np.log(list(launches.seconds("world").values())))))


def bound_sentence(cell: Cell, found: Sequence[Limit]) -> str:
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


def bound_columns(found: Iterable[Limit]) -> dict[str, float | None]:
    """`bound_wire`, `bound_memory` and `bound_loader`, as efficiencies; None where not known."""
    known = {limit.kind: limit.efficiency for limit in found}
    return {f"bound_{kind}": known.get(kind) for kind in ("wire", "memory", "loader")}


def loosest_bounds(found: Sequence[tuple[int, Limit]]) -> dict[str, list[tuple[int, float]]]:
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


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkBound:
    """The limits of one size; efficiencies as fractions of 1."""

    num_nodes: int
    num_ranks: int
    compute_seconds: float  # of a step, on one rank
    wire_seconds: float

    @property
    def hidden(self) -> float:
        """With all of the exchange beside the computation."""
        return min(1.0, self.compute_seconds / self.wire_seconds) if self.wire_seconds else 1.0

    @property
    def exposed(self) -> float:
        """With all of it after the computation."""
        return self.compute_seconds / (self.compute_seconds + self.wire_seconds)


def network_bound(
    *, num_nodes: int, num_ranks: int, compute_seconds: float, gradient_bytes: int, bytes_per_second: float
) -> NetworkBound:
    """The bound of one size; `bytes_per_second` is what one node can send, per direction."""
    wire = 2 * (num_nodes - 1) / num_nodes * gradient_bytes / bytes_per_second
    return NetworkBound(
        num_nodes=num_nodes, num_ranks=num_ranks, compute_seconds=compute_seconds, wire_seconds=wire
    )
