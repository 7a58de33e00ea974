"""Stored profiles: machines that are gone, from published numbers (`profiles/<system>-<workload>.toml`).

A file states one published rate; the rest is derived and says so. A step is split over the layers by the operations of
the workload's facts: a layer's backward is twice its forward, for the gradients of its weights and of its input, and of
the first layer, which has no input to differentiate for, as much as its forward. Its gradients are ready at the end of
its backward. The update of Adam moves 28 bytes per parameter through memory: weight, gradient and two moments are
read, all but the gradient written.
"""

from __future__ import annotations

import importlib
from importlib import resources
from itertools import accumulate
from typing import Any

from pydantic import PositiveFloat, model_validator

from dlscale.analysis.predict.profile import Gradient, Profile
from dlscale.base import definitions
from dlscale.base.definitions import Frozen
from dlscale.base.errors import UsageError
from dlscale.base.quantities import Count, Fact, Seconds
from dlscale.benchmarks.systems.system import System

FLOAT32_BYTES = 4
ADAM_BYTES_MOVED = 7 * FLOAT32_BYTES  # per parameter


class Variation(Fact):
    """A coefficient of variation, between the lowest and the highest that sources give."""

    low: PositiveFloat
    high: PositiveFloat

    @model_validator(mode="after")
    def _ordered(self) -> Variation:
        if not self.low <= self.high < 1:
            raise ValueError(f"low {self.low:g} and high {self.high:g} are not in ascending order below 1")
        return self


class StoredProfile(Frozen):
    """A published rate of a workload on a system."""

    system: str
    workload: str
    preset: str
    framework: str
    local_batch: Count
    sample_time: Seconds  # forward and backward of one sample
    variation: Variation  # of steps
    sources: dict[str, str]

    @model_validator(mode="after")
    def _have_sources(self) -> StoredProfile:
        for fact in (self.local_batch, self.sample_time, self.variation):
            if fact.source not in self.sources:
                raise ValueError(f"source {fact.source!r} is not in [sources]")
        return self


def stored_names() -> list[str]:
    """The stored profiles, as `<system>-<workload>`."""
    files = resources.files("dlscale.analysis.predict").joinpath("profiles").iterdir()
    return sorted(file.name.removesuffix(".toml") for file in files if file.name.endswith(".toml"))


def load_stored(system: System, workload: str) -> Profile:
    """The stored profile of a workload on a system. Raises UsageError if there is none or it cannot be used."""
    name = f"{system.name}-{workload}"
    if name not in stored_names():
        raise UsageError(
            f"no stored profile of {workload} on {system.name}; stored are: {', '.join(stored_names())}; or give "
            "--from with a study that measured control profile"
        )
    path = str(resources.files("dlscale.analysis.predict").joinpath("profiles", f"{name}.toml"))
    return profile_of_file(path, system)


def profile_of_file(path: str, system: System) -> Profile:
    """The profile that a file states, on that system. Raises UsageError."""
    stored = definitions.load(StoredProfile, path, folder="systems")
    layers = _layers(stored)
    memory = system.node.memory_bandwidth
    if memory is None:
        raise UsageError(
            f"{system.name} states no node.memory_bandwidth, which the update's time is derived from"
        )
    seconds = stored.sample_time.number * stored.local_batch.value
    forward = [layer.forward_flops for layer in layers]
    backward = [forward[0], *(2 * flops for flops in forward[1:])]
    per_flop = seconds / (sum(forward) + sum(backward))
    done = list(accumulate(reversed(backward), initial=sum(forward)))[1:]  # by layer, the last one first
    gradients = [
        Gradient(name=f"{layer.name}.{part}", num_bytes=FLOAT32_BYTES * count, ready_seconds=per_flop * flops)
        for layer, flops in zip(reversed(layers), done, strict=True)
        for part, count in (("bias", layer.bias), ("weight", layer.kernel))
    ]
    num_bytes = sum(gradient.num_bytes for gradient in gradients)
    update = ADAM_BYTES_MOVED * num_bytes / FLOAT32_BYTES / memory.number
    return Profile(
        workload=stored.workload,
        preset=stored.preset,
        framework=stored.framework,
        local_batch=stored.local_batch.value,
        forward_seconds=per_flop * sum(forward),
        backward_seconds=seconds,
        update_seconds=update,
        gradients=tuple(gradients),
        step_seconds=(seconds + update,),
        evidence="published",
        source=f"{stored.sample_time.value} per sample ({stored.sources[stored.sample_time.source]})",
        derived=(
            "the split of a step over layers, by their operations",
            "the update, by the bytes that it moves through memory",
            f"variation of steps ({stored.variation.note})",
        ),
        variation=(stored.variation.low, stored.variation.high),
    )


def _layers(stored: StoredProfile) -> list[Any]:
    module = importlib.import_module(f"dlscale.models.{stored.workload}")
    if not hasattr(module, "layers"):
        raise UsageError(
            f"the facts of {stored.workload} have no layers, over which a stored profile is split; measure one "
            "and give --from"
        )
    layers: list[Any] = module.layers(stored.preset)
    return layers
