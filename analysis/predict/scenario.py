"""What a prediction follows from but for the number of nodes: made from a system and a profile, changed, in words."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np

from dlscale.analysis.predict.backend_rules import ExchangeRule, rule_of, with_algorithm
from dlscale.analysis.predict.costs import Coordination, Limits, Serving, contention_cost, serving_cost
from dlscale.analysis.predict.exchange import Algorithm
from dlscale.analysis.predict.network import Network, between_gpus, network_of
from dlscale.analysis.predict.noise import Noise, noise_of
from dlscale.analysis.predict.profile import Profile
from dlscale.analysis.text import plural
from dlscale.base.errors import UsageError
from dlscale.benchmarks.systems.system import System
from dlscale.collectives import capabilities
from dlscale.collectives.sharding import NONE, OPTIMIZER, PARAMETERS, check_sharding
from dlscale.models import load_workload
from dlscale.models.workload import Preset

NUM_REPLICATES = 2000
ASSUMED = "assumed: "  # the beginning of a doubt about what a system's file does not state
ALIKE = {"torch": "gloo", "tensorflow": "tf_collective"}  # what exchanges as between GPUs, where assumed


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """What is predicted, but for the number of nodes. `batch` is per rank under weak scaling, else in total."""

    network: Network
    profile: Profile
    noise: Noise
    rule: ExchangeRule
    scaling_mode: Literal["weak", "strong"]
    batch: int
    ranks_per_node: int = 1
    num_servers: Callable[[int], int] = field(default=lambda _: 0)  # for so many ranks
    serving: Serving | None = None  # what a server's processor does; None: servers are as fast as their links
    coordination: Coordination | None = None  # of Horovod's rank 0 until May 2018; None: all ranks agree
    # Seconds that computing takes longer per byte that a rank sends in an overlapped exchange, at least and at most.
    contention: Limits = (0.0, 0.0)
    contention_source: str = ""  # the study that it was measured in; empty: another machine's, or none
    # Of an exchange within a node that a study has measured by itself, and of copies: how much longer in a training.
    in_training: Limits = (1.0, 1.0)
    # Seconds per byte of gradients that the computing core copies into buckets, by itself.
    copying: float = 0.0
    num_replicates: int = NUM_REPLICATES
    seed: int = 0
    calibrated_nodes: int | None = None  # the most that the network was calibrated on; None: it was not
    held_out_error: float | None = None  # of the largest point, by a calibration without it
    no_jitter: str = "it takes --calibrate with a run of dlscale collectives"  # to measure that of messages
    doubts: tuple[str, ...] = ()  # why it is not to be trusted, where that was asked for
    backend_options: Mapping[str, Any] = field(default_factory=dict)  # that `rule` was made from
    exchange_algorithm: str = ""  # in the place of the backend's own; empty: its own
    shard: str = NONE  # what of the training's state each rank has only its part of
    step_error: float = (
        0.0  # of predicted steps where some were measured, as a logarithm (`calibration_records`)
    )

    def servers(self, num_ranks: int) -> int:
        """The parameter servers for so many ranks; 0 without any."""
        return self.num_servers(num_ranks) if self.rule.serves else 0

    def local_batch(self, num_ranks: int) -> int:
        """Samples of a rank."""
        return self.batch if self.scaling_mode == "weak" else self.batch // num_ranks

    @property
    def preset(self) -> Preset:
        """What is known of the profile's preset."""
        return load_workload(self.profile.workload).preset(self.profile.preset)


def scenario_of(
    machine: System,
    profile: Profile,
    backend: str,
    *,
    scaling_mode: Literal["weak", "strong"],
    backend_options: Mapping[str, Any],
    num_servers: Callable[[int], int] = lambda _: 1,
    ranks_per_node: int | None = None,
    batch: int | None = None,
    algorithm: Algorithm | None = None,
    assumed: tuple[str, ...] = (),
    shard: str = NONE,
) -> Scenario:
    """The scenario of one backend; what is None is the system's, the profile's or the preset's. Raises UsageError.

    `assumed` is what stands for what the system's file does not state. A backend between GPUs exchanges as another does
    (`ALIKE`), and over a node's memory where the links between its GPUs are not stated.
    """
    placement = machine.placement
    per_node = ranks_per_node or (placement.ranks_per_node if placement else 1)
    network, on_gpus = network_of(machine), capabilities(backend).between_gpus
    if machine.devices and on_gpus:
        network = between_gpus(network, machine.devices)
    linked = network.device_link_bytes_per_second is not None
    if on_gpus:
        assumed = (*assumed, f"{backend} exchanges as {ALIKE[profile.framework]} does, between GPUs")
    if machine.devices and not linked and (per_node > 1 or on_gpus):
        assumed = (*assumed, "links between a node's GPUs as fast as its memory (missing in the file)")
    rule = rule_of(
        ALIKE[profile.framework] if on_gpus else backend,
        backend_options,
        framework=profile.framework,
        num_servers=num_servers(per_node),
        spare_core=machine.has_spare_core(per_node),
    )
    of_shards = _assumed_of_shards(backend, backend_options, profile.framework, shard, on_gpus=on_gpus)
    beside = rule.overlap != "none" and machine.default_device == "cpu"  # GPUs compute on no core of the host
    own = profile.local_batch
    if scaling_mode == "strong":
        own = load_workload(profile.workload).preset(profile.preset).global_batch
    return Scenario(
        doubts=tuple(f"{ASSUMED}{text}" for text in (*assumed, *of_shards)),
        shard=shard,
        network=network,
        profile=profile,
        noise=noise_of(profile),
        rule=with_algorithm(replace(rule, backend=backend), algorithm),
        scaling_mode=scaling_mode,
        batch=batch or own,
        ranks_per_node=per_node,
        num_servers=num_servers,
        serving=serving_cost(machine, backend, profile.framework, num_tensors=len(profile.gradients)),
        contention=contention_cost(machine, rule.backend, spare=machine.has_spare_core(per_node))
        if beside
        else (0.0, 0.0),
        backend_options=backend_options,
        exchange_algorithm=algorithm if algorithm and not rule.serves else "",
    )


GATHERS = {NONE: 0, OPTIMIZER: 1, PARAMETERS: 2}  # of all weights in a step


def _assumed_of_shards(
    backend: str, options: Mapping[str, Any], framework: str, shard: str, *, on_gpus: bool
) -> tuple[str, ...]:
    """What a prediction of that sharding assumes; nothing without shards. Raises UsageError as `check_sharding`."""
    check_sharding(backend, options, framework=framework, shard=shard, device="gpu" if on_gpus else "cpu")
    if shard == NONE:
        return ()
    units = (
        ", of all weights in the buckets of the gradients and not unit by unit" if shard == PARAMETERS else ""
    )
    return (
        f"{shard} sharded: a reduce-scatter and an allgather each take half of an allreduce",
        f"allgathers{units}, {plural(GATHERS[shard], 'time')} per step and not overlapped with computing",
        "an update takes 1/P of its time",
    )


def doubled_sizes(scenarios: Sequence[Scenario]) -> list[int]:
    """1, 2, 4 ... while the machine has as many nodes and the batch as many samples as all scenarios need."""
    sizes = [1]
    while len(sizes) < 30:
        try:
            for scenario in scenarios:
                check_sizes(scenario, [2 * sizes[-1]])
        except UsageError:
            break
        sizes.append(2 * sizes[-1])
    return sizes


def check_sizes(scenario: Scenario, sizes: Sequence[int]) -> None:
    """Returns if the machine has so many nodes, and ranks divide the batch. Raises UsageError."""
    for num_nodes in sizes:
        num_ranks = num_nodes * scenario.ranks_per_node
        num_servers = scenario.servers(num_ranks)
        count = num_nodes + math.ceil(num_servers / scenario.ranks_per_node)
        if count > scenario.network.num_nodes:
            servers = f" ({num_servers} servers included)" if num_servers else ""
            raise UsageError(
                f"{count} nodes{servers} on {scenario.network.name}, which has {scenario.network.num_nodes}; "
                "give fewer --nodes" + (" or servers" if servers else "")
            )
        if scenario.scaling_mode == "strong" and scenario.batch % num_ranks:
            raise UsageError(
                f"strong scaling of {scenario.profile.workload}: global batch {scenario.batch} is not a multiple of "
                f"{num_ranks} ranks; give --nodes that divide it, or another --batch"
            )


def changed_scenarios(scenario: Scenario) -> dict[str, Scenario]:
    """{what is different: the scenario then}; "as it is" is first."""
    rule = scenario.rule
    changed = {
        "as it is": scenario,
        "twice the bandwidth": with_factors(scenario, link_rate=2),
        "half the latency": with_factors(scenario, latency=0.5),
        "half the jitter": with_factors(scenario, jitter=0.5),
    }
    if rule.bytes_per_element > 2:
        changed["bf16 gradients"] = replace(scenario, rule=replace(rule, bytes_per_element=2))
    return changed


def with_factors(
    scenario: Scenario, *, link_rate: float = 1, latency: float = 1, jitter: float = 1
) -> Scenario:
    """The scenario with so many times the rate of all links, the latency, and the noise of steps and messages."""
    network = scenario.network
    groups = network.groups and replace(
        network.groups,
        group_bytes_per_second=network.groups.group_bytes_per_second * link_rate,
        pair_bytes_per_second=network.groups.pair_bytes_per_second * link_rate,
        extra_latency_seconds=network.groups.extra_latency_seconds * latency,
    )
    late = network.message_jitter_seconds
    other = replace(
        network,
        node_bytes_per_second=network.node_bytes_per_second * link_rate,
        latency_seconds=network.latency_seconds * latency,
        groups=groups,
        message_jitter_seconds=None if late is None else late * jitter,
    )
    return replace(scenario, network=other, noise=scenario.noise.scaled(jitter))


def jitter_text(scenario: Scenario) -> str:
    """How late single messages are, or why that was not measured."""
    jitter = scenario.network.message_jitter_seconds
    if jitter is None:
        return f"jitter of messages ({scenario.no_jitter})"
    return f"messages are late by {1e6 * jitter:.3g} us in the mean"


def noise_texts(scenario: Scenario, *, of_messages: bool = True) -> tuple[list[str], list[str]]:
    """What is measured of the noise, and what is not."""
    measured, not_measured = list(scenario.noise.measured), list(scenario.noise.not_measured)
    if steps := scenario.noise.steps:
        measured.insert(
            0,
            f"{len(steps)} measured steps, standard deviation {100 * float(np.std(steps)):.1f} % of their mean; a busy "
            "machine makes it too large",
        )
    if of_messages and scenario.rule.exchanges:
        known = scenario.network.message_jitter_seconds is not None
        (measured if known else not_measured).append(jitter_text(scenario))
    return measured, not_measured
