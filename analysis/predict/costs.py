"""What software costs beside links and operations: measured on one machine, scaled to others (`costs.toml`).

    steps        what a step takes whatever its batch: calls of a framework, launches of kernels
    servers      what a parameter server does for one worker, by message and by byte: receive, decode, add, encode, send
    contention   what an overlapped exchange takes from the cores that compute, by byte that a rank sends
    coordinator  what Horovod's rank 0 did for every other rank before an exchange, until May 2018
    in_training  how much longer what is not overlapped takes there than by itself, where memory carries it

Seconds become those of another machine by the frequencies of both processors, the band by `clocks`: the same work takes
as many clock cycles there or more, up to what a many-core processor needs. On a GPU launches overlap with kernels, so
that a step may cost nothing beside its samples, or as much as on its host's processor.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Annotated, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import AfterValidator, NonNegativeFloat, PositiveFloat, PositiveInt

from dlscale.analysis.predict.network import Limits
from dlscale.base.definitions import Frozen
from dlscale.base.quantities import parse_quantity
from dlscale.base.strings import Name, Text
from dlscale.benchmarks.systems.system import System

Floats = NDArray[np.float64]


def _ordered(limits: Limits) -> Limits:
    if limits[0] > limits[1]:
        raise ValueError(f"{limits[0]:g} is above {limits[1]:g}")
    return limits


Measured = Annotated[tuple[NonNegativeFloat, NonNegativeFloat], AfterValidator(_ordered)]


class Clocks(Frozen):
    """How many times as many clock cycles the same work takes elsewhere."""

    low: PositiveFloat
    high: PositiveFloat
    source: Text


class StepCost(Frozen):
    """Of a workload's step, whatever its batch; `seconds` of one thread."""

    workload: Name
    framework: Name
    seconds: Measured


class ServerCost(Frozen):
    """A server's processor for one worker: seconds per message and per byte, there and back.

    `threads` is how many of its cores work at the same time: so many, or up to one per tensor. `lag` is how much later
    than links alone would have it a chunk comes back beside the next ones, in times that all workers need for it.
    """

    backend: Name
    frameworks: list[Name]
    message_seconds: Measured
    byte_seconds: Measured
    threads: Measured | Literal["tensors"]
    lag: Measured = (0.0, 0.0)


class ContentionCost(Frozen):
    """Seconds that computing takes longer per byte that a rank sends meanwhile, where no core is to spare."""

    backend: Name
    byte_seconds: Measured


class CoordinatorCost(Frozen):
    """What rank 0 does for one rank: so many messages, each for a share of a latency, and one request per tensor."""

    messages: PositiveInt
    message_latencies: Measured
    request_seconds: Measured


class TrainingCost(Frozen):
    """How many times as long as by themselves copies and exchanges in a node's memory take in a training."""

    factors: Measured


class Costs(Frozen):
    """The file `costs.toml`."""

    frequency: Text
    source: Text
    clocks: Clocks
    steps: list[StepCost] = []
    servers: list[ServerCost] = []
    contention: list[ContentionCost] = []
    coordinator: CoordinatorCost
    in_training: TrainingCost


@dataclass(frozen=True, slots=True, kw_only=True)
class Serving:
    """What a server's processor does for one worker, between limits."""

    message_seconds: Limits
    byte_seconds: Limits
    threads: Limits
    lag: Limits = (0.0, 0.0)

    def seconds(
        self, num_messages: Floats | float, num_bytes: Floats | float, *, software: Floats, threads: Floats
    ) -> Floats:
        """Of so many messages and bytes; `software` and `threads` are draws between 0 and 1."""
        spent = num_messages * drawn(self.message_seconds, software) + num_bytes * drawn(
            self.byte_seconds, software
        )
        return np.asarray(spent / drawn(self.threads, threads), dtype=np.float64)


@dataclass(frozen=True, slots=True, kw_only=True)
class Coordination:
    """What rank 0 does for one rank before an exchange, between limits: shares of a latency, seconds per tensor."""

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
def load_costs() -> Costs:
    """What was measured."""
    text = resources.files("dlscale.analysis.predict").joinpath("costs.toml").read_text(encoding="utf-8")
    return Costs.model_validate(tomllib.loads(text))


def step_cost(system: System, workload: str, framework: str, *, device: str) -> Limits | None:
    """Seconds of a step on the system whatever its batch; None where no step of the workload was measured."""
    for it in load_costs().steps:
        if (it.workload, it.framework) == (workload, framework):
            low, high = _elsewhere(it.seconds, system)
            return (0.0 if device == "gpu" else low), high
    return None


def serving_cost(system: System | None, backend: str, framework: str, *, num_tensors: int) -> Serving | None:
    """What its servers cost on a system; None of a backend without any."""
    for cost in load_costs().servers:
        if cost.backend == backend and framework in cost.frameworks:
            cores = system.num_cores() if system and system.node.cores != "detect" else num_tensors
            most = float(max(1, min(num_tensors, cores)))
            return Serving(
                message_seconds=_elsewhere(cost.message_seconds, system),
                byte_seconds=_elsewhere(cost.byte_seconds, system),
                threads=(1.0, most) if cost.threads == "tensors" else cost.threads,
                lag=cost.lag,
            )
    return None


def contention_cost(system: System, backend: str, *, spare: bool) -> Limits:
    """Seconds per byte that computing takes longer beside an exchange; with a core to spare perhaps none."""
    for it in load_costs().contention:
        if it.backend == backend:
            low, high = _elsewhere(it.byte_seconds, system)
            return (0.0 if spare else low), high
    return 0.0, 0.0


def coordination_cost(system: System | None) -> Coordination:
    """What Horovod's rank 0 did for one rank on a system."""
    cost = load_costs().coordinator
    low, high = cost.message_latencies
    return Coordination(
        latencies=(cost.messages * low, cost.messages * high),
        request_seconds=_elsewhere(cost.request_seconds, system),
    )


def _elsewhere(seconds: Limits, system: System | None) -> Limits:
    """The limits on another processor; one whose frequency is not stated is taken to have the same."""
    known = load_costs()
    stated = system.node.cpu_frequency if system else None
    ratio = parse_quantity(known.frequency, "hertz") / stated.number if stated else 1.0
    return ratio * known.clocks.low * seconds[0], ratio * known.clocks.high * seconds[1]
