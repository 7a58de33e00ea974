"""What an engine answers: how long one exchange takes on a network, for several sizes of message."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from dlscale.analysis.predict.network import Network, Placement, Routing

Algorithm = Literal[
    "ring", "two_level_ring", "recursive_doubling", "halving_doubling", "tree", "parameter_servers"
]


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkExchange:
    """One kind of exchange: each node holds `ranks_per_node` ranks; `num_servers` is of parameter servers only.

    Servers are processes on further nodes, `ranks_per_node` of them on each.
    """

    algorithm: Algorithm
    num_nodes: int
    ranks_per_node: int = 1
    num_servers: int = 0
    placement: Placement = "packed"
    routing: Routing = "adaptive"
    seed: int = 0  # of a scattered placement


Method = Literal["flows", "fullest link"]  # simulated, or by the link of each phase that takes longest


class Engine(Protocol):
    """A model of the network."""

    name: str  # "simgrid" or "loggp"
    version: str

    def exchange_seconds(
        self, network: Network, exchange: NetworkExchange, sizes: Sequence[int]
    ) -> list[float]:
        """Seconds of the exchange for each of `sizes` in bytes, alone on the network and free of noise."""
        ...

    def method(self, exchange: NetworkExchange) -> Method:
        """How its time is found; an engine that simulates flows may have to leave the largest exchanges to formulas."""
        ...
