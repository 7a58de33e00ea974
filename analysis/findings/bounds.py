"""Upper bounds of efficiency: by the wire, by the memory and by the loader.

All are relative to 1 rank without communication, whose step takes C seconds for the samples
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

from dlscale.analysis.families import Family
from dlscale.analysis.findings.communication_only import NodesOf, cache_bytes, copy_rates
from dlscale.analysis.launches import CellLaunches
from dlscale.analysis.measured import Measured
from dlscale.analysis.metrics import metrics_of
from dlscale.analysis.records import wire_share
from dlscale.analysis.text import backend_name, listed, plural, size_text
from dlscale.base.errors import UsageError
from dlscale.benchmarks.records.cell import Cell
from dlscale.benchmarks.records.record import Record
from dlscale.collectives.algorithms.registry import SYNC
from dlscale.collectives.sharding import PARAMETERS

# Bytes per gradient as it is sent; float32 unless the backend reports otherwise.
FLOAT32_BYTES, BFLOAT16_BYTES = 4, 2
ONE_NODE, NO_DATA = "one node: no gradient goes over the network", "no data are read"
NO_BASE = "none on 1 rank was not measured"
Kind = Literal["wire", "memory", "loader"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """A bound of one kind. `efficiency` is None if unknown; `words` give the inputs, or why it is unknown."""

    kind: Kind
    efficiency: float | None
    seconds: float | None  # the least that a step needs for it
    words: str


Limits = tuple[Limit, ...]  # of one cell, in the order wire, memory, loader


def lowest_of(limits: Iterable[Limit]) -> Limit | None:
    """The lowest of the known bounds; None if none is known."""
    known = [limit for limit in limits if limit.efficiency is not None]
    return min(known, key=lambda limit: limit.efficiency or 0.0, default=None)


CellLimits = Mapping[tuple[Family, str, str], Limits]  # by family, id of the cell and kind of evidence


def efficiency_limits(measured: Measured) -> CellLimits:
    """The bounds of each training with a number, on more than 1 rank, whose base case is on 1."""
    everything, copies = measured.once(metrics_of), copy_rates(measured.exchanges)
    loaders: dict[tuple[Family, int], list[CellLaunches]] = {}
    for one in everything:
        cell = one.launches.cell
        if cell.control == "loader" and one.launches.cases:
            loaders.setdefault((one.launches.family, cell.num_ranks), []).append(one.launches)
    limits: dict[tuple[Family, str, str], Limits] = {}
    for one in everything:
        training, cell = one.launches, one.launches.cell
        if cell.control == "train" and cell.num_ranks > 1 == one.base_ranks and training.cases:
            sample, compute = training.records[-1], _compute_seconds(training, one.base)
            exchange = _exchanged(sample, compute)
            limits[training.family, training.id, one.evidence] = (
                _wire(training, sample, exchange),
                _memory(training, sample, exchange, copies),
                _loader(training, loaders.get((training.family, cell.num_ranks), ()), compute),
            )
    return limits


def gradient_bytes(record: Record) -> int | None:
    """Bytes of one rank's gradients as they are sent; None for an unknown workload."""
    cell = record.case.cell
    try:
        parameters = cell.preset_facts.num_parameters
    except UsageError:
        return None
    if "wire_bytes" in record.backend_settings and (share := wire_share(record)) is not None:
        return round(parameters * FLOAT32_BYTES * share)  # compressed
    half = record.backend_settings.get("wire") == "bfloat16"
    return parameters * (BFLOAT16_BYTES if half else FLOAT32_BYTES)


def _compute_seconds(training: CellLaunches, base: CellLaunches | None) -> float | None:
    """The base case's step for as many samples as a rank of `training` has; geometric mean over launches."""
    return None if base is None else _typical(base) * training.cell.rank_work / base.cell.rank_work


Exchange = tuple[int, float]  # bytes of one rank's gradients, seconds of the base case's step


def _exchanged(record: Record, compute: float | None) -> Exchange | str:
    """What bounds on an exchange rest on, or why there is none."""
    cell, num_bytes = record.case.cell, gradient_bytes(record)
    if cell.backend == "none":
        return "nothing is exchanged"
    if cell.algorithm != SYNC:
        return "gradients are not exchanged: weights are, in some of the steps"
    if cell.shard == PARAMETERS:
        return "weights are gathered, too: bounds are of gradients alone"
    if cell.num_servers:
        return "servers: what goes over a link depends on where they are"
    if num_bytes is None:
        return f"the size of {cell.workload} ({cell.preset}) is not known here"
    return (num_bytes, compute) if compute else NO_BASE


def _wire(training: CellLaunches, record: Record, exchange: Exchange | str) -> Limit:
    cell, configuration = training.cell, record.configuration
    stated = configuration.fabric.get("bandwidth") if configuration else None
    if isinstance(exchange, str):
        return _unknown("wire", exchange)
    if cell.num_nodes == 1:
        return _unknown("wire", ONE_NODE)
    if training.evidence == "emulated" and not (configuration and configuration.emulation):
        return _unknown("wire", "emulated: the nodes do not have the network that the system's file states")
    if not isinstance(stated, int | float):
        return _unknown("wire", "the system's file states no bandwidth of the network")
    num_bytes, compute = exchange
    traffic = network_bound(
        num_nodes=cell.num_nodes,
        num_ranks=cell.num_ranks,
        compute_seconds=compute,
        gradient_bytes=num_bytes,
        bytes_per_second=float(stated),
    )
    amount = f"2 (n - 1) / n x {num_bytes / 1e6:.3g} MB of gradients"
    return _limit(
        "wire", traffic, record, f"{amount} at {stated / 1e9:.3g} GB/s per node, as the system's file states"
    )


def _memory(
    training: CellLaunches, record: Record, exchange: Exchange | str, copies: Mapping[NodesOf, float]
) -> Limit:
    """One thread of each rank makes the copies that tell a node's memory bandwidth."""
    cell, cache = training.cell, cache_bytes(record)
    ranks = math.ceil(cell.num_ranks / cell.num_nodes)
    moved = copies.get((training.family, cell.num_ranks, cell.num_nodes, training.evidence))
    if isinstance(exchange, str):
        return _unknown("memory", exchange)
    num_bytes, compute = exchange
    if ranks == 1:
        return _unknown("memory", "one rank per node")
    if ranks * num_bytes <= cache:
        fits = f"{ranks * num_bytes / 1e6:.3g} MB of gradients fit into {size_text(cache)} of cache"
        return _unknown("memory", fits)
    if moved is None:
        return _unknown("memory", f"what memory moves was not measured on {cell.num_ranks} ranks")
    if cell.cores_per_rank > 1:
        threads = (
            f"copies by one thread per rank, of {cell.cores_per_rank} cores, do not say what memory moves"
        )
        return _unknown("memory", threads)
    traffic = NetworkBound(
        num_nodes=cell.num_nodes,
        num_ranks=cell.num_ranks,
        compute_seconds=compute,
        wire_seconds=2 * (ranks * num_bytes - cache) / moved,
    )
    own = f"{ranks} ranks x {num_bytes / 1e6:.3g} MB of gradients"
    amount = f"2 x ({own} - {size_text(cache)} of cache)" if cache else f"2 x {own}, if no cache keeps them,"
    words = f"{amount} at {moved / 1e9:.3g} GB/s of memory (all ranks copying at once)"
    return _limit("memory", traffic, record, words)


def _loader(training: CellLaunches, fetching: Sequence[CellLaunches], compute: float | None) -> Limit:
    cell = training.cell
    if cell.data == "synthetic":
        return _unknown("loader", NO_DATA)
    if compute is None:
        return _unknown("loader", NO_BASE)
    if not fetching:
        return _unknown("loader", f"fetching alone was not measured on {cell.num_ranks} ranks")
    seconds = _typical(min(fetching, key=lambda launches: launches.evidence != training.evidence))
    rate = f"{cell.global_batch / seconds:.3g} samples/s"
    return Limit(
        kind="loader",
        efficiency=min(1.0, compute / seconds),
        seconds=seconds,
        words=f"{cell.num_ranks} ranks that only fetch get {rate}",
    )


def _limit(kind: Kind, traffic: NetworkBound, record: Record, words: str) -> Limit:
    in_line = record.backend_settings.get("overlap") is False
    how = "not overlapped with the computation" if in_line else "all of it overlapped"
    return Limit(
        kind=kind,
        efficiency=traffic.exposed if in_line else traffic.hidden,
        seconds=traffic.wire_seconds,
        words=f"{words}, {how}",
    )


def _unknown(kind: Kind, reason: str) -> Limit:
    return Limit(kind=kind, efficiency=None, seconds=None, words=reason)


def _typical(launches: CellLaunches) -> float:
    return float(np.exp(np.mean(np.log(list(launches.world.values())))))


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
        free.setdefault((cell.num_ranks, known, _missing(limits)), []).append(backend_name(cell))
    for (num_ranks, known, unknown), names in free.items():
        what = f"neither {' nor '.join(known)} limits" if len(known) > 1 else f"{known[0]} does not limit"
        text = f"{what} {listed(names)} on {plural(num_ranks, 'rank')}"
        sentences.append(f"{'; '.join([text[0].upper() + text[1:], *unknown])}.")
    return sentences


_CAUSES = {"wire": "the network", "memory": "memory", "loader": "input"}


def _missing(limits: Iterable[Limit]) -> tuple[str, ...]:
    """The bounds that are not known, but for those that there cannot be: one node has no network, for example."""
    unknown = (limit for limit in limits if limit.efficiency is None)
    return tuple(
        f"{one.kind} not known: {one.words}" for one in unknown if one.words not in (ONE_NODE, NO_DATA)
    )


def bound_sentence(cell: Cell, limits: Sequence[Limit]) -> str:
    """`ring on 8 ranks cannot keep more than 87 %; wire 87 % (...); loader 100 %; memory not known: ... .`"""
    subject = f"{backend_name(cell)} on {cell.num_ranks} ranks"
    lowest, unknown = lowest_of(limits), _missing(limits)
    if lowest is None:
        return f"{'; '.join([f'{subject}: no bound is known', *unknown])}."
    higher = [_known(limit) for limit in limits if limit.efficiency is not None and limit is not lowest]
    details = "; ".join([f"{_known(lowest)} ({lowest.words})", *higher, *unknown])
    return f"{subject} cannot keep more than {_percent(lowest)}; {details}."


def bound_columns(limits: Iterable[Limit]) -> dict[str, float | None]:
    """`bound_wire`, `bound_memory` and `bound_loader`, as efficiencies; None where not known."""
    known = {limit.kind: limit.efficiency for limit in limits}
    return {f"bound_{kind}": known.get(kind) for kind in ("wire", "memory", "loader")}


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
