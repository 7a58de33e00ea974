"""SimGrid as an engine: flows that share links, so that placement, groups and other jobs' traffic count.

SimGrid simulates how long the flows of each phase (`phases`) take when they share the network's links. The platform's
links have no latency, so that a phase's time is proportional to its bytes and one simulation serves all sizes.
Latencies of the steps, the sums, and copies within nodes are those of the closed forms (`loggp`). Without other traffic
and slow links the fullest link decides there too; SimGrid sees flows that share several links, and is the independent
check.

An exchange of more flows at once than `MOST_FLOWS` has the time of its fullest link instead, which `method` says.
"""

from __future__ import annotations

import functools
import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import util
from pathlib import Path
from typing import Any

import numpy as np

from dlscale.analysis.predict.engine import Method, NetworkExchange
from dlscale.analysis.predict.loggp import Cost, cost, memory_seconds_per_byte
from dlscale.analysis.predict.network import Network, allocated
from dlscale.analysis.predict.phases import Nodes, Phase, num_places, phases_of
from dlscale.analysis.predict.platform_xml import host_name, node_links, platform_xml
from dlscale.base.errors import UsageError

INSTALL = "apt-get install --no-install-recommends libsimgrid-dev python3-simgrid"
MOST_FLOWS = 2**14  # alive together; the solver's time grows faster than their number
TIME_LIMIT_SECONDS = 600.0
_DISTRIBUTION = Path("/usr/lib/python3/dist-packages")
_DRIVER = Path(__file__).with_name("simgrid_driver.py")
_FLOW_BYTES = 2**30  # of each simulated flow: any will do, so many that rounding does not show


@dataclass(frozen=True, slots=True, kw_only=True)
class _Binding:
    """The extension, and an interpreter of the Python that it was made for."""

    extension: Path
    interpreter: str


@dataclass(frozen=True, slots=True, kw_only=True)
class _Flows:
    """What the times of an exchange's flows depend on, in units of a node's rate.

    `ratios` are nodes per group, and the rates of a group and of a pair of groups over a node's.
    """

    exchange: NetworkExchange
    num_nodes: int
    ratios: tuple[int, float, float] | None


class SimGrid:
    """Flows on the network, simulated by SimGrid."""

    name = "simgrid"

    def __init__(self, *, background_flows: int = 0, slow_nodes: Mapping[int, float] | None = None) -> None:
        """Endless `background_flows` run between nodes outside the job.

        `slow_nodes` maps nodes of the network to the share of their link's rate that is left to them. Raises UsageError
        where SimGrid is not installed.
        """
        if background_flows < 0:
            raise UsageError(f"{background_flows} background flows: give 0 or more")
        for node, share in (slow_nodes or {}).items():
            if not 0 < share <= 1:
                raise UsageError(
                    f"node {node} at {share:g} of its link's rate: give a share above 0, up to 1"
                )
        self.background_flows = background_flows
        self.slow_nodes = dict(slow_nodes or {})
        traffic = [f"{background_flows} background flows"] if background_flows else []
        slow = [f"node {node} at {share:g} of its rate" for node, share in sorted(self.slow_nodes.items())]
        # Answers are remembered by the version, so that it says all that they depend on.
        self.version = ", ".join([_version(_binding()), *traffic, *slow])
        self._flows: dict[_Flows, list[float]] = {}

    def exchange_seconds(
        self, network: Network, exchange: NetworkExchange, sizes: Sequence[int]
    ) -> list[float]:
        """Seconds of the exchange for each of `sizes` in bytes, free of noise. Raises UsageError."""
        for node in self.slow_nodes:
            if not 0 <= node < network.num_nodes:
                raise UsageError(
                    f"node {node} is to be slow; {network.name} has nodes 0 to {network.num_nodes - 1}"
                )
        total = self._cost(network, exchange)
        return [total.seconds + size * total.seconds_per_byte for size in sizes]

    def method(self, exchange: NetworkExchange) -> Method:
        """How its time is found: "fullest link" if a phase has too many flows to simulate."""
        return "flows" if _most_flows(exchange) <= MOST_FLOWS else "fullest link"

    def _cost(self, network: Network, exchange: NetworkExchange) -> Cost:
        phases = phases_of(exchange)
        nodes = allocated(network, num_places(exchange), exchange.placement, exchange.seed)
        if self.method(exchange) == "fullest link":
            if self.background_flows or self.slow_nodes:
                raise UsageError(
                    f"background flows or slow nodes with {_most_flows(exchange)} flows of the job at once: SimGrid "
                    f"takes up to {MOST_FLOWS}; ask for fewer nodes or servers, or leave them out"
                )
            return cost(network, exchange)
        # Phases of the same flows are simulated once: halving and doubling have the same pairs.
        flows = {_pattern(phase): phase.pairs() for phase in phases}
        simulated = self._flow_seconds_per_byte(network, exchange, nodes, list(flows.values()))
        of_pattern = dict(zip(flows, simulated, strict=True))
        seconds, per_byte = 0.0, memory_seconds_per_byte(network, exchange.ranks_per_node)
        for phase in phases:
            seconds += phase.num_steps * _latency(network, *(nodes[ends] for ends in phase.pairs()))
            per_byte += (
                of_pattern[_pattern(phase)] * phase.share + phase.added * network.reduce_seconds_per_byte
            )
        return Cost(seconds=seconds, seconds_per_byte=per_byte)

    def _flow_seconds_per_byte(
        self, network: Network, exchange: NetworkExchange, nodes: Nodes, patterns: list[tuple[Nodes, Nodes]]
    ) -> list[float]:
        """Seconds per byte of a flow, of each pattern of flows.

        Only the ratios of the links' rates matter, so networks that are faster as a whole need no new simulation.
        """
        if not patterns:
            return []
        rate, groups = network.node_bytes_per_second, network.groups
        ratios = (
            (
                groups.nodes_per_group,
                groups.group_bytes_per_second / rate,
                groups.pair_bytes_per_second / rate,
            )
            if groups
            else None
        )
        known = _Flows(exchange=exchange, num_nodes=network.num_nodes, ratios=ratios)
        if known not in self._flows:
            answer = _ask(self._question(network, exchange, nodes, patterns))
            self._flows[known] = [seconds * rate / _FLOW_BYTES for seconds in answer["seconds"]]
        return [of_pattern / rate for of_pattern in self._flows[known]]

    def _question(
        self, network: Network, exchange: NetworkExchange, nodes: Nodes, patterns: list[tuple[Nodes, Nodes]]
    ) -> dict[str, Any]:
        """What the driver is asked, with the platform as text."""
        background = self._background(network, nodes, exchange.seed)
        present = {*nodes.tolist(), *(node for pair in background for node in pair)}
        slow = {
            link: network.node_bytes_per_second * share
            for node, share in self.slow_nodes.items()
            if node in present
            for link in node_links(network, node)
        }
        names = np.array([host_name(node) for node in nodes])
        return {
            "platform": platform_xml(network, present, routing=exchange.routing),
            "links": slow,
            "background": [[host_name(a), host_name(b)] for a, b in background],
            "patterns": [
                {"sources": names[a].tolist(), "targets": names[b].tolist(), "num_bytes": _FLOW_BYTES}
                for a, b in patterns
            ],
        }

    def _background(self, network: Network, nodes: Nodes, seed: int) -> list[tuple[int, int]]:
        """Pairs of nodes outside the job that send without end."""
        if not self.background_flows:
            return []
        others = np.setdiff1d(np.arange(network.num_nodes), nodes)
        if len(others) < 2:
            raise UsageError(
                f"background flows on {network.name}: {len(others)} of its nodes are outside the job; "
                "ask for fewer nodes"
            )
        generator = np.random.default_rng([seed, 1])
        pairs = [generator.choice(others, 2, replace=False) for _ in range(self.background_flows)]
        return [(int(a), int(b)) for a, b in pairs]


def available() -> str | None:
    """Why SimGrid cannot be used here, and how to install it; None if it can."""
    try:
        _version(_binding())
    except UsageError as error:
        return str(error)
    return None


def _most_flows(exchange: NetworkExchange) -> int:
    return max((phase.num_flows for phase in phases_of(exchange)), default=0)


def _pattern(phase: Phase) -> tuple[bytes, bytes, bool]:
    return phase.sources.tobytes(), phase.targets.tobytes(), phase.all_pairs


def _latency(network: Network, sources: Nodes, targets: Nodes) -> float:
    """Seconds of one step, which ends with its slowest message."""
    groups = network.groups
    if groups and (sources // groups.nodes_per_group != targets // groups.nodes_per_group).any():
        return network.latency_seconds + groups.extra_latency_seconds
    return network.latency_seconds


@functools.cache
def _binding() -> _Binding:
    """This environment's own binding, else the distribution's. Raises UsageError if there is none."""
    own = util.find_spec("simgrid")
    if own and own.origin:
        return _Binding(extension=Path(own.origin), interpreter=sys.executable)
    found = []
    for extension in sorted(_DISTRIBUTION.glob("simgrid.cpython-*.so")):
        version = re.match(r"simgrid\.cpython-(\d)(\d+)", extension.name)
        if version:
            major, minor = int(version[1]), int(version[2])
            here = sys.version_info[:2] == (major, minor)
            interpreter = sys.executable if here else f"/usr/bin/python{major}.{minor}"
            found.append((not here, _Binding(extension=extension, interpreter=interpreter)))
    usable = [
        binding for _, binding in sorted(found, key=lambda it: it[0]) if Path(binding.interpreter).exists()
    ]
    if not usable:
        raise UsageError(f"SimGrid's Python binding is not installed; {INSTALL}")
    return usable[0]


@functools.cache
def _version(binding: _Binding) -> str:
    """SimGrid's version. Raises UsageError if the binding cannot be loaded."""
    try:
        return str(_run_driver(binding, {}, time_limit=60.0)["version"])
    except UsageError as error:
        raise UsageError(f"{error}; install it again: {INSTALL}") from None


def _ask(question: dict[str, Any]) -> dict[str, Any]:
    """The driver's answer; the platform goes through a file, which SimGrid requires."""
    with tempfile.TemporaryDirectory(prefix="dlscale-simgrid-") as folder:
        platform = Path(folder) / "platform.xml"
        platform.write_text(question["platform"], encoding="utf-8")
        return _run_driver(_binding(), {**question, "platform": str(platform)}, time_limit=TIME_LIMIT_SECONDS)


def _run_driver(binding: _Binding, question: dict[str, Any], *, time_limit: float) -> dict[str, Any]:
    """Raises UsageError, in one line, if SimGrid fails or does not answer in time."""
    text = json.dumps({"binding": str(binding.extension), **question})
    try:
        done = subprocess.run(
            # Isolated: neither this folder nor the user's variables decide what `import json` is.
            [binding.interpreter, "-I", str(_DRIVER)],
            input=text,
            capture_output=True,
            text=True,
            timeout=time_limit,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise UsageError(
            f"SimGrid gave no answer in {time_limit:g} s; ask for fewer nodes, or use --engine loggp"
        ) from None
    except OSError as error:
        raise UsageError(f"{binding.interpreter} cannot be started for SimGrid: {error.strerror}") from None
    if done.returncode:
        raise UsageError(f"SimGrid ({binding.extension}) failed: {_cause(done)}")
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def _cause(done: subprocess.CompletedProcess[str]) -> str:
    """The line that says why: SimGrid marks it and goes on with a page of addresses; Python's is the last one."""
    lines = [line.strip() for line in done.stderr.splitlines() if line.strip()]
    marked = [line for line in lines if "CRITICAL" in line or "ERROR" in line]
    return (marked or lines[-1:] or [f"exit status {done.returncode}"])[0][:300]
