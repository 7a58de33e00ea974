"""How much of a training's state each rank keeps: an axis beside the backend that carries the gradients.

    none        all of it: weights, gradients and what optimizers keep
    optimizer   all weights and gradients, and of what optimizers keep its own part: gradients are reduce-scattered,
                each rank updates its part of the weights, and the parts are gathered
    parameters  its own part of everything; a layer's weights are gathered before they are needed, twice per step,
                and its gradients are reduce-scattered

`optimizer` is ZeRO's stage 1, `parameters` its stage 3 (Rajbhandari et al. 2020, arXiv:1910.02054); the latter is
torch's own `fully_shard`, as its users run it. Both exist in torch alone. (`workload.Shard` is something else: a rank's
part of the batch.)
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dlscale.base.errors import UsageError, unknown
from dlscale.collectives.capabilities import NAMES as BACKENDS
from dlscale.collectives.capabilities import carried_shards

NONE, OPTIMIZER, PARAMETERS = NAMES = ("none", "optimizer", "parameters")

# Options that decide how gradients travel to be averaged, with the values that ask for nothing of it.
OF_AVERAGES = {
    "pipelined": False,
    "pipelined_until_step": 0,
    "check_every": 0,
    "compression": "none",
    "bucket_cap_mb": 25,
}


def check_sharding(
    backend: str,
    options: Mapping[str, Any],
    *,
    framework: str,
    shard: str,
    algorithm: str = "sync",
    device: str = "cpu",
    compiled: bool = False,
) -> None:
    """Returns if the backend with these options carries that sharding in that framework. Raises UsageError."""
    if shard not in NAMES:
        raise UsageError(unknown("shard", shard, NAMES))
    if shard == NONE:
        return
    if shard not in carried_shards(backend, framework):
        able = ", ".join(name for name in BACKENDS if shard in carried_shards(name, framework))
        what = f"backend {backend} has no shard={shard} in {framework}"
        raise UsageError(f"{what}; choose from: {able}" if able else f"{what}, nor has any other backend")
    if algorithm != "sync":
        raise UsageError(
            f"shard={shard} with algorithm {algorithm}: there ranks train alone between exchanges; leave one out"
        )
    if device != "cpu" and shard == OPTIMIZER:
        raise UsageError(
            f"shard={shard} works on host memory, and device {device} was asked for; choose device cpu, or "
            f"shard={PARAMETERS}"
        )
    if shard == PARAMETERS and compiled:
        raise UsageError(
            f"shard={PARAMETERS} with compiled networks: a graph of torch.compile ends wherever weights are gathered, "
            f"and torch's compiler fails at what is left; leave one of the two out, or choose shard={OPTIMIZER}"
        )
    left_alone = OF_AVERAGES | ({"teams": -1} if shard == PARAMETERS else {})
    for option, unchanged in left_alone.items():
        if options.get(option, unchanged) != unchanged:
            raise UsageError(
                f"{backend}.{option}={options[option]} with shard={shard}: that is for gradients that all ranks "
                "average; leave one of the two out"
            )
