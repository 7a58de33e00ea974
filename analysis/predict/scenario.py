"""What a prediction follows from but for the number of nodes: made from a system and a profile."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from dlscale.analysis.predict.backends import ExchangeRule, rule_of
from dlscale.analysis.predict.costs import Coordination, Serving, contention_cost, serving_cost, table_of
from dlscale.analysis.predict.network import (
    ASSUMED,
    Limits,
    Machine,
    Network,
    between_gpus,
    input_of,
    network_of,
)
from dlscale.analysis.predict.noise import Noise, noise_of_steps, noise_origins
from dlscale.analysis.predict.profile import Profile
from dlscale.base.errors import UsageError
from dlscale.benchmarks.records.prediction import Origin
from dlscale.collectives import capabilities
from dlscale.collectives.sharding import NONE, OPTIMIZER, PARAMETERS, check_sharding
from dlscale.models import load_workload

NUM_REPLICATES = 2000
GATHERS = {NONE: 0, OPTIMIZER: 1, PARAMETERS: 2}  # of all weights in a step
NO_LIMITS = (0.0, 0.0)
Mode = Literal["weak", "strong"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """What is predicted, but for the number of nodes. `batch` is per rank under weak scaling, else in total."""

    network: Network
    profile: Profile
    noise: Noise
    rule: ExchangeRule
    scaling_mode: Mode
    batch: int
    ranks_per_node: int = 1
    num_servers: Callable[[int], int] = field(default=lambda _: 0)  # for so many ranks
    serving: Serving | None = None  # what a server's processor does; None: servers are as fast as their links
    coordination: Coordination | None = None  # of Horovod's rank 0 until May 2018; None: all ranks agree
    # Seconds that computing takes longer per byte that a rank sends in an overlapped exchange, at least and at most.
    contention: Limits = NO_LIMITS
    num_replicates: int = NUM_REPLICATES
    seed: int = 0
    doubts: tuple[str, ...] = ()  # why it is not to be trusted
    assumed: tuple[Origin, ...] = ()  # of the backend
    backend_options: Mapping[str, Any] = field(default_factory=dict)  # that `rule` was made from
    shard: str = NONE  # what of the training's state each rank has only its part of
    step_error: float = 0.0  # of predicted steps where some were measured, as a logarithm (`calibration`)

    def servers(self, num_ranks: int) -> int:
        """The parameter servers for so many ranks; 0 without any."""
        return self.num_servers(num_ranks) if self.rule.serves else 0

    def local_batch(self, num_ranks: int) -> int:
        """Samples of a rank."""
        return self.batch if self.scaling_mode == "weak" else self.batch // num_ranks


def scenario_of(
    machine: Machine,
    profile: Profile,
    backend: str,
    *,
    scaling_mode: Mode,
    backend_options: Mapping[str, Any],
    num_servers: Callable[[int], int] = lambda _: 1,
    ranks_per_node: int | None = None,
    batch: int | None = None,
    shard: str = NONE,
) -> Scenario:
    """The scenario of one backend; what is None is the system's, the profile's or the preset's. Raises UsageError.

    A backend between GPUs exchanges as its row is `predicted_as`, and over a node's memory where the links between
    its GPUs are not stated.
    """
    system, network, on_gpus = machine.system, network_of(machine), capabilities(backend).between_gpus
    per_node = ranks_per_node or (system.placement.ranks_per_node if system.placement else 1)
    if on_gpus:
        network = between_gpus(network, system)
    check_sharding(
        backend, backend_options, framework=profile.framework, shard=shard, device="gpu" if on_gpus else "cpu"
    )
    rule = rule_of(
        _alike(backend, profile) if on_gpus else backend,
        backend_options,
        framework=profile.framework,
        num_servers=num_servers(per_node),
        spare_core=system.has_spare_core(per_node),
    )
    unlinked = system.devices and network.device_link_bytes_per_second is None and (per_node > 1 or on_gpus)
    beside = rule.overlap != "none" and system.default_device == "cpu"  # GPUs compute on no core of the host
    own = profile.local_batch
    if scaling_mode == "strong":
        own = load_workload(profile.workload).preset(profile.preset).global_batch
    taken = (
        contention_cost(system, rule.backend, spare=system.has_spare_core(per_node)) if beside else NO_LIMITS
    )
    return Scenario(
        assumed=tuple(_assumed(backend, profile, shard, on_gpus=on_gpus, unlinked=bool(unlinked))),
        shard=shard,
        network=network,
        profile=profile,
        noise=noise_of_steps(profile.step_seconds, profile.variation),
        rule=replace(rule, backend=backend),
        scaling_mode=scaling_mode,
        batch=batch or own,
        ranks_per_node=per_node,
        num_servers=num_servers,
        serving=serving_cost(system, backend, profile.framework, num_tensors=len(profile.gradients)),
        contention=taken,
        backend_options=backend_options,
    )


def _alike(backend: str, profile: Profile) -> str:
    return capabilities(backend).predicted_as.get(profile.framework, backend)


def _assumed(
    backend: str, profile: Profile, shard: str, *, on_gpus: bool, unlinked: bool
) -> Iterator[Origin]:
    """What a prediction of that backend assumes."""
    told = []
    if on_gpus:
        told.append((f"exchange over {backend}", f"as over {_alike(backend, profile)}", "between GPUs"))
    if unlinked:
        told.append(("link between a node's GPUs", "as fast as its memory", "missing in the file"))
    if shard != NONE:
        units = ", in the buckets of the gradients and not unit by unit" * (shard == PARAMETERS)
        value = f"allgathers{units}: {GATHERS[shard]} per step, not overlapped"
        source = "a reduce-scatter and an allgather each take half of an allreduce, an update 1/P of its time"
        told.append((f"{shard} sharded", value, source))
    for what, value, source in told:
        yield input_of(what, value, ASSUMED, source)


def origins_of(scenario: Scenario) -> list[Origin]:
    """Where each input of the prediction comes from: of computing, network and backend, each once."""
    network, rule, serving = scenario.network, scenario.rule, scenario.serving
    found = [*scenario.profile.origins, *noise_origins(scenario.noise)]
    if not scenario.profile.origins:
        profile = scenario.profile
        value = f"{1e3 * profile.mean_step_seconds:.4g} ms"
        found.insert(0, input_of("time of a step", value, profile.evidence, profile.source))
    found += network.origins
    elsewhere = table_of("costs")["source"]
    if rule.exchanges:
        found.append(input_of("jitter of messages", "none", "not modelled", "a message takes its latency"))
    if serving:
        low, high = (f"{1e9 * limit:.2g}" for limit in serving.byte_seconds)
        value = f"{low} to {high} ns per byte, {serving.threads[0]:g} to {serving.threads[1]:g} cores at once"
        found.append(input_of(f"servers of {rule.backend}", value, "measured elsewhere", elsewhere))
    if scenario.contention != NO_LIMITS:
        low, high = (f"{1e9 * limit:.2g}" for limit in scenario.contention)
        taken = f"what {rule.backend} takes from computing"
        found.append(input_of(taken, f"{low} to {high} ns per byte", "measured elsewhere", elsewhere))
    return list(dict.fromkeys([*found, *scenario.assumed]))


def doubled_sizes(scenario: Scenario) -> list[int]:
    """1, 2, 4 ... while the machine has as many nodes and the batch as many samples as it needs."""
    sizes = [1]
    while len(sizes) < 30:
        try:
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
