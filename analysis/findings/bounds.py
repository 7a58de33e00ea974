"""Upper bounds of efficiency: by the wire, by the memory and by the loader.

All are relative to base case (a), 1 rank without a communication layer, whose step takes C seconds for the samples
of one rank:

    wire     W = 2 (n - 1) / n * S / B    S bytes of gradients, n nodes that send B bytes per second each
    memory   W = 2 (r S - K) / M          r ranks of a node read their gradients once and write the sums once, except
                                          for K bytes that its caches may hold; M bytes per second of memory, all
                                          ranks copying at once
    loader   C / L                        fetching a step's samples takes L seconds

With W seconds of traffic the bound is min(1, C / W) if the exchange is overlapped with the computation, C / (C + W)
if it follows it (`network_bound`). An unknown bound is None, with the reason, and never 1. The sentences and the
columns come after the arithmetic.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from dlscale.analysis.families import Family, base_cell
from dlscale.analysis.findings.communication_only import NodesOf, cache_bytes, copy_rates
from dlscale.analysis.launches import CellLaunches, good_launches
from dlscale.analysis.records import settings_text, wire_share
from dlscale.analysis.text import backend_name, listed, plural, size_text
from dlscale.base.errors import UsageError
from dlscale.benchmarks.records.record import Cell, Record
from dlscale.collectives.algorithms.registry import SYNC

FLOAT32_BYTES, BFLOAT16_BYTES = (
    4,
    2,
)  # per gradient as it is sent; float32 unless the backend reports otherwise


ONE_NODE, NO_DATA = "one node: no gradient goes over the network", "no data are read"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rate:
    """Bytes per second, and their source."""

    bytes_per_second: float
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """A bound of one kind. `efficiency` is None if unknown; `words` give the inputs, or why it is unknown."""

    kind: Literal["wire", "memory", "loader"]
    efficiency: float | None
    seconds: float | None  # the least that a step needs for it
    words: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The bounds of one cell, in the order wire, memory, loader."""

    cell: Cell
    family: Family
    evidence: str
    found: tuple[Limit, ...]


def lowest_of(limits: Iterable[Limit]) -> Limit | None:
    """The lowest of the known bounds; None if none is known."""
    known = [limit for limit in limits if limit.efficiency is not None]
    return min(known, key=lambda limit: limit.efficiency or 0.0, default=None)


def efficiency_limits(measured: Sequence[CellLaunches], *, memory: Rate | None = None) -> tuple[Limits, ...]:
    """The bounds of each training on more than 1 rank that gave a number.

    `memory` is a node's memory bandwidth from an external measurement; without it, the copies are used that were
    measured in the launches of communication only.
    """
    everything, copies = good_launches(measured, controls={"train", "loader"}), copy_rates(measured)
    all_limits = []
    for launches in everything:
        if launches.cell.control == "train" and launches.cell.num_ranks > 1:
            sample = launches.records[-1]
            compute = _compute_seconds(launches, everything)
            moved = memory or _copied(launches, copies)
            exchange = [_wire(launches, sample, compute), _memory(launches, sample, compute, moved)]
            all_limits.append(
                Limits(
                    cell=launches.cell,
                    family=launches.family,
                    evidence=launches.evidence,
                    found=(*exchange, _loader(launches, everything, compute)),
                )
            )
    return tuple(all_limits)


def gradient_bytes(record: Record) -> int | None:
    """Bytes of one rank's gradients as they are sent; None for an unknown workload."""
    cell = record.case.cell
    try:
        parameters = cell.facts.preset(cell.preset).num_parameters
    except UsageError:
        return None
    if "wire_bytes" in record.backend_settings and (share := wire_share(record)) is not None:
        return round(parameters * FLOAT32_BYTES * share)  # compressed
    return parameters * (
        BFLOAT16_BYTES if record.backend_settings.get("wire") == "bfloat16" else FLOAT32_BYTES
    )


def _compute_seconds(training: CellLaunches, measured: Sequence[CellLaunches]) -> float | None:
    """The base case's step for as many samples as a rank of `training` has; geometric mean over launches."""
    family = [member for member in measured if member.family == training.family]
    base = base_cell(training.cell, [member.cell for member in family], same_backend=False)
    launches = next((member for member in family if member.cell == base), None)
    if base is None or launches is None:
        return None
    return _typical(launches) * training.cell.local_batch / base.local_batch


def _wire(training: CellLaunches, record: Record, compute: float | None) -> Limit:
    cell = training.cell
    num_bytes = gradient_bytes(record)
    stated = record.configuration.fabric.get("bandwidth") if record.configuration else None
    reason = _no_exchange(cell, num_bytes, compute)
    if not reason and cell.num_nodes == 1:
        reason = ONE_NODE
    emulated = record.configuration.emulation if record.configuration else {}
    if not reason and training.evidence == "emulated" and not emulated:
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


def _copied(training: CellLaunches, copies: Mapping[NodesOf, float]) -> Rate | str:
    """A node's memory bandwidth, or why it is not known: one thread of each rank makes the copies."""
    cell = training.cell
    bytes_per_second = copies.get((training.family, cell.num_ranks, cell.num_nodes, training.evidence))
    if bytes_per_second is None:
        return f"what memory moves was not measured on {cell.num_ranks} ranks"
    if cell.cores_per_rank > 1:
        return f"copies by one thread per rank, of {cell.cores_per_rank} cores, do not say what memory moves"
    return Rate(bytes_per_second=bytes_per_second, source="all ranks copying at once")


def _memory(training: CellLaunches, record: Record, compute: float | None, memory: Rate | str) -> Limit:
    cell = training.cell
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


def _loader(training: CellLaunches, measured: Sequence[CellLaunches], compute: float | None) -> Limit:
    cell = training.cell
    if cell.data == "synthetic":
        return _unknown("loader", NO_DATA)
    if compute is None:
        return _unknown("loader", "base case (a), none on 1 rank, was not measured")
    fetching = [
        launches
        for launches in measured
        if (launches.family, launches.cell.control, launches.cell.num_ranks)
        == (training.family, "loader", cell.num_ranks)
    ]
    if not fetching:
        return _unknown("loader", f"fetching alone was not measured on {cell.num_ranks} ranks")
    seconds = _typical(min(fetching, key=lambda launches: launches.evidence != training.evidence))
    rate = cell.global_batch / seconds
    return Limit(
        kind="loader",
        efficiency=min(1.0, compute / seconds),
        seconds=seconds,
        words=f"{cell.num_ranks} ranks that only fetch get {rate:.3g} samples/s",
    )


def _no_exchange(cell: Cell, num_bytes: int | None, compute: float | None) -> str:
    """The reason why there is no bound on an exchange; empty if there may be one."""
    if cell.backend == "none":
        return "nothing is exchanged"
    if cell.algorithm != SYNC:
        return "gradients are not exchanged: weights are, in some of the steps"
    if cell.num_servers:
        return "servers: what goes over a link depends on where they are"
    if num_bytes is None:
        return f"the size of {cell.workload} ({cell.preset}) is not known here"
    return "" if compute else "base case (a), none on 1 rank, was not measured"


def _limit(kind: Literal["wire", "memory"], traffic: NetworkBound, record: Record, words: str) -> Limit:
    in_line = record.backend_settings.get("overlap") is False
    how = "not overlapped with the computation" if in_line else "all of it overlapped"
    return Limit(
        kind=kind,
        efficiency=traffic.exposed if in_line else traffic.hidden,
        seconds=traffic.wire_seconds,
        words=f"{words}, {how}",
    )


def _unknown(kind: Literal["wire", "memory", "loader"], reason: str) -> Limit:
    return Limit(kind=kind, efficiency=None, seconds=None, words=reason)


def _typical(launches: CellLaunches) -> float:
    return float(np.exp(np.mean(np.log(list(launches.by_block("world").values())))))


def bound_sentences(bounded: Sequence[tuple[Cell, Sequence[Limit]]]) -> list[str]:
    """A sentence for each training that is limited, and one for all that are not and of which as much is known."""
    sentences = []
    free: dict[tuple[int, tuple[str, ...], tuple[str, ...]], list[str]] = {}
    for cell, limits in bounded:
        lowest = lowest_of(limits)
        if lowest is None or _percent(lowest) != "100 %":
            sentences.append(bound_sentence(cell, limits))
            continue
        known = tuple(_CAUSES[limit.kind] for limit in limits if limit.efficiency is not None)
        unknown = tuple(f"{limit.kind} not known: {limit.words}" for limit in limits if _is_missing(limit))
        free.setdefault((cell.num_ranks, known, unknown), []).append(backend_name(cell))
    for (num_ranks, known, unknown), names in free.items():
        what = f"neither {' nor '.join(known)} limits" if len(known) > 1 else f"{known[0]} does not limit"
        text = f"{what} {listed(names)} on {plural(num_ranks, 'rank')}"
        sentences.append(f"{'; '.join([text[0].upper() + text[1:], *unknown])}.")
    return sentences


_CAUSES = {"wire": "the network", "memory": "memory", "loader": "input"}


def _is_missing(limit: Limit) -> bool:
    """Whether a bound is unknown that there may be: one node has no network, and no data have no loader."""
    return limit.efficiency is None and limit.words not in (ONE_NODE, NO_DATA)


def bound_sentence(cell: Cell, limits: Sequence[Limit]) -> str:
    """`ring on 8 ranks cannot keep more than 87 %; wire 87 % (...); loader 100 %; memory not known: ... .`"""
    options = settings_text(cell.options)
    name = f"{cell.method} ({options})" if options else cell.method
    subject = f"{name} on {cell.num_ranks} ranks"
    lowest = lowest_of(limits)
    unknown = [f"{limit.kind} not known: {limit.words}" for limit in limits if _is_missing(limit)]
    if lowest is None and not unknown:
        return f"{subject}: nothing that is known limits it."
    if lowest is None:
        return f"{subject}: no bound is known; {'; '.join(unknown)}."
    higher = [_known(limit) for limit in limits if limit.efficiency is not None and limit is not lowest]
    details = "; ".join([f"{_known(lowest)} ({lowest.words})", *higher, *unknown])
    return f"{subject} cannot keep more than {_percent(lowest)}; {details}."


def bound_columns(limits: Iterable[Limit]) -> dict[str, float | None]:
    """`bound_wire`, `bound_memory` and `bound_loader`, as efficiencies; None where not known."""
    known = {limit.kind: limit.efficiency for limit in limits}
    return {f"bound_{kind}": known.get(kind) for kind in ("wire", "memory", "loader")}


def loosest_bounds(limits: Sequence[tuple[int, Limit]]) -> dict[str, list[tuple[int, float]]]:
    """Kind -> (number of ranks, efficiency), the highest of several backends' bounds.

    A kind has no point at a number of ranks where the bound of some backend is unknown: it may be higher.
    """
    best: dict[tuple[str, int], float | None] = {}
    for num_ranks, limit in limits:
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
    """The bounds of one number of ranks and nodes; efficiencies as fractions of 1."""

    num_nodes: int
    num_ranks: int
    compute_seconds: float  # of a step, on one rank
    wire_seconds: float

    @property
    def hidden(self) -> float:
        """The bound if all of the exchange is overlapped with the computation."""
        return min(1.0, self.compute_seconds / self.wire_seconds) if self.wire_seconds else 1.0

    @property
    def exposed(self) -> float:
        """The bound if all of the exchange follows the computation."""
        return self.compute_seconds / (self.compute_seconds + self.wire_seconds)


def network_bound(
    *, num_nodes: int, num_ranks: int, compute_seconds: float, gradient_bytes: int, bytes_per_second: float
) -> NetworkBound:
    """Compute the bound of the network; `bytes_per_second` is what one node can send, per direction."""
    wire = 2 * (num_nodes - 1) / num_nodes * gradient_bytes / bytes_per_second
    return NetworkBound(
        num_nodes=num_nodes, num_ranks=num_ranks, compute_seconds=compute_seconds, wire_seconds=wire
    )
