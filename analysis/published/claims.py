"""Claims of publications, and what is predicted from public inputs to compare with them (`results/published/claims`).

A file is of one publication. It has inputs, which are facts of a single node and of the network, each with its kind and
source; the curves that are predicted from them and the published figures that these belong in; and claims, which are
published statements and values as checks of the curves. Nothing is fitted to a curve that is shown: an input from a
figure that the file predicts is refused, but for what that figure states of the base, where the curve begins. A number
without a source, or of a kind that is none, is refused, too.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Literal

from pydantic import PositiveFloat, PositiveInt, model_validator

from dlscale.analysis.predict.assumptions import with_assumed
from dlscale.analysis.predict.exchange import Algorithm
from dlscale.analysis.predict.network import Network, network_of
from dlscale.analysis.predict.profile import Profile
from dlscale.analysis.predict.published_profiles import public_profile
from dlscale.analysis.published.catalogue import Figure, Place, Published
from dlscale.analysis.published.networks import NETWORKS
from dlscale.analysis.published.reference import ReferencePair
from dlscale.analysis.published.values import FOLDER, Filled, Kind, Statement
from dlscale.base.definitions import Frozen, load_file
from dlscale.base.errors import UsageError
from dlscale.base.strings import Name, Text
from dlscale.benchmarks.systems.system import load_system

CLAIMS = "claims"  # the folder of the files, in that of the published values


class Sourced(Frozen):
    """What an input is from; `published` are the values and statements that it follows from."""

    kind: Literal[Kind, "assumed"]
    source: Filled
    published: tuple[Place, ...] = ()


class Range(Sourced):
    """An input between two values."""

    low: PositiveFloat
    high: PositiveFloat
    unit: Text

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

    value: bool | int | float | Text


class Transport(Sourced):
    """How gradients travel: all devices are in a `flat` exchange, else one for each node."""

    algorithm: Algorithm
    overlap: Literal["thread", "none", "next_step"]
    flat: bool = False


class _Curve(Frozen):
    """A predicted curve."""

    name: Text
    figures: Mapping[Text, Text] = {}  # that it is drawn in -> the published series there, or empty
    backend: Text  # of ours, whose colour it has
    batch: Number  # per device, under strong scaling in total
    sizes: tuple[PositiveInt, ...]
    coordinator: Setting | None = (
        None  # that rank 0 of Horovod asks and answers every rank, as until May 2018
    )


class DeviceCurve(_Curve):
    """A curve over devices on one switch, whose inputs are ranges: the names of some in `[inputs]`.

    `step` is the time of a step of the base's devices, without an exchange between nodes; `backward` the share of it
    that is backpropagation; `rate` and `latency` are of a node's link, `variation` is the coefficient of variation of
    steps, `cycle` how often ready gradients are looked for, `servers` the number of parameter servers, and `threads`
    how many cores of each work at once.
    """

    network: Text  # one of `networks.NETWORKS`
    transport: Transport
    strong: bool = False  # the batch is that of all devices
    base: PositiveInt  # devices with an efficiency of 1
    devices_per_node: Number
    step: Text
    backward: Text
    rate: Text
    latency: Text
    variation: Text
    cycle: Text | None = None
    servers: Text | None = None
    threads: Text | None = None

    @property
    def inputs(self) -> tuple[str, ...]:
        """The names of its ranges."""
        names = (self.step, self.backward, self.rate, self.latency, self.variation)
        return (*names, *filter(None, (self.cycle, self.servers, self.threads)))

    @model_validator(mode="after")
    def _serves(self) -> DeviceCurve:
        served = self.transport.algorithm == "parameter_servers"
        if (served, served) != (bool(self.servers), bool(self.threads)):
            raise ValueError("servers and threads belong to algorithm parameter_servers, and to no other")
        return self


class SystemCurve(_Curve):
    """A curve over the nodes of one of our systems, one rank each, from what is public of a workload on it.

    That is its stored profile, else one that is derived from rates of other networks on such nodes; and the network of
    the system's file, with what that does not state as rehearsals assume it.
    """

    system: Name
    workload: Name
    options: Mapping[Text, Setting] = {}
    servers: Number | None = None
    scaling_mode: Literal["weak", "strong"]
    base: Literal[1] = 1

    @property
    def strong(self) -> bool:
        """Whether the batch is that of all ranks."""
        return self.scaling_mode == "strong"

    @property
    def node(self) -> tuple[Network, Profile]:
        """The network, and the profile of one node. Raises UsageError."""
        machine, _ = with_assumed(load_system(self.system))
        return network_of(machine), public_profile(machine, self.workload)

    @property
    def assumed(self) -> Iterator[str]:
        """What stands for what is not public, in words."""
        _, profile = self.node
        if profile.evidence == "derived":
            yield f"a step of {self.workload}: {profile.source}"
        yield from with_assumed(load_system(self.system))[1]


AnyCurve = DeviceCurve | SystemCurve


class Claim(Frozen):
    """What a publication says, as a check of what is predicted.

    values        every published efficiency of the curve's series, or throughput relative to the base
    quantity      `quantity` of the curve on `at` devices
    ratio         the rate of the first curve over that of the second on `at` devices
    gain          the efficiency that `changed` adds on `at` nodes
    scaling_ends  the largest size up to which the efficiency is at least `threshold`, which lies between two values

    `at` two sizes a quantity or ratio is between `low` and `high` on all from the first to the second. `low` and `high`
    are the statement's own numbers where it has some; else `reading` says how words became numbers. What is said of a
    curve's shape is also compared with cells of ours (`shapes`), of each curve's backend or of those in `ours`, or with
    series of a `reference`; a claim without a curve is compared with nothing else.
    """

    figure: Text
    also: tuple[Text, ...] = ()  # other figures that have the same fact
    check: Literal["values", "quantity", "ratio", "gain", "scaling_ends"]
    curves: tuple[Text, ...] = ()
    ours: tuple[Name, ...] = ()  # backends of ours that it is of, where those are not the curves' own
    reference: ReferencePair | None = None
    or_curves: tuple[Text, ...] = ()  # where a publication leaves open which of them it is of
    statement: Text = ""  # as in statements.csv
    label: Text = ""  # of a ratio, where it is drawn
    quantity: Text = ""
    at: PositiveInt | tuple[PositiveInt, PositiveInt] | None = None
    changed: Literal["", "half the latency", "half the jitter"] = ""
    threshold: tuple[PositiveFloat, PositiveFloat] | None = None
    low: float | None = None
    high: float | None = None
    reading: Text = ""
    reason: Text = ""  # why the prediction disagrees, where it does

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
        if self.or_curves and (
            self.check not in ("ratio", "quantity") or len(self.or_curves) != len(self.curves)
        ):
            raise ValueError("or_curves are of another ratio or quantity, as many as curves")
        elsewhere = self.ours or (self.reference and self.check == "ratio")
        if len(self.curves) != (2 if self.check == "ratio" else 1) and (self.curves or not elsewhere):
            raise ValueError(f"check {self.check} is of {'2 curves' if self.check == 'ratio' else '1 curve'}")
        if self.ours and self.check not in ("quantity", "scaling_ends"):
            raise ValueError(f"ours are backends for checks quantity and scaling_ends, not {self.check}")
        if isinstance(self.at, tuple) and (
            self.check not in ("quantity", "ratio") or self.at[0] >= self.at[1]
        ):
            raise ValueError("at is one size, or of a quantity or ratio the first and the last of several")
        if (self.low is not None or self.high is not None) and not self.reading:
            raise ValueError("low and high of ours, without a reading that says how the words became numbers")
        return self

    @property
    def sizes(self) -> tuple[int, int]:
        """The first and the last size that it is about; (0, 0) where it names none."""
        return self.at if isinstance(self.at, tuple) else (self.at or 0, self.at or 0)

    @property
    def compared(self) -> str:
        """The quantity that is compared."""
        if self.reference:
            return f"{self.reference.quantity}, {' over '.join(self.reference.series)}"
        named = {"ratio": "relative_throughput", "gain": f"efficiency gained by {self.changed}"}
        return named.get(self.check, self.quantity or self.check)


class Publication(Frozen):
    """A file: what is predicted of one publication, and the claims that this is compared with."""

    name: Name
    title: Text
    inputs: Mapping[Text, Range] = {}
    device_curves: tuple[DeviceCurve, ...] = ()
    system_curves: tuple[SystemCurve, ...] = ()
    claims: tuple[Claim, ...]

    @property
    def curves(self) -> tuple[AnyCurve, ...]:
        """The curves of both kinds."""
        return (*self.device_curves, *self.system_curves)

    @property
    def figures(self) -> tuple[str, ...]:
        """The published figures that it predicts, each once."""
        drawn = [figure for curve in self.curves for figure in curve.figures]
        return tuple(dict.fromkeys([*drawn, *(claim.figure for claim in self.claims if claim.curves)]))

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
        return _sourced_in(self, "")

    @model_validator(mode="after")
    def _names(self) -> Publication:
        for curve in self.device_curves:
            for name in curve.inputs:
                if name not in self.inputs:
                    raise ValueError(f"curve {curve.name}: no input {name!r}")
        names = [curve.name for curve in self.curves]
        for claim in self.claims:
            if unknown := [name for name in (*claim.curves, *claim.or_curves) if name not in names]:
                raise ValueError(f"a claim of {claim.figure}: no curve {unknown[0]!r}")
            if claim.changed and not any(curve.name == claim.curves[0] for curve in self.system_curves):
                raise ValueError(f"a claim of {claim.figure}: check gain is of a curve on a system")
        return self


def _sourced_in(content: object, place: str) -> Iterator[tuple[str, Sourced]]:
    if isinstance(content, Sourced):
        yield place, content
    elif isinstance(content, Frozen):
        for name in type(content).model_fields:
            yield from _sourced_in(getattr(content, name), f"{place}.{name}" if place else name)
    elif isinstance(content, Mapping):
        for name, part in content.items():
            yield from _sourced_in(part, f"{place}.{name}")
    elif isinstance(content, tuple):
        for index, part in enumerate(content):
            yield from _sourced_in(part, f"{place}.{getattr(part, 'name', index)}")


def load_publications(published: Published, folder: Path = FOLDER) -> list[Publication]:
    """The publications of that folder of published values, checked against these. Raises UsageError."""
    return [load_publication(path, published) for path in sorted((folder / CLAIMS).glob("*.toml"))]


def load_publication(path: Path, published: Published) -> Publication:
    """The publication in a file, checked: no input is from a figure that is predicted, every claim was published.

    Raises UsageError.
    """
    publication = load_file(Publication, path)
    for name in (*publication.figures, *(claim.figure for claim in publication.claims)):
        published.figure(name)
    for place, problem in _problems(publication, published):
        raise UsageError(f"{path}, {place}: {problem}; correct it")
    return publication


def _problems(publication: Publication, published: Published) -> Iterator[tuple[str, str]]:
    for device_curve in publication.device_curves:
        if device_curve.network not in NETWORKS:
            yield (
                f"curve {device_curve.name}",
                f"no network {device_curve.network!r}; choose one of: {', '.join(NETWORKS)}",
            )
    sources = [(place, entry.source) for place, entry in publication.sourced]
    sources += [(curve.name, curve.node[1].source) for curve in publication.system_curves]
    for place, source in sources:
        for name in publication.figures:
            if name in source or published.figure(name).title in source:
                yield place, f"its source is {name}, the figure that it predicts"
    for place, entry in publication.sourced:
        for origin in entry.published:
            yield from ((place, problem) for problem in _origin_problems(publication, origin, published))
    for claim in publication.claims:
        if (pair := claim.reference) and not published.reference_pair(pair, claim.sizes[1]):
            place = f"{' and '.join(map(repr, pair.series))}, {pair.quantity} at {claim.at}"
            yield f"a claim of {claim.figure}", f"no {place} in the panel's {pair.file}.json"
        if claim.statement and statement_of(claim, published) is None:
            yield f"a claim of {claim.figure}", f"no statement {claim.statement!r} is public"
        if claim.check == "values" and not publication.curve(claim.curves[0]).figures.get(claim.figure):
            yield f"a claim of {claim.figure}", f"curve {claim.curves[0]} is of no series there"
    for curve in publication.curves:
        for name, series in curve.figures.items():
            if series and series not in published.series_of(name):
                yield f"curve {curve.name}", f"no series {series!r} is public in {name}"


def _origin_problems(publication: Publication, origin: Place, published: Published) -> Iterator[str]:
    if not published.at(origin):
        what = f"{origin.series or 'no series'}, {origin.quantity} at {origin.x} in {origin.figure}"
        yield f"no such row in results/published: {what}"
    if origin.figure in publication.figures and origin.x is not None:
        figure = published.figure(origin.figure)
        base = min(x_of(figure, curve, curve.base) for curve in publication.curves)
        if origin.x > base:
            yield (
                f"it is from {origin.figure}, the figure that it predicts, at {origin.x:g} {figure.x_unit}; "
                f"only what that states up to {base:g} is an input"
            )


def statement_of(claim: Claim, published: Published) -> Statement | None:
    """The statement that a claim is made of; None if it is not public."""
    rows = published.statements_of(claim.figure)
    return next((row for row in rows if row.statement == claim.statement), None)


def x_of(figure: Figure, curve: AnyCurve, size: int) -> float:
    """The place of so many devices on the figure's x axis."""
    if figure.x_unit == "nodes" and isinstance(curve, DeviceCurve):
        return size / curve.devices_per_node.value
    if figure.x_unit == "images":
        return curve.batch.value if curve.strong else size * curve.batch.value
    return size
