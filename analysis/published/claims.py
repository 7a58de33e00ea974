"""What a file of `results/published/claims` has: what is predicted of one publication, and claims to compare with it.

Inputs are facts of a single node and of the network, each with its kind and source; curves are predicted from them and
belong in published figures; claims are published statements and values as checks of the curves.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import ClassVar, Literal, Self

from pydantic import PositiveFloat, PositiveInt, model_validator

from dlscale.analysis.published.catalogue import Figure, Place
from dlscale.analysis.published.values import Filled, Kind
from dlscale.base.definitions import Frozen
from dlscale.base.strings import Name, Text

# Check of a claim -> what it needs.
NEEDS = {
    "values": (),
    "quantity": ("at", "quantity", "statement"),
    "ratio": ("at", "statement"),
    "gain": ("at", "changed", "reading", "statement"),
    "scaling_ends": ("reading", "statement", "threshold"),
}


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
    def _ordered(self) -> Self:
        if self.low > self.high:
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

    algorithm: Literal["ring", "halving_doubling", "parameter_servers"]
    overlap: Literal["thread", "none", "next_step"]
    flat: bool = False


class _Curve(Frozen):
    """A predicted curve."""

    name: Text
    figures: Mapping[Text, Text] = {}  # that it is drawn in -> the published series there, or empty
    backend: Text  # of ours, whose colour it has
    batch: Number  # per device, under strong scaling in total
    sizes: tuple[PositiveInt, ...]
    coordinator: Setting | None = None  # rank 0 of Horovod asks and answers every rank, as until May 2018


class DeviceCurve(_Curve):
    """A curve over devices on one switch, whose inputs are ranges: the names of some in `[inputs]`.

    `step` is the time of a step of the base's devices, without an exchange between nodes; `backward` the share of it
    that is backpropagation; `rate` and `latency` are of a node's link, `variation` is the coefficient of variation of
    steps, `cycle` how often ready gradients are looked for, `servers` the number of parameter servers, and `threads`
    how many cores of each work at once.
    """

    INPUTS: ClassVar = ("step", "backward", "rate", "latency", "variation", "cycle", "servers", "threads")

    network: Text  # of results/published/networks.toml
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
    def inputs(self) -> dict[str, str]:
        """Field -> the name of its range."""
        return {field: getattr(self, field) for field in self.INPUTS if getattr(self, field)}

    @model_validator(mode="after")
    def _serves(self) -> Self:
        served = self.transport.algorithm == "parameter_servers"
        if (served, served) != (bool(self.servers), bool(self.threads)):
            raise ValueError("servers and threads belong to algorithm parameter_servers, and to no other")
        return self


class SystemCurve(_Curve):
    """A curve over the nodes of one of our systems, one rank each, from what is public of a workload on it."""

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


AnyCurve = DeviceCurve | SystemCurve


class ReferencePair(Frozen):
    """Two series that were measured here, and a quantity: the first over the second is compared with a ratio."""

    file: Name  # of results/reference/series
    panel: Text = ""
    quantity: Name
    series: tuple[Text, Text]


class Claim(Frozen):
    """What a publication says, as a check of what is predicted; results/published/README.md has the checks.

    `low` and `high` are the statement's own numbers where it has some; else `reading` says how words became numbers.
    What is said of a curve's shape is also compared with cells of ours, of each curve's backend or of those in `ours`,
    or with series of a `reference`; a claim without a curve is compared with nothing else.
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
    def _whole(self) -> Self:
        if lacks := [name for name in NEEDS[self.check] if not getattr(self, name)]:
            raise ValueError(f"check {self.check} needs {', '.join(lacks)}")
        ratio, ranged = self.check == "ratio", self.check in ("ratio", "quantity")
        num_curves, elsewhere = 1 + ratio, self.reference if ratio else self.ours
        if len(self.curves) != num_curves and (self.curves or not elsewhere):
            raise ValueError(f"check {self.check} is of {num_curves} curve{'s' * ratio}")
        if self.or_curves and (not ranged or len(self.or_curves) != num_curves):
            raise ValueError("or_curves are of another ratio or quantity, as many as curves")
        if isinstance(self.at, tuple) and (not ranged or self.at[0] >= self.at[1]):
            raise ValueError("at is one size, or of a quantity or ratio the first and the last of several")
        if (self.low, self.high) != (None, None) and not self.reading:
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

    def curve(self, name: str) -> AnyCurve:
        """The curve of that name."""
        return next(curve for curve in self.curves if curve.name == name)


def sourced(content: object, place: str = "") -> Iterator[tuple[str, Sourced]]:
    """Every input in a publication with its place in the file."""
    if isinstance(content, Sourced):
        yield place, content
    elif isinstance(content, (Frozen, Mapping)):
        for name, part in dict(content).items():
            yield from sourced(part, f"{place}.{name}".removeprefix("."))
    elif isinstance(content, tuple):
        for index, part in enumerate(content):
            yield from sourced(part, f"{place}.{getattr(part, 'name', index)}")


def x_of(figure: Figure, curve: AnyCurve, size: int) -> float:
    """The place of so many devices on the figure's x axis."""
    if figure.x_unit == "nodes" and isinstance(curve, DeviceCurve):
        return size / curve.devices_per_node.value
    if figure.x_unit == "images":
        return curve.batch.value if curve.strong else size * curve.batch.value
    return size
