"""Landmarks: published figures, and what is predicted of them from public inputs (`benchmarks/landmarks/*.toml`).

A landmark has inputs, which are facts of a single node and of the network, each with its kind and source; the curves
that are predicted from them and the published figures that these belong in; and the publication's claims as checks.
Nothing is fitted to a curve that is shown: an input from a figure that the landmark predicts is refused, but for what
that figure states of the base, where the curve begins. A number without a source, or of a kind that is none, is
refused, too.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, PositiveFloat, PositiveInt, model_validator

from dlscale.analysis.predict.exchange import Algorithm
from dlscale.analysis.predict.network import Network, network_of, with_assumed
from dlscale.analysis.predict.profile import Profile
from dlscale.analysis.predict.published_profiles import public_profile
from dlscale.analysis.published.catalogue import Figure, Published
from dlscale.analysis.published.values import Statement, Value
from dlscale.base import definitions
from dlscale.base.definitions import FileName, Frozen
from dlscale.base.errors import UsageError
from dlscale.benchmarks.systems.system import load_system

FOLDER = "landmarks"  # of benchmarks
NETWORKS = Path(__file__).with_name("networks.toml")
Kind = Literal["text", "table", "source code", "read off a figure", "derived", "assumed"]


class Origin(Frozen):
    """A row of results/published, which an input is from: a value, or a statement with numbers."""

    figure: str
    series: str = ""
    quantity: str
    x: float | None = None


def _not_empty(text: str) -> str:
    if not text.strip():
        raise ValueError("missing; every input has its source")
    return text


class Sourced(Frozen):
    """What an input is from; `published` are the rows that it follows from."""

    kind: Kind
    source: Annotated[str, AfterValidator(_not_empty)]
    published: tuple[Origin, ...] = ()


class Range(Sourced):
    """An input between two values."""

    low: PositiveFloat
    high: PositiveFloat
    unit: str

    @model_validator(mode="after")
    def _ordered(self) -> Range:
        if not self.low <= self.high < float("inf"):
            raise ValueError(f"low {self.low:g} is above high {self.high:g}")
        return self


class Number(Sourced):
    """A number that is known."""

    value: PositiveInt


class Setting(Sourced):
    """The value of an option of a backend."""

    value: bool | int | float | str


class Transport(Sourced):
    """How gradients travel: all devices are in a `flat` exchange, else one for each node."""

    algorithm: Algorithm
    overlap: Literal["thread", "none"]
    flat: bool = False


class DeviceCurve(Frozen):
    """A curve over devices on one switch, whose inputs are ranges: the names of some in `[inputs]`.

    `step` is the time of a step of the base's devices, without an exchange between nodes; `backward` the share of it
    that is backpropagation; `rate` and `latency` are of a node's link, `variation` is the coefficient of variation of
    steps, `cycle` how often ready gradients are looked for, `servers` the number of parameter servers.
    """

    name: str
    figures: Mapping[str, str] = {}  # that it is drawn in -> the published series there, or empty
    backend: str  # of ours, whose colour it has
    network: str  # in networks.toml
    transport: Transport
    strong: bool = False  # the batch is that of all devices
    base: PositiveInt  # devices with an efficiency of 1
    sizes: tuple[PositiveInt, ...]
    devices_per_node: Number
    batch: Number  # per device, under strong scaling in total
    step: str
    backward: str
    rate: str
    latency: str
    variation: str
    cycle: str | None = None
    servers: str | None = None

    @property
    def inputs(self) -> tuple[str, ...]:
        """The names of its ranges."""
        names = (self.step, self.backward, self.rate, self.latency, self.variation, self.cycle, self.servers)
        return tuple(name for name in names if name)

    @model_validator(mode="after")
    def _serves(self) -> DeviceCurve:
        if (self.transport.algorithm == "parameter_servers") != bool(self.servers):
            raise ValueError("servers belong to algorithm parameter_servers, and to no other")
        return self

    @property
    def numbers(self) -> Iterator[tuple[str, Sourced]]:
        """Its own numbers."""
        yield from (("transport", self.transport), ("batch", self.batch))
        yield "devices_per_node", self.devices_per_node


class SystemCurve(Frozen):
    """A curve over the nodes of one of our systems, one rank each, from what is public of a workload on it.

    That is its stored profile, else one that is derived from rates of other networks on such nodes; and the network of
    the system's file, with what that does not state as rehearsals assume it.
    """

    name: str
    figures: Mapping[str, str] = {}
    system: str
    workload: str
    backend: str
    options: Mapping[str, Setting] = {}
    servers: Number | None = None
    scaling_mode: Literal["weak", "strong"]
    batch: Number  # per rank, under strong scaling in total
    sizes: tuple[PositiveInt, ...]
    base: Literal[1] = 1

    @property
    def strong(self) -> bool:
        """Whether the batch is that of all ranks."""
        return self.scaling_mode == "strong"

    @property
    def node(self) -> tuple[Network, Profile]:
        """The network, and the profile of one node. Raises UsageError."""
        machine, _ = with_assumed(load_system(self.system))
        network = network_of(machine)
        memory = network.node_memory_bytes_per_second or network.node_bytes_per_second
        return network, public_profile(machine, self.workload, memory)

    @property
    def assumed(self) -> Iterator[str]:
        """What stands for what is not public, in words."""
        _, profile = self.node
        if profile.evidence == "derived":
            yield f"a step of {self.workload}: {profile.source}"
        yield from with_assumed(load_system(self.system))[1]

    @property
    def numbers(self) -> Iterator[tuple[str, Sourced]]:
        """Its own numbers."""
        yield "batch", self.batch
        if self.servers:
            yield "servers", self.servers
        for name, setting in self.options.items():
            yield f"options.{name}", setting


AnyCurve = DeviceCurve | SystemCurve
Check = Literal["values", "quantity", "ratio", "gain", "scaling_ends"]


class Claim(Frozen):
    """What a publication says, as a check of what is predicted.

    values        every published efficiency of the curve's series, or throughput relative to the base
    quantity      `quantity` of the curve on `at` devices
    ratio         the rate of the first curve over that of the second on `at` devices
    gain          the efficiency that `changed` adds on `at` nodes
    scaling_ends  the largest size up to which the efficiency is at least `threshold`, which lies between two values

    `low` and `high` are the statement's own numbers where it has some; else `reading` says how words became numbers.
    """

    figure: str
    check: Check
    curves: tuple[str, ...]
    statement: str = ""  # as in statements.csv
    label: str = ""  # of a ratio, where it is drawn
    quantity: str = ""
    at: PositiveInt | None = None
    changed: Literal["", "half the latency", "half the jitter"] = ""
    threshold: tuple[PositiveFloat, PositiveFloat] | None = None
    low: float | None = None
    high: float | None = None
    reading: str = ""
    reason: str = ""  # why the prediction disagrees, where it does

    @model_validator(mode="after")
    def _whole(self) -> Claim:
        wanted = {
            "values": set(),
            "quantity": {"statement", "quantity", "at"},
            "ratio": {"statement", "at"},
            "gain": {"statement", "at", "changed", "reading"},
            "scaling_ends": {"statement", "threshold", "reading"},
        }[self.check]
        if lacks := sorted(name for name in wanted if not getattr(self, name)):
            raise ValueError(f"check {self.check} needs {', '.join(lacks)}")
        if len(self.curves) != (2 if self.check == "ratio" else 1):
            raise ValueError(f"check {self.check} is of {'2 curves' if self.check == 'ratio' else '1 curve'}")
        if (self.low is not None or self.high is not None) and not self.reading:
            raise ValueError("low and high of ours, without a reading that says how the words became numbers")
        return self


class Landmark(Frozen):
    """A file: what is predicted of one publication."""

    name: FileName
    title: str
    inputs: Mapping[str, Range] = {}
    device_curves: tuple[DeviceCurve, ...] = ()
    system_curves: tuple[SystemCurve, ...] = ()
    claims: tuple[Claim, ...]

    @property
    def curves(self) -> tuple[AnyCurve, ...]:
        """The curves of both kinds."""
        return (*self.device_curves, *self.system_curves)

    @property
    def figures(self) -> tuple[str, ...]:
        """The figures of results/published that it predicts, each once."""
        drawn = [figure for curve in self.curves for figure in curve.figures]
        return tuple(dict.fromkeys([*drawn, *(claim.figure for claim in self.claims)]))

    def assumed(self, name: str) -> tuple[str, ...]:
        """What of the curve of that name is assumed, for it is not public, in words."""
        curve = self.curve(name)
        if isinstance(curve, SystemCurve):
            return tuple(curve.assumed)
        inputs = {entry: self.inputs[entry] for entry in curve.inputs}
        ranges = [
            f"{entry.replace('_', ' ')}: {limits.low:g} to {limits.high:g} {limits.unit}"
            for entry, limits in inputs.items()
            if limits.kind == "assumed"
        ]
        return (*ranges, *(["how gradients travel"] if curve.transport.kind == "assumed" else []))

    def curve(self, name: str) -> AnyCurve:
        """The curve of that name."""
        return next(curve for curve in self.curves if curve.name == name)

    @property
    def sourced(self) -> Iterator[tuple[str, Sourced]]:
        """Every input with its place in the file."""
        for name, entry in self.inputs.items():
            yield f"inputs.{name}", entry
        for curve in self.curves:
            for place, number in curve.numbers:
                yield f"{curve.name}.{place}", number

    @model_validator(mode="after")
    def _names(self) -> Landmark:
        for curve in self.device_curves:
            for name in curve.inputs:
                if name not in self.inputs:
                    raise ValueError(f"curve {curve.name}: no input {name!r}")
        names = [curve.name for curve in self.curves]
        for claim in self.claims:
            if unknown := [name for name in claim.curves if name not in names]:
                raise ValueError(f"a claim of {claim.figure}: no curve {unknown[0]!r}")
            if claim.changed and not any(curve.name == claim.curves[0] for curve in self.system_curves):
                raise ValueError(f"a claim of {claim.figure}: check gain is of a curve on a system")
        return self


def _whole_shares(shares: list[tuple[float, float]]) -> list[tuple[float, float]]:
    if abs(sum(share for share, _ in shares) - 1) > 0.01:
        raise ValueError("the shares of the bytes do not add up to 1")
    return shares


Shares = Annotated[list[tuple[PositiveFloat, PositiveFloat]], AfterValidator(_whole_shares)]


class Gradients(Sourced):
    """(share of the bytes, share of backpropagation after which it is ready) of each part of a network's gradients."""

    shares: Shares


class NetworkFacts(Frozen):
    """What an exchange needs to know of a network."""

    num_parameters: Number
    gradients: Gradients

    @property
    def num_bytes(self) -> int:
        """The bytes of its gradients in single precision."""
        return 4 * self.num_parameters.value


class Networks(Frozen):
    """The file of networks."""

    networks: Mapping[str, NetworkFacts]


def load_networks(path: Path = NETWORKS) -> Mapping[str, NetworkFacts]:
    """The networks by name. Raises UsageError if the file is damaged."""
    return definitions.load(Networks, str(path), folder=FOLDER).networks


def landmark_names() -> list[str]:
    """The landmarks of the checkout."""
    return definitions.names(FOLDER)


def load_landmarks(published: Published) -> list[Landmark]:
    """The landmarks whose figures are all in `published`, checked against it. Raises UsageError."""
    found = [definitions.load(Landmark, name, folder=FOLDER) for name in landmark_names()]
    known = [mark for mark in found if all(figure in published.figures for figure in mark.figures)]
    networks = load_networks()
    for mark in known:
        check_landmark(mark, published, networks)
    return known


def load_landmark(name: str, published: Published) -> Landmark:
    """The landmark of that name or in that file, checked. Raises UsageError."""
    mark = definitions.load(Landmark, name, folder=FOLDER)
    for figure in mark.figures:
        published.figure(figure)
    check_landmark(mark, published, load_networks())
    return mark


def check_landmark(mark: Landmark, published: Published, networks: Mapping[str, NetworkFacts]) -> None:
    """Raises UsageError for inputs from a figure that is predicted, and for claims that nobody published."""
    for device_curve in mark.device_curves:
        if device_curve.network not in networks:
            found = f"no network {device_curve.network!r} in {NETWORKS.name}"
            raise _wrong(mark, f"curve {device_curve.name}", found)
    for place, entry in mark.sourced:
        _check_text(mark, place, entry.source, published)
        for origin in entry.published:
            _check_origin(mark, place, origin, published)
    for system_curve in mark.system_curves:
        _check_text(mark, system_curve.name, system_curve.node[1].source, published)
    for claim in mark.claims:
        if claim.statement and statement_of(claim, published) is None:
            raise _wrong(mark, f"a claim of {claim.figure}", f"no statement {claim.statement!r} is public")
        if claim.check == "values" and not mark.curve(claim.curves[0]).figures.get(claim.figure):
            raise _wrong(mark, f"a claim of {claim.figure}", f"curve {claim.curves[0]} is of no series there")
    for curve in mark.curves:
        for figure, series in curve.figures.items():
            rows = (*published.values_of(figure), *published.statements_of(figure))
            if series and series not in {row.series for row in rows}:
                raise _wrong(mark, f"curve {curve.name}", f"no series {series!r} is public in {figure}")


def _check_text(mark: Landmark, place: str, source: str, published: Published) -> None:
    for figure in mark.figures:
        if figure in source or published.figure(figure).title in source:
            raise _wrong(mark, place, f"its source is {figure}, the figure that it predicts")


def statement_of(claim: Claim, published: Published) -> Statement | None:
    """The statement that a claim is made of; None if it is not public."""
    rows = published.statements_of(claim.figure)
    return next((row for row in rows if row.statement == claim.statement), None)


def _check_origin(mark: Landmark, place: str, origin: Origin, published: Published) -> None:
    if not public_rows(published, origin):
        what = f"{origin.series or 'no series'}, {origin.quantity} at {origin.x} in {origin.figure}"
        raise _wrong(mark, place, f"no such row in results/published: {what}")
    if origin.figure not in mark.figures or origin.x is None:
        return
    figure = published.figure(origin.figure)
    base = min(x_of(figure, curve, curve.base) for curve in mark.curves)
    if origin.x > base:
        raise _wrong(
            mark,
            place,
            f"it is from {origin.figure}, the figure that it predicts, at {origin.x:g} {figure.x_unit}; only what "
            f"that states up to {base:g} is an input",
        )


def x_of(figure: Figure, curve: AnyCurve, size: int) -> float:
    """The place of so many devices on the figure's x axis."""
    if figure.x_unit == "nodes" and isinstance(curve, DeviceCurve):
        return size / curve.devices_per_node.value
    if figure.x_unit == "images":
        return curve.batch.value if curve.strong else size * curve.batch.value
    return size


def public_rows(published: Published, origin: Origin) -> list[Value | Statement]:
    """The rows that an input names."""
    wanted: tuple[Any, ...] = (origin.series, origin.quantity, origin.x)
    rows: list[Value | Statement] = [
        row for row in published.values_of(origin.figure) if (row.series, row.quantity, row.x) == wanted
    ]
    rows += [
        row
        for row in published.statements_of(origin.figure)
        if (row.series, row.quantity, row.x_low) == wanted
    ]
    return rows


def _wrong(mark: Landmark, place: str, problem: str) -> UsageError:
    return UsageError(
        f"landmark {mark.name}, {place}: {problem}; correct benchmarks/landmarks/{mark.name}.toml"
    )
