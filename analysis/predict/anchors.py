"""Published curves against what is predicted from public inputs alone, with nothing fitted to the curve.

An anchor has the curve's place in results/published and the inputs of a prediction as ranges with their sources
(`anchors.toml`). Each replicate draws all inputs from their ranges, and the slowest of the devices in every step; the
band is the central 90 % of the efficiency. The universal scalability law stands beside it, which knows no mechanism:

    efficiency(N) = 1 / (1 + a (N - 1) + b N (N - 1))

It is fitted to a curve's first three sizes and asked for the largest.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import AfterValidator, NonNegativeFloat, PositiveFloat, PositiveInt, model_validator
from scipy.optimize import curve_fit

from dlscale.analysis.predict.backend_rules import Bucket, ExchangeRule
from dlscale.analysis.predict.engine import Algorithm, NetworkExchange
from dlscale.analysis.predict.loggp import cost
from dlscale.analysis.predict.network import Network
from dlscale.analysis.predict.noise import Noise, slowest
from dlscale.analysis.predict.profile import ComputedStep
from dlscale.analysis.predict.timeline import BucketExchange, step_seconds
from dlscale.analysis.published.catalogue import Published
from dlscale.analysis.published.values import HALF_WIDTH
from dlscale.base import definitions
from dlscale.base.definitions import Frozen

FILE = Path(__file__).with_name("anchors.toml")
REPLICATES, STEPS = 2000, 10
BAND = (0.05, 0.95)
FITTED_POINTS = 3
_ABOUT = 0.005  # efficiencies in words are rounded to a percent
Floats = NDArray[np.float64]
Kind = Literal["text", "table", "derived", "assumed"]


def _whole(shares: list[tuple[float, float]]) -> list[tuple[float, float]]:
    if abs(sum(share for share, _ in shares) - 1) > 0.01:
        raise ValueError("the shares of the bytes do not add up to 1")
    return shares


Gradients = Annotated[list[tuple[PositiveFloat, PositiveFloat]], AfterValidator(_whole)]


class Range(Frozen):
    """An input between two values."""

    low: PositiveFloat
    high: PositiveFloat
    unit: str
    kind: Kind
    source: str

    @model_validator(mode="after")
    def _check(self) -> Range:
        if not self.low <= self.high < float("inf"):
            raise ValueError(f"low {self.low:g} is above high {self.high:g}")
        return self

    def draw(self, rng: np.random.Generator) -> Floats:
        """(REPLICATES, 1) values, any as probable as any other."""
        return rng.uniform(self.low, self.high, (REPLICATES, 1))


class Number(Frozen):
    """An input that is known."""

    value: PositiveInt
    kind: Kind
    source: str


class Anchor(Frozen):
    """A published curve and the inputs of its prediction.

    `members_per_node` of a node's devices are in the exchange between nodes: all in a flat ring, else one for the node.
    `miss` explains a point outside the band.
    """

    name: str
    figure: str
    series: str
    gradients: str
    overlap: Literal["thread", "none"]
    cycle_seconds: NonNegativeFloat = 0.0
    algorithm: Algorithm
    strong: bool = False  # the batch is divided by the devices
    base_devices: PositiveInt
    devices_per_node: PositiveInt
    members_per_node: PositiveInt = 1
    num_bytes: Number
    step: Range  # of the base's devices, without an exchange between nodes
    backward: Range
    rate: Range  # what a node sends
    latency: Range
    variation: Range
    miss: str = ""


class Anchors(Frozen):
    """The file."""

    gradients: Mapping[str, Gradients]
    anchors: list[Anchor]

    @model_validator(mode="after")
    def _have_gradients(self) -> Anchors:
        for anchor in self.anchors:
            if anchor.gradients not in self.gradients:
                raise ValueError(f"anchor {anchor.name}: no gradients {anchor.gradients!r}")
        return self


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """An efficiency as published, `half_width` wide by its rounding or scatter."""

    num_devices: int
    efficiency: float
    half_width: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """A point with its prediction."""

    anchor: Anchor
    point: Point
    median: float
    low: float
    high: float

    @property
    def inside(self) -> bool:
        """Whether the band and what is published have a value in common."""
        half = self.point.half_width
        return self.low <= self.point.efficiency + half and self.point.efficiency - half <= self.high


def load_anchors(path: Path = FILE) -> Anchors:
    """The anchors. Raises UsageError if the file is damaged."""
    return definitions.load(Anchors, str(path), folder="systems")


def points(anchor: Anchor, published: Published) -> list[Point]:
    """The published efficiencies beyond the base, ascending: from throughputs, as printed, or in words."""
    rows = [row for row in published.values_of(anchor.figure) if row.series == anchor.series and row.x]
    throughput, scatter, efficiency = (
        {int(row.x): row for row in rows if row.x and row.quantity == quantity}
        for quantity in ("throughput", f"throughput{HALF_WIDTH}", "efficiency")
    )
    if throughput:
        per_device = throughput[anchor.base_devices].y / anchor.base_devices
        found = [
            (x, row.y / x / per_device, (scatter[x].y if x in scatter else row.rounding) / x / per_device)
            for x, row in throughput.items()
        ]
    elif efficiency:
        found = [(x, row.y, row.rounding) for x, row in efficiency.items()]
    else:
        found = [
            (int(row.x_high), row.band[0], _ABOUT)
            for row in published.statements_of(anchor.figure)
            if (row.series, row.quantity) == (anchor.series, "efficiency")
            and row.x_high
            and row.band[0] is not None
        ]
    return [
        Point(num_devices=x, efficiency=y, half_width=half)
        for x, y, half in sorted(found)
        if x > anchor.base_devices
    ]


def compared(anchors: Anchors, anchor: Anchor, published: Published) -> Iterator[Compared]:
    """Each point of a curve with its predicted band; the same inputs are drawn for all of them."""
    for point in points(anchor, published):
        drawn = predicted_efficiency(anchor, anchors.gradients[anchor.gradients], point.num_devices)
        low, median, high = np.quantile(drawn, (BAND[0], 0.5, BAND[1])).tolist()
        yield Compared(anchor=anchor, point=point, median=median, low=low, high=high)


def predicted_efficiency(anchor: Anchor, gradients: Gradients, num_devices: int) -> Floats:
    """(REPLICATES,) the rate per device over that of the base's devices."""
    rng = np.random.default_rng(0)
    step, backward, rate, latency, variation = (
        row.draw(rng) for row in (anchor.step, anchor.backward, anchor.rate, anchor.latency, anchor.variation)
    )
    # Each replicate has its own share of backpropagation: times below are in steps of the base.
    share = num_devices / anchor.base_devices if anchor.strong else 1.0
    own = step / share
    exchanges = _exchanges(anchor, gradients, num_devices, rate=rate, latency=latency)
    base = _steps(anchor, step, backward, [], _factors(variation, anchor.base_devices, rng), rng)
    here = _steps(anchor, own, backward, exchanges, _factors(variation, num_devices, rng), rng)
    efficiency: Floats = base.mean(axis=1) / here.mean(axis=1) / share
    return efficiency


def _factors(variation: Floats, num_devices: int, rng: np.random.Generator) -> Floats:
    """(REPLICATES, STEPS) of the slowest device, each replicate with its own variation."""
    standard = slowest(Noise(variation=(0.01, 0.01)), num_devices, (REPLICATES, STEPS), rng)
    # A lognormal of another variation is a power of it, nearly, for variations of a few percent.
    return np.asarray(standard ** (variation / 0.01), dtype=np.float64)


def _exchanges(
    anchor: Anchor, gradients: Gradients, num_devices: int, *, rate: Floats, latency: Floats
) -> list[tuple[float, Floats]]:
    """(share of backpropagation when it is ready, (REPLICATES, 1) seconds of its exchange) of each gradient."""
    nodes = max(1, num_devices // anchor.devices_per_node)
    exchange = NetworkExchange(algorithm=anchor.algorithm, num_nodes=nodes * anchor.members_per_node)
    unit = Network(
        name="units",
        num_nodes=exchange.num_nodes,
        node_bytes_per_second=1.0,
        latency_seconds=1.0,
        node_memory_bytes_per_second=None,
        reduce_seconds_per_byte=0.0,
    )
    once = cost(unit, exchange)
    return [
        (
            ready,
            np.asarray(
                once.seconds * latency + once.seconds_per_byte * share * anchor.num_bytes.value / rate
            ),
        )
        for share, ready in gradients
    ]


def _steps(
    anchor: Anchor,
    step: Floats,
    backward: Floats,
    exchanges: list[tuple[float, Floats]],
    factors: Floats,
    rng: np.random.Generator,
) -> Floats:
    """(REPLICATES, STEPS) seconds. The timeline is that of one step, so each replicate's is scaled to it."""
    rule = ExchangeRule(backend="horovod", overlap=anchor.overlap)
    # In units of a replicate's backpropagation; its forward follows it, as each step follows another.
    length = step * backward
    cycle = anchor.cycle_seconds / length
    parts = [
        BucketExchange(
            bucket=Bucket(num_bytes=1, ready_seconds=ready),
            seconds=seconds / length + cycle * rng.random(length.shape),
        )
        for ready, seconds in exchanges
    ]
    computed = ComputedStep(backward_seconds=1.0, update_seconds=0.0)
    return (step_seconds(computed, rule, parts, factors, rng) + factors * (1 / backward - 1)) * length


@dataclass(frozen=True, slots=True, kw_only=True)
class LawFit:
    """The universal scalability law, fitted to a curve's first points and asked for its last one."""

    anchor: Anchor
    point: Point
    predicted: float


def law_efficiency(size: Floats, contention: float, coherency: float) -> Floats:
    """The law's efficiency at `size` times the base."""
    return 1 / (1 + contention * (size - 1) + coherency * size * (size - 1))


def law_fit(anchor: Anchor, published: Published) -> LawFit | None:
    """The law's prediction of the largest point; None where there are too few below it."""
    curve = points(anchor, published)
    if len(curve) <= FITTED_POINTS:
        return None
    fitted, last = curve[:FITTED_POINTS], curve[-1]
    size = np.array([point.num_devices / anchor.base_devices for point in fitted])
    efficiency = np.array([point.efficiency for point in fitted])
    (contention, coherency), _ = curve_fit(
        law_efficiency, size, efficiency, p0=(1e-3, 1e-6), bounds=(0.0, 1.0)
    )
    (predicted,) = law_efficiency(
        np.array([last.num_devices / anchor.base_devices]), float(contention), float(coherency)
    )
    return LawFit(anchor=anchor, point=last, predicted=float(predicted))
