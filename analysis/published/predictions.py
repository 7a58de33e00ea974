"""Curves that are predicted of publications, as replicates; all that this folder asks of `predict` is asked here.

Each replicate draws what is not known, and the slowest device of every step. A curve over the nodes of one of our
systems is a scenario of `predict`. Of a curve over devices on one switch each replicate draws every input from its
range, evenly, or in ranges of more than a factor of 20 evenly in the logarithm; an input that two curves share is drawn
once for both, so that their ratio does not depend on it.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from dlscale.analysis.predict.backends import Bucket, ExchangeRule, rule_of
from dlscale.analysis.predict.costs import coordination_cost, serving_cost
from dlscale.analysis.predict.exchange import NetworkExchange, cost
from dlscale.analysis.predict.network import Network, completed, network_of
from dlscale.analysis.predict.noise import Noise, noise_of_steps, slowest
from dlscale.analysis.predict.prediction import predict_point
from dlscale.analysis.predict.profile import ComputedStep, Profile
from dlscale.analysis.predict.public_profiles import public_profile
from dlscale.analysis.predict.scenario import Scenario
from dlscale.analysis.predict.timeline import BucketExchange, pipelined, step_seconds
from dlscale.analysis.published.catalogue import RATIOS, Figure, Panel, Published
from dlscale.analysis.published.claims import AnyCurve, DeviceCurve, Publication, Range, SystemCurve, x_of
from dlscale.benchmarks.systems.system import load_system
from dlscale.models import load_workload
from dlscale.models.layers import Layer, backward_shares, dense
from dlscale.models.resnet50 import Network as ResNet
from dlscale.models.resnet50 import step_layers

REPLICATES, STEPS = 2000, 10
FRAMEWORK = "tensorflow"  # of the published servers
BAND = (0.05, 0.5, 0.95)
WIDE = 20  # high over low, beyond which orders of magnitude are equally probable, not values
LARGEST = 0.25  # of gradients that travel together: their share of the bytes, or of backpropagation
COLUMNS = ("figure", "panel", "series", "backend", "publication", "x", "low", "y", "high", "assumed")
Floats = NDArray[np.float64]
Draws = Mapping[str, Floats]  # field of a curve -> (REPLICATES, 1) values of its input
Parts = Sequence[tuple[float, float, int]]


def band_of(values: Floats) -> Floats:
    """(3,) the 5 %, 50 % and 95 % quantiles of replicates (R,)."""
    return np.quantile(values, BAND)


@cache
def parts_of(network: str) -> Parts:
    """Gradients in the order of backpropagation: (bytes, ready after that share of it, number of variables).

    Neighbours are put together up to a quarter of the bytes and a quarter of backpropagation, as exchanges fuse them.
    """
    layers = [
        (4 * (layer.kernel + layer.bias), share, 1 + bool(layer.bias))
        for layer, share in backward_shares(NETWORKS[network]())
        if layer.kernel
    ]
    total, parts, begin, before = sum(layer[0] for layer in layers), [layers[0]], 0.0, layers[0][1]
    for size, ready, count in layers[1:]:
        if parts[-1][0] + size > LARGEST * total or ready - begin > LARGEST:
            parts.append((size, ready, count))
            begin = before
        else:
            parts[-1] = (parts[-1][0] + size, ready, parts[-1][2] + count)
        before = ready
    return tuple(parts)


def _ours(name: str) -> Sequence[Layer]:
    workload = load_workload(name)
    if workload.layers is None:
        raise ValueError(f"{name} does not state its layers")
    return workload.layers(workload.preset("paper"))


def _resnet(*num_blocks: int) -> Sequence[Layer]:
    """ResNet-50 with other numbers of blocks (arXiv:1512.03385, table 1)."""
    return step_layers(load_workload("resnet50").preset("paper"), ResNet(num_blocks=num_blocks))


def _vgg16() -> Sequence[Layer]:
    """Configuration D of arXiv:1409.1556: stages of 3x3 convolutions, each halved by a pool; three dense layers."""
    found: list[Layer] = []
    inputs, size = 3, 224
    for outputs, count in ((64, 2), (128, 2), (256, 3), (512, 3), (512, 3)):
        for _ in range(count):
            kernel = 9 * inputs * outputs
            name, flops = f"convolutions.{len(found)}", 2 * kernel * size**2
            found.append(Layer(name, kernel, outputs, flops, backward=2 if found else 1))
            inputs = outputs
        size //= 2
    widths = (inputs * size**2, 4096, 4096, 1000)
    return [*found, *(dense(f"dense.{place}", *widths[place : place + 2]) for place in range(3))]


NETWORKS: Mapping[str, Callable[[], Sequence[Layer]]] = {
    **{name: partial(_ours, name) for name in ("resnet50", "inception_v3", "cosmogan")},
    "resnet101": partial(_resnet, 3, 4, 23, 3),
    "resnet152": partial(_resnet, 3, 8, 36, 3),
    "vgg16": _vgg16,
}


@dataclass(frozen=True, slots=True)
class Replicates:
    """(REPLICATES,) of a curve on so many devices."""

    size: int
    efficiency: Floats
    samples_per_second: Floats

    def quantity(self, name: str, curve: AnyCurve, figure: Figure) -> Floats | None:
        """(R,) a published quantity in its base unit; None if the curve has none."""
        batch = (1 if curve.strong else self.size) * curve.batch.value
        of_rate = {"seconds_per_step": batch, "seconds_per_epoch": figure.images_per_epoch}
        if name == "relative_time":
            return None if curve.strong else 1 / self.efficiency
        if amount := of_rate.get(name):
            return amount / self.samples_per_second
        speed_up = self.efficiency * self.size / curve.base
        rates = {"efficiency": self.efficiency, "speed_up": speed_up, "throughput": self.samples_per_second}
        return rates.get(name)


@dataclass(frozen=True, slots=True)
class Predictions:
    """What is predicted of a publication; each curve and size is computed once."""

    publication: Publication
    gradients: Callable[[str], Parts] = parts_of
    _known: dict[tuple[str, int, str], Replicates] = field(default_factory=dict)

    def replicates(self, name: str, size: int, changed: str = "") -> Replicates:
        """The curve of that name on so many devices, with what is `changed` of its network or noise."""
        key, curve = (name, size, changed), self.publication.curve(name)
        if key not in self._known:
            self._known[key] = (
                _on_devices(self.publication, curve, self.gradients(curve.network), size)
                if isinstance(curve, DeviceCurve)
                else _on_system(curve, size, changed)
            )
        return self._known[key]

    def ratio(self, names: Sequence[str], size: int) -> Floats:
        """(R,) the rate of the first curve over that of the second."""
        above, below = (self.replicates(name, size).samples_per_second for name in names)
        return above / below


def node_of(curve: SystemCurve) -> tuple[Network, Profile]:
    """The network of a system, and what is public of the workload on one of its nodes. Raises UsageError."""
    machine = completed(load_system(curve.system))
    return network_of(machine), public_profile(machine.system, curve.workload)


def assumed(publication: Publication, name: str) -> Iterator[str]:
    """What of a curve's inputs is not public and stands in it as a range of ours, in words."""
    curve = publication.curve(name)
    if isinstance(curve, SystemCurve):
        network, profile = node_of(curve)
        known = [*profile.origins[:1], *(it for it in network.origins if it.kind == "assumed")]
        for origin in known[profile.evidence != "derived" :]:
            yield f"{origin.input} {origin.value} ({origin.source})"
        return
    for entry in curve.inputs:
        limits = publication.inputs[entry]
        if limits.kind == "assumed":
            yield f"{entry.replace('_', ' ')}: {limits.low:g} to {limits.high:g} {limits.unit}"
    if curve.transport.kind == "assumed":
        yield "how gradients travel"


def predicted_curves(
    published: Published, publications: Sequence[Publication], names: Collection[str] = ()
) -> pd.DataFrame:
    """A row per size of every curve in every panel that has its quantity; with `names` in those figures alone.

    In panels of relative throughput these are the ratios that a publication claims. `panel` is its place in the figure.
    """
    rows = [
        (name, index, label, curves[0].backend, publication.name, x_of(figure, curves[0], size), *band, texts)
        for publication in publications
        for predictions in (Predictions(publication),)
        for name in publication.figures
        if not names or name in names
        for figure in (published.figure(name),)
        for index, panel in enumerate(figure.panels)
        if not panel.reference
        for label, curves in _drawn_in(publication, figure, panel)
        for texts in ("; ".join(text for it in curves for text in assumed(publication, it.name)),)
        for size, band in _sizes(predictions, figure, panel, curves)
    ]
    return pd.DataFrame(rows, columns=list(COLUMNS))


def _drawn_in(
    publication: Publication, figure: Figure, panel: Panel
) -> Iterator[tuple[str, tuple[AnyCurve, ...]]]:
    """Label and curve of each that belongs in a panel, and label and both curves of a ratio."""
    for curve in publication.curves:
        series = curve.figures.get(figure.id)
        other_base = panel.layout in RATIOS and x_of(figure, curve, curve.base) != figure.base_x
        if series is not None and (not series or series in (panel.series or (series,))) and not other_base:
            yield figure.label(series) if series else curve.name, (curve,)
    for claim in publication.claims:
        wanted = (figure.id, "ratio", "relative_throughput")
        if (claim.figure, claim.check, panel.layout) == wanted and claim.curves:
            curves = tuple(map(publication.curve, claim.curves))
            yield claim.label or " over ".join(claim.curves), curves


def _sizes(
    predictions: Predictions, figure: Figure, panel: Panel, curves: tuple[AnyCurve, ...]
) -> Iterator[tuple[int, Floats]]:
    """Size and band of a curve in the panel's quantity, or of a ratio; none if the curve has it not."""
    for size in sorted(set.intersection(*(set(curve.sizes) for curve in curves))):
        here = predictions.replicates(curves[0].name, size)
        if len(curves) == 2:
            yield size, band_of(predictions.ratio([curve.name for curve in curves], size))
        elif (values := here.quantity(panel.layout, curves[0], figure)) is not None:
            yield size, band_of(values)


def scenario_of_curve(curve: SystemCurve) -> Scenario:
    """What is predicted of a curve on one of our systems, by the engine that is always there. Raises UsageError."""
    network, profile = node_of(curve)
    machine = load_system(curve.system)
    servers = curve.servers.value if curve.servers else 1
    rule = rule_of(
        curve.backend,
        {name: setting.value for name, setting in curve.options.items()},
        framework=profile.framework,
        num_servers=servers,
        spare_core=machine.has_spare_core(1),
    )
    tensors = len(profile.gradients)
    return Scenario(
        network=network,
        profile=profile,
        noise=noise_of_steps(profile.step_seconds, profile.variation),
        rule=rule,
        scaling_mode=curve.scaling_mode,
        batch=curve.batch.value,
        num_servers=lambda _: servers,
        coordination=coordination_cost(machine) if curve.coordinator else None,
        serving=serving_cost(machine, curve.backend, profile.framework, num_tensors=tensors),
        num_replicates=REPLICATES,
    )


def _on_system(curve: SystemCurve, size: int, changed: str) -> Replicates:
    scenario = scenario_of_curve(curve)
    network, (low, high) = scenario.network, scenario.noise.variation
    if changed == "half the latency":
        short, long = network.latency_factors
        scenario = replace(scenario, network=replace(network, latency_factors=(short / 2, long / 2)))
    elif changed:  # half the jitter
        scenario = replace(scenario, noise=Noise(variation=(low / 2, high / 2)))
    point = predict_point(scenario, size)
    return Replicates(size, point.replicates, point.rates)


def _on_devices(publication: Publication, curve: DeviceCurve, parts: Parts, size: int) -> Replicates:
    names = {field: getattr(curve, field) for field in DeviceCurve.INPUTS if getattr(curve, field)}
    ranges = {field: publication.inputs[name] for field, name in names.items()}
    draws = {field: drawn(name, ranges[field]) for field, name in names.items()}
    share = size / curve.base if curve.strong else 1.0
    exchanges = _exchanges(curve, draws, ranges.get("threads"), parts, size)
    base = _steps(curve, draws, draws["step"], [], curve.base).mean(axis=1)
    here = _steps(curve, draws, draws["step"] / share, exchanges, size).mean(axis=1)
    return Replicates(size, base / here / share, (1 if curve.strong else size) * curve.batch.value / here)


def _uniform(name: str) -> Floats:
    """(REPLICATES, 1) draws between 0 and 1, the same wherever that name is used."""
    return np.random.default_rng(zlib.crc32(name.encode())).random((REPLICATES, 1))


def drawn(name: str, limits: Range) -> Floats:
    """(REPLICATES, 1) values of the input of that name."""
    if limits.high > WIDE * limits.low:
        return np.asarray(limits.low * (limits.high / limits.low) ** _uniform(name))
    return np.asarray(limits.low + (limits.high - limits.low) * _uniform(name))


def _exchanges(
    curve: DeviceCurve, draws: Draws, threads: Range | None, parts: Parts, size: int
) -> list[tuple[float, Floats]]:
    """(share of backpropagation when it is ready, (R, 1) seconds of its exchange) of what travels together."""
    per_node = curve.devices_per_node.value
    nodes = max(1, size // per_node)
    if nodes == 1:  # what the links within a node cost is not modelled
        return []
    members = nodes * per_node if curve.transport.flat else nodes
    # Never more servers than members.
    servers = np.minimum(np.rint(draws.get("servers", np.zeros((1, 1)))), members).astype(int)
    unit = {int(count): _unit_cost(curve, members, int(count)) for count in np.unique(servers)}
    messages, volume = np.moveaxis(np.array([[unit[count]] for count in servers.ravel()]), 2, 0)
    if curve.transport.overlap != "thread":
        parts = ((sum(it[0] for it in parts), 1.0, sum(it[2] for it in parts)),)
    serving = serving_cost(None, curve.backend, FRAMEWORK, num_tensors=1) if threads else None
    software, at_once = _uniform("software"), _uniform("threads")

    def seconds(num_bytes: float, count: int) -> Floats:
        link = np.asarray(messages * draws["latency"] + volume * num_bytes / draws["rate"])
        if serving and threads:  # each variable is a message
            cost_of = serving._replace(threads=(threads.low, threads.high)).seconds
            worker = cost_of(count / servers, num_bytes / servers, software=software, threads=at_once)
            link = pipelined(link, worker, members)
        if curve.coordinator:
            of_rank = coordination_cost(None).seconds(draws["latency"], count, software=software)
            link = link + (size - 1) * of_rank
        return link

    return [(ready, seconds(num_bytes, count)) for num_bytes, ready, count in parts]


def _unit_cost(curve: DeviceCurve, members: int, num_servers: int) -> tuple[float, float]:
    """(messages in a row, bytes through the fullest link per byte of gradients) of an exchange."""
    unit = Network(
        name="units",
        num_nodes=members + num_servers,
        node_bytes_per_second=1.0,
        latency_seconds=1.0,
        node_memory_bytes_per_second=None,
        reduce_seconds_per_byte=0.0,
    )
    algorithm = curve.transport.algorithm
    once = cost(unit, NetworkExchange(algorithm=algorithm, num_nodes=members, num_servers=num_servers))
    return once.seconds, once.seconds_per_byte


def _steps(
    curve: DeviceCurve, draws: Draws, step: Floats, exchanges: list[tuple[float, Floats]], size: int
) -> Floats:
    """(R, STEPS) seconds. The timeline is that of one step, so each replicate's is scaled to it."""
    rng = np.random.default_rng([0, size])
    # (R, STEPS) of the slowest device; a lognormal of another variation is a power of it, nearly, for a few percent.
    standard = slowest(Noise(variation=(0.01, 0.01)), size, (REPLICATES, STEPS), (0, size))
    rng.random((REPLICATES, STEPS))  # those of the slowest
    factors = np.asarray(standard ** (draws["variation"] / 0.01), dtype=np.float64)
    # A step late, an exchange has the forward pass, too.
    backward = 1.0 if curve.transport.overlap == "next_step" else draws["backward"]
    # In units of a replicate's backpropagation; its forward follows it, as each step follows another.
    length = step * backward
    parts = []
    for ready, seconds in exchanges:
        waited = draws.get("cycle", 0.0) / length * rng.random(length.shape)
        bucket = Bucket(num_bytes=1, ready_seconds=ready)
        parts.append(BucketExchange(bucket=bucket, seconds=seconds / length + waited))
    rule = ExchangeRule(backend="horovod", overlap=curve.transport.overlap)
    computed = ComputedStep(backward_seconds=1.0, update_seconds=0.0)
    return (step_seconds(computed, rule, parts, factors, rng) + factors * (1 / backward - 1)) * length
