"""What is predicted of publications: curves as replicates.

Each replicate draws what is not known, and the slowest device of every step.

Two kinds of curve: over the nodes of one of our systems, which `predict` has, and over devices on one switch, whose
inputs are ranges. Of these each replicate draws every input from its range, any value as probable as any other, or in
ranges of more than a factor of 20 any order of magnitude; an input that two curves share is drawn once for both, so
that their ratio does not depend on it.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from dlscale.analysis.predict.backend_rules import Bucket, ExchangeRule, rule_of
from dlscale.analysis.predict.costs import coordination_cost, serving_cost
from dlscale.analysis.predict.draws import pipelined
from dlscale.analysis.predict.exchange import NetworkExchange
from dlscale.analysis.predict.loggp import cost
from dlscale.analysis.predict.network import Network
from dlscale.analysis.predict.noise import Noise, noise_of_steps, slowest
from dlscale.analysis.predict.prediction import predict_point
from dlscale.analysis.predict.profile import ComputedStep
from dlscale.analysis.predict.scenario import Scenario, changed_scenarios
from dlscale.analysis.predict.timeline import BucketExchange, step_seconds
from dlscale.analysis.published.catalogue import Figure, Panel, Published
from dlscale.analysis.published.claims import (
    AnyCurve,
    DeviceCurve,
    Publication,
    Range,
    SystemCurve,
    x_of,
)
from dlscale.analysis.published.networks import Part, parts_of
from dlscale.analysis.published.values import RATIOS
from dlscale.benchmarks.systems.system import load_system

REPLICATES, STEPS = 2000, 10
FRAMEWORK = "tensorflow"  # of the published servers
BAND = (0.05, 0.95)
WIDE = 20  # high over low, beyond which orders of magnitude are equally probable, not values
Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Replicates:
    """(REPLICATES,) of a curve on so many devices."""

    size: int
    efficiency: Floats
    samples_per_second: Floats


@dataclass(frozen=True, slots=True, kw_only=True)
class Band:
    """The median of replicates and their 5 and 95 %."""

    low: float
    median: float
    high: float


def band_of(values: Floats) -> Band:
    """The band of replicates (R,)."""
    low, median, high = np.quantile(values, (BAND[0], 0.5, BAND[1])).tolist()
    return Band(low=low, median=median, high=high)


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictedCurve:
    """A curve as predicted in one panel of a figure: (x, band) of each size, in the quantity's base unit."""

    figure: str
    panel: int  # its place in the figure
    label: str  # in the legend; that of the published series where it predicts one
    backend: str  # of ours, whose colour it has
    points: tuple[tuple[float, Band], ...]
    publication: str  # whose file of claims it is in
    assumed: tuple[str, ...] = ()  # what of its inputs is not public, and stands in it as a range of ours


class Predictions:
    """What is predicted of a publication; each curve and size is computed once."""

    def __init__(
        self, publication: Publication, gradients: Callable[[str], Sequence[Part]] = parts_of
    ) -> None:
        self.publication = publication
        self._gradients = gradients
        self._known: dict[tuple[str, int, str], Replicates] = {}

    def replicates(self, name: str, size: int, *, changed: str = "") -> Replicates:
        """The curve of that name on so many devices, with what is `changed` of its network or noise."""
        key = (name, size, changed)
        if key not in self._known:
            curve = self.publication.curve(name)
            self._known[key] = (
                _on_devices(self.publication, curve, self._gradients(curve.network), size)
                if isinstance(curve, DeviceCurve)
                else _on_system(curve, size, changed)
            )
        return self._known[key]


def quantity_of(curve: AnyCurve, replicates: Replicates, quantity: str, figure: Figure) -> Floats | None:
    """(R,) a published quantity of a curve's replicates, in its base unit; None if it has none."""
    rate, size = replicates.samples_per_second, replicates.size
    if quantity == "efficiency":
        return replicates.efficiency
    if quantity == "speed_up":
        return replicates.efficiency * size / curve.base
    if quantity == "throughput":
        return rate
    if quantity == "seconds_per_step":
        return (curve.batch.value if curve.strong else size * curve.batch.value) / rate
    if quantity == "seconds_per_epoch" and figure.images_per_epoch:
        return figure.images_per_epoch / rate
    if quantity == "relative_time" and not curve.strong:
        return 1 / replicates.efficiency
    return None


def predicted_curves(
    published: Published, publications: Sequence[Publication], *, names: Collection[str] = ()
) -> list[PredictedCurve]:
    """Every predicted curve in every panel that has its quantity; with `names` in those figures alone.

    In panels of relative throughput these are the ratios that a publication claims.
    """
    return [
        PredictedCurve(
            figure=figure.id,
            panel=index,
            label=label,
            backend=curves[0].backend,
            points=tuple((x, band_of(values)) for x, values in sizes),
            publication=publication.name,
            assumed=tuple(text for curve in curves for text in publication.assumed(curve.name)),
        )
        for publication in publications
        for predictions in (Predictions(publication),)
        for figure in map(published.figure, publication.figures)
        if not names or figure.id in names
        for index, panel in enumerate(figure.panels)
        if not panel.reference
        for label, curves, sizes in (
            *_curves_in(predictions, figure, panel),
            *_ratios_in(predictions, figure, panel),
        )
        if sizes
    ]


Drawn = tuple[str, tuple[AnyCurve, ...], list[tuple[float, Floats]]]  # label, curves, (x, replicates)


def _curves_in(predictions: Predictions, figure: Figure, panel: Panel) -> Iterator[Drawn]:
    for curve in predictions.publication.curves:
        series = curve.figures.get(figure.id)
        if series is None or (series and not panel.holds(series)):
            continue
        label = figure.label(series) if series else curve.name
        yield label, (curve,), _sizes_of(predictions, figure, panel, curve)


def _ratios_in(predictions: Predictions, figure: Figure, panel: Panel) -> Iterator[Drawn]:
    publication = predictions.publication
    for claim in publication.claims:
        wanted = (figure.id, "ratio", "relative_throughput")
        if (claim.figure, claim.check, panel.layout) == wanted:
            above, below = map(publication.curve, claim.curves)
            label = claim.label or f"{above.name} over {below.name}"
            yield label, (above, below), _ratios_of(predictions, figure, above, below)


def _sizes_of(
    predictions: Predictions, figure: Figure, panel: Panel, curve: AnyCurve
) -> list[tuple[float, Floats]]:
    """(x, replicates) in the panel's quantity; none where that begins at other devices than the curve."""
    if panel.layout in RATIOS and x_of(figure, curve, curve.base) != figure.base_x:
        return []
    found = []
    for size in curve.sizes:
        values = quantity_of(curve, predictions.replicates(curve.name, size), panel.layout, figure)
        if values is None:
            return []
        found.append((x_of(figure, curve, size), values))
    return found


def _ratios_of(
    predictions: Predictions, figure: Figure, above: AnyCurve, below: AnyCurve
) -> list[tuple[float, Floats]]:
    found = []
    for size in sorted(set(above.sizes) & set(below.sizes)):
        over, under = (predictions.replicates(curve.name, size) for curve in (above, below))
        found.append((x_of(figure, above, size), over.samples_per_second / under.samples_per_second))
    return found


def scenario_of_curve(curve: SystemCurve) -> Scenario:
    """What is predicted of a curve on one of our systems, by the engine that is always there. Raises UsageError."""
    network, profile = curve.node
    machine = load_system(curve.system)
    servers = curve.servers.value if curve.servers else 1
    rule = rule_of(
        curve.backend,
        {name: setting.value for name, setting in curve.options.items()},
        framework=profile.framework,
        num_servers=servers,
        spare_core=machine.has_spare_core(1),
    )
    return Scenario(
        network=network,
        profile=profile,
        noise=noise_of_steps(profile.step_seconds, profile.variation),
        rule=rule,
        scaling_mode=curve.scaling_mode,
        batch=curve.batch.value,
        num_servers=lambda _: servers,
        coordination=coordination_cost(machine) if curve.coordinator else None,
        serving=serving_cost(
            machine,
            curve.backend,
            profile.framework,
            num_tensors=len(profile.gradients),
        ),
        num_replicates=REPLICATES,
    )


def _on_system(curve: SystemCurve, size: int, changed: str) -> Replicates:
    scenario = scenario_of_curve(curve)
    if changed:
        scenario = changed_scenarios(scenario)[changed]
    point = predict_point(scenario, size)
    return Replicates(size=size, efficiency=point.replicates, samples_per_second=point.rates)


def _on_devices(publication: Publication, curve: DeviceCurve, parts: Sequence[Part], size: int) -> Replicates:
    step, backward, rate, latency, variation = (
        drawn(name, publication.inputs[name])
        for name in (curve.step, curve.backward, curve.rate, curve.latency, curve.variation)
    )
    cycle = publication.inputs[curve.cycle].low if curve.cycle else 0.0
    counts = drawn(curve.servers, publication.inputs[curve.servers]) if curve.servers else None
    share = size / curve.base if curve.strong else 1.0
    exchanges = _exchanges(publication, curve, parts, size, rate=rate, latency=latency, counts=counts)
    base = _steps(curve, step, backward, [], variation, curve.base, cycle)
    here = _steps(curve, step / share, backward, exchanges, variation, size, cycle)
    devices = 1 if curve.strong else size
    return Replicates(
        size=size,
        efficiency=base.mean(axis=1) / here.mean(axis=1) / share,
        samples_per_second=devices * curve.batch.value / here.mean(axis=1),
    )


def drawn(name: str, limits: Range) -> Floats:
    """(REPLICATES, 1) values of the input of that name, the same wherever it is used."""
    rng = np.random.default_rng(zlib.crc32(name.encode()))
    if limits.high > WIDE * limits.low:
        return np.asarray(limits.low * (limits.high / limits.low) ** rng.random((REPLICATES, 1)))
    return rng.uniform(limits.low, limits.high, (REPLICATES, 1))


def _exchanges(
    publication: Publication,
    curve: DeviceCurve,
    parts: Sequence[Part],
    size: int,
    *,
    rate: Floats,
    latency: Floats,
    counts: Floats | None,
) -> list[tuple[float, Floats]]:
    """(share of backpropagation when it is ready, (R, 1) seconds of its exchange) of what travels together."""
    per_node = curve.devices_per_node.value
    nodes = max(1, size // per_node)
    if nodes == 1:  # what the links within a node cost is not modelled
        return []
    members = nodes * per_node if curve.transport.flat else nodes
    # Never more servers than members.
    whole = np.zeros((1, 1), int) if counts is None else np.minimum(np.rint(counts), members).astype(int)
    costs = {int(count): _unit_cost(curve, members, int(count)) for count in np.unique(whole)}
    steps_of = np.vectorize(lambda count: costs[count][0])(whole)
    volume_of = np.vectorize(lambda count: costs[count][1])(whole)
    if curve.transport.overlap != "thread":
        num_bytes, count = sum(it.num_bytes for it in parts), sum(it.num_variables for it in parts)
        parts = (Part(num_bytes=num_bytes, ready=1.0, num_variables=count),)
    software, at_once = (
        np.random.default_rng(zlib.crc32(name.encode())).random((REPLICATES, 1))
        for name in ("software", "threads")
    )
    serving = serving_cost(None, curve.backend, FRAMEWORK, num_tensors=1) if curve.threads else None
    if serving and curve.threads:
        limits = publication.inputs[curve.threads]
        serving = replace(serving, threads=(limits.low, limits.high))

    def seconds(part: Part) -> Floats:
        link = np.asarray(steps_of * latency + volume_of * part.num_bytes / rate)
        if serving:  # each variable is a message
            worker = serving.seconds(
                part.num_variables / whole, part.num_bytes / whole, software=software, threads=at_once
            )
            link = pipelined(link, worker, members)
        if curve.coordinator:
            of_rank = coordination_cost(None).seconds(latency, part.num_variables, software=software)
            link = link + (size - 1) * of_rank
        return link

    return [(part.ready, seconds(part)) for part in parts]


def _unit_cost(curve: DeviceCurve, members: int, num_servers: int) -> tuple[float, float]:
    """(messages in a row, bytes through the fullest link per byte of gradients) of an exchange."""
    exchange = NetworkExchange(
        algorithm=curve.transport.algorithm, num_nodes=members, num_servers=num_servers
    )
    unit = Network(
        name="units",
        num_nodes=members + num_servers,
        node_bytes_per_second=1.0,
        latency_seconds=1.0,
        node_memory_bytes_per_second=None,
        reduce_seconds_per_byte=0.0,
    )
    once = cost(unit, exchange)
    return once.seconds, once.seconds_per_byte


def _steps(
    curve: DeviceCurve,
    step: Floats,
    backward: Floats,
    exchanges: list[tuple[float, Floats]],
    variation: Floats,
    size: int,
    cycle: float,
) -> Floats:
    """(R, STEPS) seconds. The timeline is that of one step, so each replicate's is scaled to it."""
    rng = np.random.default_rng([0, size])
    factors = _factors(variation, size, rng)
    if curve.transport.overlap == "next_step":  # which is the forward pass, too
        backward = np.ones_like(backward)
    rule = ExchangeRule(backend="horovod", overlap=curve.transport.overlap)
    # In units of a replicate's backpropagation; its forward follows it, as each step follows another.
    length = step * backward
    parts = [
        BucketExchange(
            bucket=Bucket(num_bytes=1, ready_seconds=ready),
            seconds=seconds / length + cycle / length * rng.random(length.shape),
        )
        for ready, seconds in exchanges
    ]
    computed = ComputedStep(backward_seconds=1.0, update_seconds=0.0)
    return (step_seconds(computed, rule, parts, factors, rng) + factors * (1 / backward - 1)) * length


def _factors(variation: Floats, num_devices: int, rng: np.random.Generator) -> Floats:
    """(R, STEPS) of the slowest device, each replicate with its own variation."""
    standard = slowest(Noise(variation=(0.01, 0.01)), num_devices, (REPLICATES, STEPS), rng)
    # A lognormal of another variation is a power of it, nearly, for variations of a few percent.
    return np.asarray(standard ** (variation / 0.01), dtype=np.float64)
