"""What a step of a network exchanges between a replica's ranks, from the sizes of its layers: no framework is asked.

A workload states its exchanges (`Workload.exchanges`): each is called on the way forward and, where a gradient passes
it, with its adjoint on the way back. A halo's adjoint sends the rows the other way, a sum's is a sum of as many.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

FLOAT32_BYTES, FLOAT64_BYTES = 4, 8
MAP_BYTES = {"bf16": 2}  # of an element of a map, where that is no float32
Way = Literal["forward", "backward"]


@dataclass(frozen=True, slots=True)
class Call:
    """One operation (exchange, sum or gather) and the bytes that this rank gave for it: up and down, or to all."""

    operation: str
    num_bytes: tuple[int, ...]

    def __str__(self) -> str:
        """As a record has it: `exchange 4096 0`."""
        return " ".join([self.operation, *map(str, self.num_bytes)])


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange:
    """One that a network makes `forward` times in a step, and its adjoint `backward` times."""

    forward: int = 1
    backward: int = 1

    def call(self, way: Way, place: Place) -> Call:
        """What a rank at that place gives."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A rank with these neighbours, whose replica trains on so many samples at once."""

    batch: int
    has_upper: bool = True
    has_lower: bool = True
    element_bytes: int = FLOAT32_BYTES  # of maps


@dataclass(frozen=True, slots=True, kw_only=True)
class Halo(Exchange):
    """Rows of a map that a layer reads beyond a rank's own: `above` of the rank above, `below` of the rank below."""

    channels: int
    width: int
    above: int
    below: int

    def call(self, way: Way, place: Place) -> Call:
        """Forward a rank gives what its neighbours read; going back, the gradients of what it has read itself."""
        up, down = (self.below, self.above) if way == "forward" else (self.above, self.below)
        row = place.batch * self.channels * self.width * place.element_bytes
        return Call("exchange", (up * row * place.has_upper, down * row * place.has_lower))


@dataclass(frozen=True, slots=True, kw_only=True)
class Statistics(Exchange):
    """Two sums for each channel of a batch norm over all ranks' rows, in float64; forward also the number of pixels."""

    channels: int

    def call(self, way: Way, place: Place) -> Call:  # noqa: ARG002 - statistics are of all samples
        """As many numbers on every rank."""
        return Call("sum", (FLOAT64_BYTES * (2 * self.channels + (way == "forward")),))


@dataclass(frozen=True, slots=True, kw_only=True)
class Total(Exchange):
    """So many numbers of each sample that every rank has a part of: global means, products of a dense layer."""

    numbers: int

    def call(self, way: Way, place: Place) -> Call:  # noqa: ARG002 - the same both ways
        """In float32 whatever maps are in."""
        return Call("sum", (FLOAT32_BYTES * place.batch * self.numbers,))


def halo_of_windows(
    size: int, *, stride: int, padding: int, channels: int, width: int, backward: int = 1
) -> Halo:
    """The halo of a layer whose output row j reads rows j * stride - padding to that + size - 1."""
    return Halo(
        channels=channels,
        width=width,
        above=padding,
        below=max(0, size - padding - stride),
        backward=backward,
    )


def calls_of(exchanges: Iterable[Exchange], way: Way, place: Place) -> Iterator[Call]:
    """A step's calls one way; what has no rows for anybody is no call."""
    for exchange in exchanges:
        if isinstance(exchange, Halo) and not (exchange.above or exchange.below):
            continue
        yield from [exchange.call(way, place)] * getattr(exchange, way)
