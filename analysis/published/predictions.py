"""Curves that are predicted of publications, as replicates; all that this folder asks of `predict` is asked here.

Each replicate draws what is not known, and the slowest device of every step. A curve over the nodes of one of our
systems is a scenario of `predict`. Of a curve over devices on one switch each replicate draws every input from its
range, evenly, or in ranges of more than a factor of 20 evenly in the logarithm; an input that two curves share is drawn
once for both, so that their ratio does not depend on it.
"""

from __future__ import annotations

import zlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from dlscale.analysis.predict import costs, prediction, public_profiles
from dlscale.analysis.predict.backends import Bucket, ExchangeRule, rule_of
from dlscale.analysis.predict.exchange import NetworkExchange, cost
from dlscale.analysis.predict.network import Network, completed, network_of
from dlscale.analysis.predict.noise import Noise, noise_of_steps, slowest
from dlscale.analysis.predict.profile import ComputedStep, Profile
from dlscale.analysis.predict.scenario import Scenario
from dlscale.analysis.predict.timeline import BucketExchange, pipelined, step_seconds
from dlscale.analysis.published.catalogue import FOLDER, RATIOS, Figure, Panel, Published
from dlscale.analysis.published.claims import AnyCurve, DeviceCurve, Publication, Range, SystemCurve, x_of
from dlscale.base.definitions import parse_tables
from dlscale.benchmarks.systems.system import load_system
from dlscale.collectives.capabilities import REFERENCE

REPLICATES, STEPS = 2000, 10
FRAMEWORK = "tensorflow"  # of the published servers
BAND = (0.05, 0.5, 0.95)
WIDE = 20  # high over low, beyond which orders of magnitude are equally probable, not values
COLUMNS = ["figure", "panel", "series", "backend", "publication", "x", "low", "y", "high", "assumed"]
Floats = NDArray[np.float64]
Draws = Mapping[str, Floats]  # field of a curve -> (REPLICATES, 1) values of its input
Parts = Sequence[tuple[float, float, int]]


def band_of(values: Floats) -> Floats:
    """(3,) the 5 %, 50 % and 95 % quantiles of replicates (R,)."""
    return np.quantile(values, BAND)


@cache
def networks() -> Mapping[str, Parts]:
    """Network -> gradients in the order of backpropagation: (bytes, ready after that share of it, variables)."""
    tables: Mapping[str, Parts] = parse_tables((FOLDER / "networks.toml").read_text(encoding="utf-8"))
    return tables


class Replicates(NamedTuple):
    """(REPLICATES,) of a curve on so many devices."""

    size: int
    efficiency: Floats
    samples_per_second: Floats

    def quantity(self, name: str, curve: AnyCurve, figure: Figure) -> Floats | None:
        """(R,) a published quantity in its base unit; None if the curve has none."""
        batch = (1 if curve.strong else self.size) * curve.batch.value
        of_rate = {"seconds_per_step": batch, "seconds_per_epoch": figure.images_per_epoch}
        if amount := of_rate.get(name):
            return amount / self.samples_per_second
        known = {"throughput": self.samples_per_second, "efficiency": self.efficiency}
        known["speed_up"] = self.efficiency * self.size / curve.base
        return (known if curve.strong else known | {"relative_time": 1 / self.efficiency}).get(name)


class Predictions:
    """What is predicted of a publication; each curve and size is computed once."""

    def __init__(self, publication: Publication, gradients: Mapping[str, Parts] | None = None) -> None:
        self.publication = publication
        self._gradients = networks() if gradients is None else gradients
        self._known: dict[tuple[str, int, str], Replicates] = {}

    def replicates(self, name: str, size: int, changed: str = "") -> Replicates:
        """The curve of that name on so many devices, with what is `changed` of its network or noise."""
        key, curve = (name, size, changed), self.publication.curve(name)
        if key not in self._known and isinstance(curve, DeviceCurve):
            parts = self._gradients[curve.network]
            self._known[key] = _on_devices(self.publication, curve, parts, size)
        elif key not in self._known and isinstance(curve, SystemCurve):
            self._known[key] = _on_system(curve, size, changed)
        return self._known[key]

    def ratio(self, names: Sequence[str], size: int) -> Floats:
        """(R,) the rate of the first curve over that of the second."""
        above, below = (self.replicates(name, size).samples_per_second for name in names)
        return above / below


def node_of(curve: SystemCurve) -> tuple[Network, Profile]:
    """The network of a system, and what is public of the workload on one of its nodes. Raises UsageError."""
    machine = completed(load_system(curve.system))
    return network_of(machine), public_profiles.public_profile(machine.system, curve.workload)


def assumed(publication: Publication, name: str) -> Iterator[str]:
    """What of a curve's inputs is not public and stands in it as a range of ours, in words."""
    curve = publication.curve(name)
    if isinstance(curve, SystemCurve):
        network, profile = node_of(curve)
        known = [*profile.origins[:1], *(it for it in network.origins if it.kind == "assumed")]
        for origin in known[profile.evidence != "derived" :]:
            yield f"{origin.input} {origin.value} ({origin.source})"
        return
    for entry in curve.inputs.values():
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
    rows: list[tuple[Any, ...]] = []
    for publication in publications:
        predictions = Predictions(publication)
        for figure in map(published.figure, publication.figures):
            shown = enumerate(figure.panels if not names or figure.id in names else ())
            drawn = [(at, it) for at, panel in shown for it in _drawn_in(publication, figure, panel)]
            for at, (label, curves) in drawn:
                texts = "; ".join(text for it in curves for text in assumed(publication, it.name))
                for size in sorted(set.intersection(*(set(curve.sizes) for curve in curves))):
                    values = _values(predictions, figure, figure.panels[at], curves, size)
                    if values is not None:
                        who = (figure.id, at, label, curves[0].backend, publication.name)
                        rows.append((*who, x_of(figure, curves[0], size), *band_of(values), texts))
    return pd.DataFrame(rows, columns=COLUMNS)


def _drawn_in(
    publication: Publication, figure: Figure, panel: Panel
) -> Iterator[tuple[str, tuple[AnyCurve, ...]]]:
    """Label and curve of each that belongs in a panel, and label and both curves of a ratio."""
    for curve in () if panel.reference else publication.curves:
        series = curve.figures.get(figure.id)
        other_base = panel.layout in RATIOS and x_of(figure, curve, curve.base) != figure.base_x
        if series is not None and (not series or series in (panel.series or (series,))) and not other_base:
            yield figure.label(series) if series else curve.name, (curve,)
    for claim in () if panel.reference else publication.claims:
        wanted = (figure.id, "ratio", "relative_throughput")
        if (claim.figure, claim.check, panel.layout) == wanted and claim.curves:
            yield claim.label or " over ".join(claim.curves), tuple(map(publication.curve, claim.curves))


def _values(
    predictions: Predictions, figure: Figure, panel: Panel, curves: Sequence[AnyCurve], size: int
) -> Floats | None:
    """(R,) a curve in the panel's quantity, or a ratio; None if the curve has it not."""
    if len(curves) == 2:
        return predictions.ratio([curve.name for curve in curves], size)
    return predictions.replicates(curves[0].name, size).quantity(panel.layout, curves[0], figure)


def scenario_of_curve(curve: SystemCurve) -> Scenario:
    """What is predicted of a curve on one of our systems, by the engine that is always there. Raises UsageError."""
    network, profile = node_of(curve)
    machine = load_system(curve.system)
    servers = curve.servers.value if curve.servers else 1
    options, spare = {name: it.value for name, it in curve.options.items()}, machine.has_spare_core(1)
    known: dict[str, Any] = {"framework": profile.framework, "num_servers": servers, "spare_core": spare}
    tensors = len(profile.gradients)
    return Scenario(
        network=network,
        profile=profile,
        noise=noise_of_steps(profile.step_seconds, profile.variation),
        rule=rule_of(curve.backend, options, **known),
        scaling_mode=curve.scaling_mode,
        batch=curve.batch.value,
        num_servers=lambda _: servers,
        coordination=costs.coordination_cost(machine) if curve.coordinator else None,
        serving=costs.serving_cost(machine, curve.backend, profile.framework, num_tensors=tensors),
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
    point = prediction.predict_point(scenario, size)
    return Replicates(size, point.replicates, point.rates)


def _on_devices(publication: Publication, curve: DeviceCurve, parts: Parts, size: int) -> Replicates:
    ranges = {field: publication.inputs[name] for field, name in curve.inputs.items()}
    draws = {field: drawn(name, ranges[field]) for field, name in curve.inputs.items()}
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
    serving = costs.serving_cost(None, curve.backend, FRAMEWORK, num_tensors=1) if threads else None
    software, at_once = _uniform("software"), _uniform("threads")

    def seconds(num_bytes: float, count: int) -> Floats:
        link = np.asarray(messages * draws["latency"] + volume * num_bytes / draws["rate"])
        if serving and threads:  # each variable is a message
            cost_of = serving._replace(threads=(threads.low, threads.high)).seconds
            worker = cost_of(count / servers, num_bytes / servers, software=software, threads=at_once)
            link = pipelined(link, worker, members)
        if curve.coordinator:
            of_rank = costs.coordination_cost(None).seconds(draws["latency"], count, software=software)
            link = link + (size - 1) * of_rank
        return link

    return [(ready, seconds(num_bytes, count)) for num_bytes, ready, count in parts]


def _unit_cost(curve: DeviceCurve, members: int, num_servers: int) -> tuple[float, float]:
    """(messages in a row, bytes through the fullest link per byte of gradients) of an exchange."""
    nodes = members + num_servers
    none: dict[str, Any] = {"node_memory_bytes_per_second": None, "reduce_seconds_per_byte": 0.0}
    unit = Network(name="units", num_nodes=nodes, node_bytes_per_second=1.0, latency_seconds=1.0, **none)
    ways = NetworkExchange(algorithm=curve.transport.algorithm, num_nodes=members, num_servers=num_servers)
    once = cost(unit, ways)
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
    rule = ExchangeRule(backend=REFERENCE, overlap=curve.transport.overlap)  # any that exchanges
    computed = ComputedStep(backward_seconds=1.0, update_seconds=0.0)
    return (step_seconds(computed, rule, parts, factors, rng) + factors * (1 / backward - 1)) * length
