"""A network as SimGrid's platform file: one zone per group of nodes, explicit capacities between groups.

SimGrid's own dragonfly knows static minimal routes only, and cannot build machines with more groups than blades per
chassis, so groups are nested zones here: nodes with full-duplex links inside, and for each pair of groups a route

    group a's uplink -> the pair's link -> group b's uplink

whose middle is, with `minimal` routing, the pair's direct links, and with `adaptive` routing as much as a group has
in all. The truth lies between the two. Nodes of one switch share nothing but their own links.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable

from dlscale.analysis.predict.network import Network, Routing

_HEADER = "<?xml version='1.0'?>\n<!DOCTYPE platform SYSTEM \"https://simgrid.org/simgrid.dtd\">\n"


def host_name(node: int) -> str:
    """The name of a node in the platform."""
    return f"n-{node}"


def node_links(network: Network, node: int) -> tuple[str, str]:
    """Names of the node's own links, out and in."""
    name = f"g{group_of(network, node)}_link_{node}"
    return f"{name}_UP", f"{name}_DOWN"


def group_of(network: Network, node: int) -> int:
    """The group that a node belongs to; 0 for all where one switch joins them."""
    return node // network.groups.nodes_per_group if network.groups else 0


def platform_xml(
    network: Network, nodes: Iterable[int], *, routing: Routing = "adaptive", with_latency: bool = False
) -> str:
    """The platform with `nodes` alone: what the others could carry is in the groups' links.

    Links have no latency by default: the engine adds it per step, exactly, and SimGrid would give flows of a longer
    route a smaller share of a full link. `with_latency` is for programs that SimGrid itself runs.
    """
    members: dict[int, list[int]] = {}
    for node in sorted(set(nodes)):
        members.setdefault(group_of(network, node), []).append(node)
    # Half of a message's latency on the way out, half on the way in.
    latency = network.latency_seconds / 2 if with_latency else 0.0
    lines = [f'{_HEADER}<platform version="4.1"><zone id="all" routing="Full">']
    for group, here in members.items():
        router = f' router_id="R{group}"' if network.groups else ""
        lines.append(
            f'<cluster id="g{group}" prefix="n-" suffix="" radical="{_radical(here)}" speed="1Gf" '
            f'bw="{_rate(network.node_bytes_per_second)}" lat="{latency!r}s" sharing_policy="SPLITDUPLEX"{router}/>'
        )
    if network.groups:
        pairs = list(itertools.combinations(members, 2))
        across = network.groups.group_bytes_per_second
        between = network.groups.pair_bytes_per_second if routing == "minimal" else across
        further = network.groups.extra_latency_seconds if with_latency else 0.0
        lines += [_link(f"up{group}", across, 0.0) for group in members]
        lines += [_link(f"p{a}_{b}", between, further) for a, b in pairs]
        lines += [
            f'<zoneRoute src="g{a}" dst="g{b}" gw_src="R{a}" gw_dst="R{b}"><link_ctn id="up{a}" direction="UP"/>'
            f'<link_ctn id="p{a}_{b}" direction="UP"/><link_ctn id="up{b}" direction="DOWN"/></zoneRoute>'
            for a, b in pairs
        ]
    return "\n".join([*lines, "</zone></platform>\n"])


def _link(name: str, bytes_per_second: float, latency: float) -> str:
    return (
        f'<link id="{name}" bandwidth="{_rate(bytes_per_second)}" latency="{latency!r}s" '
        'sharing_policy="SPLITDUPLEX"/>'
    )


def _rate(bytes_per_second: float) -> str:
    return f"{bytes_per_second!r}Bps"


def _radical(nodes: list[int]) -> str:
    """Sorted numbers as ranges: 0-5,7,9."""
    parts = []
    for _, run in itertools.groupby(enumerate(nodes), lambda pair: pair[1] - pair[0]):
        numbers = [node for _, node in run]
        parts.append(f"{numbers[0]}-{numbers[-1]}" if len(numbers) > 1 else str(numbers[0]))
    return ",".join(parts)
