"""What the memory of a node moves while all of its ranks copy at once."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from dlscale.analysis.exchange.alone import CONTROL
from dlscale.analysis.family import Family, family_of
from dlscale.analysis.waterfall.times import latest_good
from dlscale.benchmarks.record import Record

Where = tuple[Family, int, int, str]  # family, ranks, nodes, kind of evidence


def copy_rates(records: Iterable[Record]) -> dict[Where, float]:
    """Bytes per second, read and written, of the slowest node: the sum over its ranks, the median over launches.

    Launches of all backends count, for none of them takes part in the copies.
    """
    found: dict[Where, dict[str, list[float]]] = {}
    for record in latest_good(records):
        cell = record.case.cell
        if cell.control != CONTROL or len(record.copy_rates) != cell.num_ranks:
            continue
        nodes: dict[str, float] = {}
        for rank in record.ranks:
            if rank.rank < cell.num_ranks:
                nodes[rank.node] = nodes.get(rank.node, 0.0) + record.copy_rates[rank.rank]
        where = (family_of(cell, system=record.system), cell.num_ranks, cell.num_nodes, record.evidence)
        for node, rate in nodes.items():
            found.setdefault(where, {}).setdefault(node, []).append(rate)
    return {where: min(float(np.median(rates)) for rates in nodes.values()) for where, nodes in found.items()}


def cache_bytes(record: Record) -> int:
    """What a node's caches hold, the smallest node's; 0 where it is not known of all nodes."""
    found = [node.cache_bytes for node in record.nodes]
    return min((one for one in found if one), default=0) if all(found) else 0
