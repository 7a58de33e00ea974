"""Who holds which weights: arithmetic only.

The trainable weights of all objectives lie behind each other in one flat space, counted in elements: sections in order
(an objective's parameters that one group of its optimizer updates), each one's parameters as registered, each in the
order of its memory. A *shard* is one server's range of it;
shards differ by at most one element, and their borders may lie inside a tensor. A *region* is the part of a shard
of one section. A *chunk* is a piece of a region: what one message carries and one update takes.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate

BYTES_PER_ELEMENT = 4  # float32


@dataclass(frozen=True, slots=True, kw_only=True)
class Region:
    """`count` elements of a shard, behind those of the regions before; `optimizer` is an index."""

    count: int
    optimizer: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """Elements [offset, offset + count) of a shard."""

    offset: int
    count: int
    optimizer: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Shard:
    """Elements [start, start + the sum over regions) of the flat space."""

    start: int
    regions: tuple[Region, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """Elements [start, stop) of a parameter's memory."""

    parameter: int
    start: int
    stop: int


def shards(section_sizes: Sequence[int], *, num_servers: int) -> list[Shard]:
    """One per server, of sections with so many elements; each section has an optimizer of its own."""
    total = sum(section_sizes)
    ends = list(accumulate(section_sizes))
    found = []
    for server in range(num_servers):
        start, stop = total * server // num_servers, total * (server + 1) // num_servers
        overlaps = [
            min(stop, end) - max(start, end - size) for end, size in zip(ends, section_sizes, strict=True)
        ]
        regions = tuple(
            Region(count=count, optimizer=index) for index, count in enumerate(overlaps) if count > 0
        )
        found.append(Shard(start=start, regions=regions))
    return found


def chunks(regions: Sequence[Region], *, chunk_elements: int) -> list[Chunk]:
    """A shard's, in order: all of `chunk_elements` but for the last of each region, which may be smaller."""
    found = []
    begin = 0
    for region in regions:
        end = begin + region.count
        found += [
            Chunk(offset=offset, count=min(chunk_elements, end - offset), optimizer=region.optimizer)
            for offset in range(begin, end, chunk_elements)
        ]
        begin = end
    return found


def pieces(parameter_sizes: Sequence[int], start: int, stop: int) -> Iterator[Piece]:
    """Of the parameters, in flat order, that [start, stop) of the flat space consists of; none are empty."""
    ends = list(accumulate(parameter_sizes))
    index = bisect_right(ends, start)
    while start < stop:
        begin = ends[index] - parameter_sizes[index]
        end = min(stop, ends[index])
        if end > start:
            yield Piece(parameter=index, start=start - begin, stop=end - begin)
        start = end
        index += 1
