"""Profiles of machines that are not here, from what is public: a rate of the workload itself, or of others there.

Stored profiles (`profiles/<system>-<workload>.toml`) and a user's own files state one rate; the rest is derived. A step
is split over the network's layers by their operations (`models.layers`), and a layer's gradients are ready at the end
of its backward. The update of Adam moves 28 bytes per parameter through memory: weight, gradient and two moments are
read, all but the gradient written; that of momentum 20.

Derived profiles are of a workload that has no stored one on a system. The seconds per sample come from the first of

    1. published rates of the workload on such nodes or GPUs
    2. its operations, at the rates in operations per second that other workloads are published with there
    3. its operations, at the shares of a stated peak that those of Cori's nodes are

and lie between the lowest and the highest of them: the profile's `time_factors`. What a step takes whatever its batch
(`costs`) is a part of a published rate, and comes on top of operations.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from importlib import resources
from typing import Any, NamedTuple

from pydantic import PositiveFloat, model_validator

from dlscale.analysis.predict.costs import step_cost, table_of
from dlscale.analysis.predict.network import Limits, input_of
from dlscale.analysis.predict.profile import Gradient, Profile, at_share
from dlscale.analysis.text import seconds_text
from dlscale.base import definitions
from dlscale.base.errors import UsageError
from dlscale.base.quantities import Count, Fact, Seconds
from dlscale.base.strings import Name, Text
from dlscale.benchmarks.systems.system import System, load_system
from dlscale.models import load_workload
from dlscale.models.layers import Layer, backward_shares, step_flops
from dlscale.models.workload import Preset, Workload

PACKAGE = "dlscale.analysis.predict"
PUBLISHED_PRESET = "paper"
FLOAT32_BYTES = 4
BYTES_MOVED = {"adam": 7 * FLOAT32_BYTES, "momentum": 5 * FLOAT32_BYTES}  # per parameter


class Variation(Fact):
    """A coefficient of variation, between the lowest and the highest that sources give."""

    low: PositiveFloat
    high: PositiveFloat

    @model_validator(mode="after")
    def _ordered(self) -> Variation:
        if not self.low <= self.high < 1:
            raise ValueError(f"low {self.low:g} and high {self.high:g} are not in ascending order below 1")
        return self


class StoredProfile(definitions.Frozen):
    """A published rate of a workload on a system."""

    system: Name
    workload: Name
    preset: Name
    framework: Name
    local_batch: Count
    sample_time: Seconds  # forward and backward of one sample
    variation: Variation  # of steps
    sources: dict[Text, Text]

    @model_validator(mode="after")
    def _have_sources(self) -> StoredProfile:
        for fact in (self.local_batch, self.sample_time, self.variation):
            if fact.source not in self.sources:
                raise ValueError(f"source {fact.source!r} is not in [sources]")
        return self


def stored_names() -> list[str]:
    """The stored profiles, as `<system>-<workload>`."""
    files = resources.files(PACKAGE).joinpath("profiles").iterdir()
    return sorted(file.name.removesuffix(".toml") for file in files if file.name.endswith(".toml"))


def stored_profile(system: System, workload: str) -> Profile | None:
    """The stored profile of a workload on a system; None if there is none. Raises UsageError."""
    name = f"{system.name}-{workload}"
    if name not in stored_names():
        return None
    return profile_of_file(str(resources.files(PACKAGE).joinpath("profiles", f"{name}.toml")), system)


def profile_of_file(path: str, system: System, evidence: str = "published") -> Profile:
    """The profile that a file states, on that system. Raises UsageError."""
    stored = definitions.load(StoredProfile, path, folder="systems")
    if stored.system != system.name:
        raise UsageError(
            f"{path} is of {stored.system}, and the system is {system.name}; name the same in both"
        )
    vary, time = stored.variation, stored.sample_time
    facts = load_workload(stored.workload)
    return _profile(
        system,
        facts,
        facts.preset(stored.preset),
        stored.framework,
        Pace(time.number, time.number, stored.sources[time.source], evidence),
        local_batch=stored.local_batch.value,
        device=system.default_device,
        variation=(vary.low, vary.high, vary.note or stored.sources[vary.source]),
    )


def public_profile(
    system: System,
    workload: str,
    preset: str = PUBLISHED_PRESET,
    framework: str = "tensorflow",
    *,
    device: str | None = None,
    ranks_per_node: int = 1,
) -> Profile:
    """What is public of a training on a system: the stored profile if it is of that, else a derived one.

    Raises UsageError where nothing is known of such nodes.
    """
    stored = stored_profile(system, workload)
    if stored and (stored.preset, stored.framework) == (preset, framework):
        return stored
    facts = load_workload(workload)
    device = device or system.default_device
    sharing = 1 if device == "gpu" else ranks_per_node
    vary = table_of("sustained")["gpu_variation" if device == "gpu" else "variation"]
    its = facts.preset(preset)
    profile = _profile(
        system,
        facts,
        its,
        framework,
        _pace(system, facts, its, device=device, sharing=sharing),
        local_batch=its.local_batch,
        device=device,
        sharing=sharing,
        variation=(vary["low"], vary["high"], f"another machine: {vary['source']}"),
    )
    return replace(profile, evidence="derived")


class Pace(NamedTuple):
    """Seconds per sample of one rank, at least and at most, and how they are known."""

    least: float
    most: float
    source: str
    evidence: str = "derived"  # of operations; else of the workload itself


def _profile(
    system: System,
    facts: Workload,
    preset: Preset,
    framework: str,
    pace: Pace,
    *,
    local_batch: int,
    device: str,
    sharing: int = 1,
    variation: tuple[float, float, str],
) -> Profile:
    """A profile of that pace, split over the network's layers by their operations."""
    memory = system.node.memory_bandwidth
    if memory is None:
        raise UsageError(
            f"{system.name} states no node.memory_bandwidth, which the update's time is derived from"
        )
    sample_seconds, is_derived = math.sqrt(pace.least * pace.most), pace.evidence == "derived"
    time_factors = pace.least / sample_seconds, pace.most / sample_seconds
    layers, seconds = _layers(facts, preset), sample_seconds * local_batch
    forward = seconds * sum(it.forward * it.forward_flops for it in layers) / step_flops(layers)
    moved = BYTES_MOVED["adam" if facts.optimizer == "adam" else "momentum"]
    update = moved * preset.num_parameters / memory.number
    low, high, known = variation
    is_small = preset.name != PUBLISHED_PRESET and is_derived
    wrong = " (operations at the rates of large networks: a small one reaches less)" * is_small
    told = (
        ("time of a sample", f"{_between(sample_seconds, time_factors)}{wrong}", pace.evidence, pace.source),
        ("moments within a step", f"{len(layers)} layers", "derived", "the layers' operations"),
        ("update", seconds_text(update), "derived", f"{moved} bytes of memory per parameter"),
        ("variation of steps", f"{100 * low:.2g} to {100 * high:.2g} %", "published", known),
    )
    profile = Profile(
        workload=facts.name,
        preset=preset.name,
        framework=framework,
        local_batch=local_batch,
        forward_seconds=forward,
        backward_seconds=seconds,
        update_seconds=update,
        gradients=tuple(
            Gradient(
                name=f"{layer.name}.{part}",
                num_bytes=FLOAT32_BYTES * count,
                ready_seconds=forward + share * (seconds - forward),
                objective=layer.objective,
            )
            for layer, share in backward_shares(layers)
            for part, count in (("bias", layer.bias), ("weight", layer.kernel))
            if count
        ),
        step_seconds=(seconds + update,),
        evidence=pace.evidence,
        source=pace.source,
        origins=tuple(input_of(*each) for each in told),
        variation=(low, high),
        time_factors=time_factors,
    )
    profile = _with_least_batch(profile, system, device=device, sharing=sharing)
    return _with_fixed_cost(profile, system, device=device, is_part=not is_derived)


def _between(seconds: float, factors: Limits) -> str:
    """`3.76 ms (2.25 ms to 6.3 ms)`."""
    text = seconds_text(seconds)
    low, high = (seconds_text(factor * seconds) for factor in factors)
    return text if low == high else f"{text} ({low} to {high})"


def _layers(workload: Workload, preset: Preset) -> Sequence[Layer]:
    if workload.layers is None:
        raise UsageError(
            f"nothing states the layers of {workload.name}, over which a published rate is split; measure a profile "
            "and give it to dlscale predict --from"
        )
    return workload.layers(preset)


def _with_least_batch(profile: Profile, system: System, *, device: str, sharing: int) -> Profile:
    """The profile with how many samples a step computes at least as long as, where that is published."""
    for it in _of(system, "least_batches", device):
        low, high = it["low"] / sharing, it["high"] / sharing
        value = f"as of {low:g} to {high:g} samples"
        origin = input_of("least time of a step", value, "published", it["source"])
        return replace(profile, least_batch=(low, high), origins=(*profile.origins, origin))
    return profile


def _of(system: System, table: str, device: str) -> list[dict[str, Any]]:
    """What a table of sustained.toml states of the system's nodes or GPUs."""
    owner = "device" if device == "gpu" else "node"
    return [it for it in table_of("sustained")[table] if system.name in it["systems"] and it["of"] == owner]


def _with_fixed_cost(profile: Profile, system: System, *, device: str, is_part: bool) -> Profile:
    """The profile with what a step takes whatever its batch, which is a part of its time or comes on top.

    Raises UsageError for a step on a GPU that would be mostly that: nobody measured it there.
    """
    limits = step_cost(system, profile.workload, profile.framework, device=device)
    if limits is None:
        return profile
    low, high = limits
    longest = profile.backward_seconds * profile.time_factors[1]
    if device == "gpu" and not is_part and longest < high:
        raise UsageError(
            f"a step of {profile.workload} {profile.preset} is too small to be derived: on {system.name} its "
            f"operations take {seconds_text(longest)} at most, and what it costs beside them, up to "
            f"{seconds_text(high)} on a host's processor, was not measured on GPUs; measure it there"
        )
    fixed = math.sqrt(low * high) or high / 2
    if not is_part:
        profile = at_share(profile, 1 + fixed / profile.backward_seconds)
    fixed = min(fixed, profile.backward_seconds)
    factors = (low / fixed, high / fixed)
    source = f"{table_of('costs')['source'].partition(' (')[0]}, by the processors' frequencies"
    origin = input_of(
        "part of a step that does not depend on the batch",
        _between(fixed, factors),
        "measured elsewhere",
        source,
    )
    return replace(profile, fixed_seconds=fixed, fixed_factors=factors, origins=(*profile.origins, origin))


def _pace(system: System, facts: Workload, preset: Preset, *, device: str, sharing: int) -> Pace:
    rates = _of(system, "rates", device)
    own = [it for it in rates if it["workload"] == facts.name and preset.name == PUBLISHED_PRESET]
    if own:
        low, high = min(it["low"] for it in own), max(it["high"] for it in own)
        return Pace(sharing / high, sharing / low, _sources(own), "published")
    work = sharing * step_flops(_layers(facts, preset))
    stated = [*_operations(rates), *_of(system, "flops", device)]
    if stated:
        low, high = min(it["low"] for it in stated), max(it["high"] for it in stated)
        text = f"{low:.3g} to {high:.3g} operations per second of other networks on such a {stated[0]['of']}"
        return Pace(work / high, work / low, f"{text}: {_sources(stated)}")
    peaks = system.devices.peak if device == "gpu" and system.devices else system.node.peak
    dtype = next((name for name in ("fp32", "fp64") if name in peaks), None)
    if dtype is None:
        raise UsageError(
            f"no rate of {facts.name} is published for {system.name}, and its file states no fp32 peak to derive one "
            "from; add it with its source, or measure a profile and give it to dlscale predict --from"
        )
    reference, known = load_system(table_of("sustained")["peaks"]), table_of("sustained")
    like = [it for it in (*_operations(known["rates"]), *known["flops"]) if reference.name in it["systems"]]
    there, peak = reference.node.peak["fp32"].number, peaks[dtype]
    low, high = min(it["low"] for it in like) / there, max(it["high"] for it in like) / there
    text = (
        f"{100 * low:.2g} to {100 * high:.2g} % of the {dtype} peak of {peak.value} "
        f"({system.sources[peak.source]}), as on {reference.name}"
    )
    return Pace(work / (high * peak.number), work / (low * peak.number), f"{text}: {_sources(like)}")


def _operations(rates: Sequence[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    """The rates in operations per second."""
    for rate in rates:
        facts = load_workload(rate["workload"])
        flops = step_flops(_layers(facts, facts.preset(PUBLISHED_PRESET)))
        yield {**rate, "low": flops * rate["low"], "high": flops * rate["high"]}


def _sources(stated: Sequence[Mapping[str, Any]]) -> str:
    return "; ".join(dict.fromkeys(it["source"] for it in stated))
