"""What software costs beside links and operations: measured on one machine, scaled to others (`costs.toml`).

Seconds become those of another machine by the frequencies of both processors, the band by `clocks`: the same work takes
as many clock cycles there or more, up to what a many-core processor needs. On a GPU launches overlap with kernels, so
that a step may cost nothing beside its samples, or as much as on its host's processor.
"""

from __future__ import annotations

import tomllib
from functools import cache
from importlib import resources
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dlscale.analysis.predict.network import Limits
from dlscale.base.quantities import parse_quantity
from dlscale.benchmarks.systems.system import System

Floats = NDArray[np.float64]


class Serving(NamedTuple):
    """What a server's processor does for one worker, between limits; `threads` of its cores work at once."""

    message_seconds: Limits
    byte_seconds: Limits
    threads: Limits

    def seconds(
        self, num_messages: Floats | float, num_bytes: Floats | float, *, software: Floats, threads: Floats
    ) -> Floats:
        """Of so many messages and bytes; `software` and `threads` are draws between 0 and 1."""
        spent = num_messages * drawn(self.message_seconds, software)
        spent = spent + num_bytes * drawn(self.byte_seconds, software)
        return np.asarray(spent / drawn(self.threads, threads), dtype=np.float64)


class Coordination(NamedTuple):
    """What Horovod's rank 0 did for one rank before an exchange, between limits: shares of a latency, and by tensor."""

    latencies: Limits
    request_seconds: Limits

    def seconds(self, latency: Floats, num_tensors: int, *, software: Floats) -> Floats:
        """Of so many tensors, where a message takes `latency`; `software` are draws between 0 and 1."""
        requests = num_tensors * drawn(self.request_seconds, software)
        return np.asarray(drawn(self.latencies, software) * latency + requests, dtype=np.float64)


def drawn(limits: Limits, uniform: Floats) -> Floats:
    """Values between limits: every order of magnitude as probable as others, from 0 on every value."""
    low, high = limits
    if low <= 0:
        return np.asarray(low + (high - low) * uniform, dtype=np.float64)
    return np.asarray(low * (high / low) ** uniform, dtype=np.float64)


@cache
def table_of(name: str) -> dict[str, Any]:
    """The content of one of our TOML files, `costs` or `sustained`."""
    folder = resources.files("dlscale.analysis.predict")
    return tomllib.loads(folder.joinpath(f"{name}.toml").read_text(encoding="utf-8"))


def step_cost(system: System, workload: str, framework: str, *, device: str) -> Limits | None:
    """Seconds of a step on the system whatever its batch; None where no step of the workload was measured."""
    for it in table_of("costs")["steps"]:
        if (it["workload"], it["framework"]) == (workload, framework):
            low, high = _elsewhere(it["seconds"], system)
            return (0.0 if device == "gpu" else low), high
    return None


def serving_cost(system: System | None, backend: str, framework: str, *, num_tensors: int) -> Serving | None:
    """What its servers cost on a system; None of a backend without any."""
    for cost in table_of("costs")["servers"]:
        if cost["backend"] == backend and framework in cost["frameworks"]:
            cores = system.num_cores() if system and system.node.cores != "detect" else num_tensors
            most = float(max(1, min(num_tensors, cores)))
            of_tensors = cost["threads"] == "tensors"
            return Serving(
                message_seconds=_elsewhere(cost["message_seconds"], system),
                byte_seconds=_elsewhere(cost["byte_seconds"], system),
                threads=(1.0, most) if of_tensors else tuple(cost["threads"]),
            )
    return None


def contention_cost(system: System, backend: str, *, spare: bool) -> Limits:
    """Seconds per byte that computing takes longer beside an exchange; with a core to spare perhaps none."""
    for it in table_of("costs")["contention"]:
        if it["backend"] == backend:
            low, high = _elsewhere(it["byte_seconds"], system)
            return (0.0 if spare else low), high
    return 0.0, 0.0


def coordination_cost(system: System | None) -> Coordination:
    """What Horovod's rank 0 did for one rank on a system, until May 2018."""
    cost = table_of("costs")["coordinator"]
    low, high = cost["message_latencies"]
    count = cost["messages"]
    return Coordination((count * low, count * high), _elsewhere(cost["request_seconds"], system))


def _elsewhere(seconds: Limits, system: System | None) -> Limits:
    """The limits on another processor; one whose frequency is not stated is taken to have the same."""
    known = table_of("costs")
    stated = system.node.cpu_frequency if system else None
    ratio = parse_quantity(known["frequency"], "hertz") / stated.number if stated else 1.0
    return ratio * known["clocks"]["low"] * seconds[0], ratio * known["clocks"]["high"] * seconds[1]
