"""Profiles of machines that are not here, from what is published: a rate of the workload itself, or of others there.

Stored profiles (`profiles/<system>-<workload>.toml`) state one published rate; the rest is derived and says so. A step
is split over the network's layers by their operations (`models.layers`), and a layer's gradients are ready at the end
of its backward. The update of Adam moves 28 bytes per parameter through memory: weight, gradient and two moments are
read, all but the gradient written.

Derived profiles are for rehearsals of a workload that has no stored one on a system. The seconds per sample come from
the first of

    1. published rates of the workload on such nodes or GPUs
    2. its operations, at the rates in operations per second that other workloads are published with there
    3. its operations, at the shares of a stated peak that those of Cori's nodes are

and lie between the lowest and the highest of them: the profile's `time_factors`. What a step takes whatever its batch
(`costs`) is a part of a published rate, and comes on top of operations. Nothing here was measured on the system, and
every profile says so (`derived`).
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from importlib import resources
from typing import Literal

from pydantic import PositiveFloat, model_validator

from dlscale.analysis.predict.costs import load_costs, step_cost
from dlscale.analysis.predict.profile import SOURCES, Gradient, Profile, at_share
from dlscale.analysis.text import seconds_text
from dlscale.base import definitions
from dlscale.base.definitions import Frozen
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
ADAM_BYTES_MOVED = 7 * FLOAT32_BYTES  # per parameter
# Per parameter: weight, gradient and momentum read, all but the gradient written.
MOMENTUM_BYTES_MOVED = 5 * FLOAT32_BYTES


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


def load_stored(system: System, workload: str) -> Profile:
    """The stored profile of a workload on a system. Raises UsageError if there is none or it cannot be used."""
    name = f"{system.name}-{workload}"
    if name not in stored_names():
        raise UsageError(
            f"no stored profile of {workload} on {system.name}; stored are: {', '.join(stored_names())}; or give "
            "--from with a study that measured control profile"
        )
    path = str(resources.files(PACKAGE).joinpath("profiles", f"{name}.toml"))
    return profile_of_file(path, system)


def profile_of_file(path: str, system: System) -> Profile:
    """The profile that a file states, on that system. Raises UsageError."""
    stored = definitions.load(StoredProfile, path, folder="systems")
    if stored.system != system.name:
        raise UsageError(
            f"{path} is of {stored.system}, and the system is {system.name}; name the same in both"
        )
    facts = load_workload(stored.workload)
    seconds = stored.sample_time.number * stored.local_batch.value
    forward, gradients = _timeline(_layers(facts, facts.preset(stored.preset)), seconds)
    update = _update_seconds(facts, facts.preset(stored.preset), system)
    profile = Profile(
        workload=stored.workload,
        preset=stored.preset,
        framework=stored.framework,
        local_batch=stored.local_batch.value,
        forward_seconds=forward,
        backward_seconds=seconds,
        update_seconds=update,
        gradients=tuple(gradients),
        step_seconds=(seconds + update,),
        evidence="published",
        source=f"{stored.sample_time.value} per sample ({stored.sources[stored.sample_time.source]})",
        derived=(
            "split of a step over layers, by their operations",
            "update, by the bytes that it moves through memory",
            f"variation of steps ({stored.variation.note})",
        ),
        variation=(stored.variation.low, stored.variation.high),
    )
    profile = _with_least_batch(profile, system, device=system.default_device)
    return _with_fixed_cost(profile, system, device=system.default_device, is_part=True)


def _layers(workload: Workload, preset: Preset) -> Sequence[Layer]:
    if workload.layers is None:
        raise UsageError(
            f"nothing states the layers of {workload.name}, over which a published rate is split; measure a profile "
            "and give it to dlscale predict --from"
        )
    return workload.layers(preset)


def _timeline(layers: Sequence[Layer], seconds: float) -> tuple[float, list[Gradient]]:
    """The end of the forward pass, and the gradients, of a step that is done with its backward pass in so long."""
    forward = seconds * sum(it.forward * it.forward_flops for it in layers) / step_flops(layers)
    gradients = [
        Gradient(
            name=f"{layer.name}.{part}",
            num_bytes=FLOAT32_BYTES * count,
            ready_seconds=forward + share * (seconds - forward),
            objective=layer.objective,
        )
        for layer, share in backward_shares(layers)
        for part, count in (("bias", layer.bias), ("weight", layer.kernel))
        if count
    ]
    return forward, gradients


class Stated(Frozen):
    """A published rate, between the lowest and the highest that is stated."""

    systems: list[Text]
    of: Literal["node", "device"]
    low: PositiveFloat
    high: PositiveFloat
    kind: Literal["text", "table", "figure"]
    source: Text


class SampleRate(Stated):
    """Samples per second of a workload's published preset."""

    workload: Text


class StatedVariation(Frozen):
    """Coefficients of variation of steps."""

    low: PositiveFloat
    high: PositiveFloat
    source: Text


class Sustained(Frozen):
    """The file `sustained.toml`."""

    peaks: Text
    variation: StatedVariation
    gpu_variation: StatedVariation
    rates: list[SampleRate]
    flops: list[Stated]
    least_batches: list[Stated] = []


def load_sustained() -> Sustained:
    """What is published."""
    text = resources.files(PACKAGE).joinpath("sustained.toml").read_text(encoding="utf-8")
    return Sustained.model_validate(tomllib.loads(text))


class Pace(Frozen):
    """Seconds per sample of one rank, at least and at most, and how they are known."""

    least: float
    most: float
    text: Text
    of_workload: bool = False  # published of the workload itself


def derived_profile(
    system: System,
    workload: str,
    preset_name: str | None,
    framework: str,
    *,
    device: str,
    ranks_per_node: int,
) -> Profile:
    """The profile of one rank, at the preset's local batch. Raises UsageError where nothing is known of such nodes."""
    facts = load_workload(workload)
    preset = facts.preset(preset_name)
    known = load_sustained()
    variation = known.gpu_variation if device == "gpu" else known.variation
    pace = _pace(known, system, workload, preset, device=device, ranks_per_node=ranks_per_node)
    center = math.sqrt(pace.least * pace.most)
    seconds = center * preset.local_batch
    band = f"{seconds_text(center)} ({seconds_text(pace.least)} to {seconds_text(pace.most)})"
    forward, gradients = _timeline(_layers(facts, preset), seconds)
    update = _update_seconds(facts, preset, system)
    profile = Profile(
        workload=workload,
        preset=preset.name,
        framework=framework,
        local_batch=preset.local_batch,
        forward_seconds=forward,
        backward_seconds=seconds,
        update_seconds=update,
        gradients=tuple(gradients),
        step_seconds=(seconds + update,),
        evidence="derived",
        source=f"{band} per sample and rank, {pace.text}",
        derived=(
            *["operations at the rates of large networks: a small one reaches less"]
            * (preset.name != "paper"),
            "split of a step over layers, by their operations",
            "update, by the bytes that it moves through memory",
            f"variation of steps, {100 * variation.low:.2g} to {100 * variation.high:.2g} %, from another "
            f"machine ({variation.source})",
        ),
        variation=(variation.low, variation.high),
        time_factors=(pace.least / center, pace.most / center),
    )
    profile = _with_least_batch(
        profile, system, device=device, sharing=1 if device == "gpu" else ranks_per_node
    )
    return _with_fixed_cost(profile, system, device=device, is_part=pace.of_workload)


def _with_least_batch(profile: Profile, system: System, *, device: str, sharing: int = 1) -> Profile:
    """The profile with how many samples a step computes at least as long as, where that is published."""
    owner = "device" if device == "gpu" else "node"
    for it in load_sustained().least_batches:
        if system.name in it.systems and it.of == owner:
            low, high = it.low / sharing, it.high / sharing
            origin, *_ = it.source.partition(":")
            text = f"steps of fewer samples than {low:g} to {high:g}, as long as of so many ({origin})"
            return replace(profile, least_batch=(low, high), derived=(*profile.derived, text))
    return profile


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
    text = (
        f"{seconds_text(fixed)} ({seconds_text(low)} to {seconds_text(high)}) of a step whatever its batch, measured "
        f"on {load_costs().source.partition(' (')[0]}, by the processors' frequencies"
    )
    return replace(
        profile,
        fixed_seconds=fixed,
        fixed_factors=(low / fixed, high / fixed),
        derived=(*profile.derived, text),
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

    The device is by default the one that the system's nodes have. Raises UsageError.
    """
    if f"{system.name}-{workload}" in stored_names():
        stored = load_stored(system, workload)
        if (stored.preset, stored.framework) == (preset, framework):
            return stored
    where = device or system.default_device
    return derived_profile(system, workload, preset, framework, device=where, ranks_per_node=ranks_per_node)


def _update_seconds(workload: Workload, preset: Preset, system: System) -> float:
    """By the bytes that it moves through memory."""
    if system.node.memory_bandwidth is None:
        raise UsageError(
            f"{system.name} states no node.memory_bandwidth, which the update's time is derived from"
        )
    moved = ADAM_BYTES_MOVED if workload.optimizer == "adam" else MOMENTUM_BYTES_MOVED
    return moved * preset.num_parameters / system.node.memory_bandwidth.number


def _pace(
    known: Sustained, system: System, workload: str, preset: Preset, *, device: str, ranks_per_node: int
) -> Pace:
    owner = "device" if device == "gpu" else "node"
    sharing = 1 if device == "gpu" else ranks_per_node
    flops = step_flops(_layers(load_workload(workload), preset))
    of_system = [rate for rate in known.rates if system.name in rate.systems and rate.of == owner]
    own = [rate for rate in of_system if rate.workload == workload and preset.name == "paper"]
    if own:
        return Pace(
            least=sharing / max(rate.high for rate in own),
            most=sharing / min(rate.low for rate in own),
            text=f"published{SOURCES}{'; '.join(rate.source for rate in own)}",
            of_workload=True,
        )
    stated = [
        *_operations(of_system),
        *(it for it in known.flops if system.name in it.systems and it.of == owner),
    ]
    if stated:
        least, most = min(it.low for it in stated), max(it.high for it in stated)
        origin = f"{least:.3g} to {most:.3g} operations per second of other networks on such a {owner}"
        seconds = {"least": flops * sharing / most, "most": flops * sharing / least}
        return Pace(**seconds, text=f"{origin}{SOURCES}{_sources(stated)}")
    peaks = system.devices.peak if device == "gpu" and system.devices else system.node.peak
    dtype = next((name for name in ("fp32", "fp64") if name in peaks), None)
    if dtype is None:
        raise UsageError(
            f"no rate of {workload} is published for {system.name}, and its file states no fp32 peak to derive one "
            "from; add it with its source, or measure a profile and give it to dlscale predict --from"
        )
    reference = load_system(known.peaks)
    like = [it for it in known.rates if reference.name in it.systems]
    all_like = [*_operations(like), *(it for it in known.flops if reference.name in it.systems)]
    peak = reference.node.peak["fp32"].number
    low, high = min(it.low for it in all_like) / peak, max(it.high for it in all_like) / peak
    stated_peak = peaks[dtype]
    return Pace(
        least=flops * sharing / (high * stated_peak.number),
        most=flops * sharing / (low * stated_peak.number),
        text=f"{100 * low:.2g} to {100 * high:.2g} % of the stated {dtype} peak of {stated_peak.value}, as on "
        f"{reference.name}{SOURCES}{system.sources[stated_peak.source]}; {_sources(all_like)}",
    )


def _operations(rates: Sequence[SampleRate]) -> Iterator[Stated]:
    """The rates in operations per second."""
    for rate in rates:
        facts = load_workload(rate.workload)
        flops = step_flops(_layers(facts, facts.preset("paper")))
        yield rate.model_copy(update={"low": flops * rate.low, "high": flops * rate.high})


def _sources(stated: Sequence[Stated]) -> str:
    return "; ".join(dict.fromkeys(it.source for it in stated))
