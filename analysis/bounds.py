"""What no efficiency can exceed: bounds by the wire, by the memory and by the loader (M33).

All are relative to base case (a), 1 rank without a communication layer, whose step takes C seconds for the samples of
one rank:

    wire     W = 2 (n - 1) / n * S / B    S bytes of gradients, n nodes that send B bytes per second each
    memory   W = 2 (r S - K) / M          r ranks of a node read their gradients once and write the sums once, but for K
                                          bytes that its caches may keep; M bytes per second of memory, all ranks
                                          copying at once
    loader   C / L                        fetching a step's samples takes L seconds

With W seconds of traffic the bound is min(1, C / W) if the exchange is hidden behind the computation, C / (C + W) if it
is in line after it. A bound that is not known is None, with the reason: never 1.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from dlscale.analysis.collectives.words import size
from dlscale.analysis.exchange.memory import Where, cache_bytes, copy_rates
from dlscale.analysis.family import Family, base_cell
from dlscale.analysis.rehearsal.bound import Bound, bound
from dlscale.analysis.waterfall.times import Launched, latest_good, launched
from dlscale.benchmarks.record import Cell, Record
from dlscale.models import load_workload
from dlscale.models.errors import UsageError

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


def limits(records: Iterable[Record], *, memory: Rate | None = None) -> tuple[Limits, ...]:
    """One for each training on more than 1 rank that gave a number.

    `memory` is what a node's memory moves, by somebody else's measurement; without it the copies count that were
    measured beside an exchange alone.
    """
    good = latest_good(records)
    samples = {(record.system, record.case.cell.id): record for record in good}
    everything, copies = launched(good, controls={"train", "loader"}), copy_rates(good)
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


def _compute_seconds(one: Launched, others: Sequence[Launched]) -> float | None:
    """The base case's step, for as many samples as a rank of `one` trains on; geometric mean over launches."""
    family = [other for other in others if other.family == one.family]
    base = base_cell(one.cell, [other.cell for other in family], same_backend=False)
    launches = next((other for other in family if other.cell == base), None)
    if base is None or launches is None:
        return None
    return _typical(launches) * one.cell.local_batch / base.local_batch


def _wire(one: Launched, record: Record, compute: float | None) -> Limit:
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
    traffic = bound(
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


def _copied(one: Launched, copies: Mapping[Where, float]) -> Rate | str:
    """What a node's memory moves, or why nobody knows: copies are made by one thread of each rank."""
    cell = one.cell
    found = copies.get((one.family, cell.num_ranks, cell.num_nodes, one.evidence))
    if found is None:
        return f"what memory moves was not measured on {cell.num_ranks} ranks"
    if cell.cores_per_rank > 1:
        return f"copies by one thread per rank, of {cell.cores_per_rank} cores, do not say what memory moves"
    return Rate(bytes_per_second=found, source="all ranks copying at once")


def _memory(one: Launched, record: Record, compute: float | None, memory: Rate | str) -> Limit:
    cell = one.cell
    num_bytes, cache = gradient_bytes(record), cache_bytes(record)
    ranks = math.ceil(cell.num_ranks / cell.num_nodes)
    reason = _no_exchange(cell, num_bytes, compute)
    if not reason and ranks == 1:
        reason = "one rank per node"
    if not reason and num_bytes and ranks * num_bytes <= cache:
        reason = f"{ranks * num_bytes / 1e6:.3g} MB of gradients fit into {size(cache)} of cache"
    if not reason and isinstance(memory, str):
        reason = memory
    if reason or num_bytes is None or compute is None or isinstance(memory, str):
        return _unknown("memory", reason)
    traffic = Bound(
        num_nodes=cell.num_nodes,
        num_ranks=cell.num_ranks,
        compute_seconds=compute,
        wire_seconds=2 * (ranks * num_bytes - cache) / memory.bytes_per_second,
    )
    own = f"{ranks} ranks x {num_bytes / 1e6:.3g} MB of gradients"
    amount = f"2 x ({own} - {size(cache)} of cache)" if cache else f"2 x {own}, if no cache keeps them,"
    words = f"{amount} at {memory.bytes_per_second / 1e9:.3g} GB/s of memory ({memory.source})"
    return _limit("memory", traffic, record, words)


def _loader(one: Launched, others: Sequence[Launched], compute: float | None) -> Limit:
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


def _limit(kind: Literal["wire", "memory"], traffic: Bound, record: Record, words: str) -> Limit:
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


def _typical(launches: Launched) -> float:
    return float(np.exp(np.mean(np.log(list(launches.seconds("world").values())))))
