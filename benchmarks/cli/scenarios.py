"""What a prediction needs, from a system, a profile and what a user or a study asks for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Literal

from dlscale.analysis.predict.backend_rules import rule_of, with_algorithm
from dlscale.analysis.predict.exchange import Algorithm
from dlscale.analysis.predict.network import network_of
from dlscale.analysis.predict.noise import noise_of
from dlscale.analysis.predict.profile import Profile
from dlscale.analysis.predict.scenario import NUM_REPLICATES, Scenario
from dlscale.base.errors import UsageError
from dlscale.benchmarks.study.servers import check_servers, num_servers
from dlscale.benchmarks.systems.system import System
from dlscale.models import load_workload


def scenario_of(
    machine: System,
    profile: Profile,
    backend: str,
    *,
    scaling_mode: Literal["weak", "strong"],
    backend_options: Mapping[str, Any],
    servers: str,
    ranks_per_node: int | None = None,
    batch: int | None = None,
    algorithm: Algorithm | None = None,
    replicates: int = NUM_REPLICATES,
    assumed: tuple[str, ...] | None = None,
) -> Scenario:
    """The scenario of one backend; what is None is the system's, the profile's or the preset's. Raises UsageError.

    A rehearsal has `assumed` what the system's file does not state. There the links between a node's GPUs are taken for
    its memory, and `nccl` exchanges as `gloo` does in torch and `tf_collective` in TensorFlow.
    """
    try:
        (spec,) = check_servers([servers])
    except ValueError as error:
        raise UsageError(f"--servers {error}") from None
    placement = machine.placement
    per_node = ranks_per_node or (placement.ranks_per_node if placement else 1)
    between_gpus = bool(machine.devices) and (per_node > 1 or backend == "nccl")
    if between_gpus and assumed is not None:
        assumed = (*assumed, "links between a node's GPUs as fast as its memory: not stated")
    elif machine.devices and per_node > 1:
        raise UsageError(
            f"{per_node} ranks per node on {machine.name}, whose file does not state the links between a node's GPUs; "
            "give --ranks-per-node 1"
        )
    preset = load_workload(profile.workload).preset(profile.preset)
    alike = {"torch": "gloo", "tensorflow": "tf_collective"}[profile.framework]
    rule = rule_of(
        alike if backend == "nccl" and assumed is not None else backend,
        backend_options,
        framework=profile.framework,
        num_servers=num_servers(spec, per_node),
        spare_core=machine.has_spare_core(per_node),
    )
    return Scenario(
        doubts=tuple(f"assumed: {text}" for text in assumed or ()),
        network=network_of(machine),
        profile=profile,
        noise=noise_of(profile),
        rule=with_algorithm(replace(rule, backend=backend), algorithm),
        scaling_mode=scaling_mode,
        batch=batch or (profile.local_batch if scaling_mode == "weak" else preset.global_batch),
        ranks_per_node=per_node,
        num_servers=lambda num_ranks: num_servers(spec, num_ranks),
        num_replicates=replicates,
        backend_options=backend_options,
        exchange_algorithm=algorithm if algorithm and not rule.serves else "",
    )
