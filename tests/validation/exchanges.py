"""Predicted times of exchanges versus closed forms, and versus SMPI's replays of MPI's algorithms (`smpi_times.csv`).

Replays are of one switch, and of groups of nodes that share links, where the order of distances counts.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pandas as pd

from dlscale.analysis.predict.exchange import NetworkExchange, cost
from dlscale.analysis.predict.network import Groups, Network
from dlscale.analysis.render.text import markdown
from dlscale.analysis.text import size_text

CLOSED_FORM_TOLERANCE, REPLAY_TOLERANCE = 0.005, 0.01
SIZES = (2**20, 25 * 2**20)
RANKS = (2, 16, 256)
REPLAYED = Path(__file__).with_name("smpi_times.csv")

STAR = Network(
    name="one switch",
    num_nodes=1024,
    node_bytes_per_second=10e9,
    latency_seconds=2e-6,
    node_memory_bytes_per_second=None,
    reduce_seconds_per_byte=1e-10,
)
# SMPI's replay does not charge sums. A pair of groups is slower than a group, and that than its nodes.
UNCHARGED = replace(STAR, reduce_seconds_per_byte=0.0)
GROUPS_OF_16 = Groups(
    num_groups=64,
    nodes_per_group=16,
    group_bytes_per_second=60e9,
    pair_bytes_per_second=10e9,
    extra_latency_seconds=1e-6,
)
GROUPS_OF_8 = replace(
    GROUPS_OF_16, num_groups=8, nodes_per_group=8, group_bytes_per_second=20e9, pair_bytes_per_second=5e9
)
NETWORKS = {
    network.name: network
    for network in (
        UNCHARGED,
        replace(UNCHARGED, name="groups of 16", groups=GROUPS_OF_16),
        replace(UNCHARGED, name="groups of 8", groups=GROUPS_OF_8),
    )
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """The predicted time of an exchange, and the one that it is held to."""

    network: Network
    exchange: NetworkExchange
    num_bytes: int
    reference: str  # what it is held to
    reference_seconds: float
    tolerance: float

    @property
    def error(self) -> float:
        """Predicted over reference, minus 1."""
        return cost(self.network, self.exchange).of(self.num_bytes) / self.reference_seconds - 1

    @property
    def passed(self) -> bool:
        """Whether the error is within the tolerance."""
        return abs(self.error) <= self.tolerance


def closed_form_seconds(network: Network, exchange: NetworkExchange, num_bytes: int) -> float:
    """The textbook's time on one switch: ring, halving and doubling, parameter servers on nodes of their own."""
    size, n = exchange.num_nodes, num_bytes
    rate, latency, adding = (
        network.node_bytes_per_second,
        network.latency_seconds,
        network.reduce_seconds_per_byte,
    )
    if exchange.algorithm == "parameter_servers":
        fullest = max(size / exchange.num_servers, 1.0)  # a server's link, or a worker's own
        return 2 * (latency + fullest * n / rate) + size / exchange.num_servers * n * adding
    share = (size - 1) / size
    steps = 2 * (size - 1) if exchange.algorithm == "ring" else 2 * math.log2(size)
    return steps * latency + 2 * share * n / rate + share * n * adding


def closed_form_checks() -> Iterator[Check]:
    """Three algorithms on one switch."""
    for size in RANKS:
        for exchange in (
            NetworkExchange(algorithm="ring", num_nodes=size),
            NetworkExchange(algorithm="halving_doubling", num_nodes=size),
            NetworkExchange(algorithm="parameter_servers", num_nodes=size, num_servers=1),
            NetworkExchange(algorithm="parameter_servers", num_nodes=size, num_servers=4),
        ):
            for num_bytes in SIZES:
                yield Check(
                    network=STAR,
                    exchange=exchange,
                    num_bytes=num_bytes,
                    reference="closed form",
                    reference_seconds=closed_form_seconds(STAR, exchange, num_bytes),
                    tolerance=CLOSED_FORM_TOLERANCE,
                )


def replay_checks() -> Iterator[Check]:
    """Every replayed all-reduce."""
    with REPLAYED.open(encoding="utf-8") as file:
        rows: list[dict[str, Any]] = list(csv.DictReader(line for line in file if not line.startswith("#")))
    for row in rows:
        yield Check(
            network=NETWORKS[row["network"]],
            exchange=NetworkExchange(
                algorithm=row["exchange"], num_nodes=int(row["ranks"]), routing=row["routing"]
            ),
            num_bytes=int(row["bytes"]),
            reference=f"SMPI {row['selector']}",
            reference_seconds=float(row["seconds"]),
            tolerance=REPLAY_TOLERANCE,
        )


def check_lines(checks: Sequence[Check]) -> list[str]:
    """Markdown: the verdict, and a row of each check that missed."""
    worst = max((check.error for check in checks), key=abs)
    passed = sum(check.passed for check in checks)
    columns = ["network", "exchange", "ranks", "bytes", "reference", "reference ms", "error"]
    cells = [
        [
            check.network.name + (", minimal routing" if check.exchange.routing == "minimal" else ""),
            _exchange_text(check.exchange),
            str(check.exchange.num_nodes),
            size_text(check.num_bytes),
            check.reference,
            f"{check.reference_seconds * 1e3:.3f}",
            f"{_percent(check.error)} (missed)",
        ]
        for check in checks
        if not check.passed
    ]
    verdict = (
        f"{passed} of {len(checks)} within {100 * checks[0].tolerance:g} %; the largest error is "
        f"{_percent(worst)}."
    )
    table = [*markdown(pd.DataFrame(cells, columns=columns)).splitlines(), ""] if cells else []
    return [verdict, "", *table]


def _exchange_text(exchange: NetworkExchange) -> str:
    count = exchange.num_servers
    servers = f", {count} server{'s' if count > 1 else ''}" if count else ""
    return f"{exchange.algorithm}{servers}".replace("_", " ")


def _percent(share: float) -> str:
    return f"{round(100 * share, 2) + 0.0:+.2f} %"  # + 0.0: no minus before a zero
