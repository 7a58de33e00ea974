"""How weights are cut: every element is in exactly one shard, one chunk and one piece."""

from itertools import accumulate, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlscale.collectives.grpc_ps.messages import Chunk, Piece, Region, chunks, pieces, shards

pytestmark = pytest.mark.requires("grpc_ps-torch")

SIZES = st.lists(st.integers(0, 40), min_size=1, max_size=6)


def elements(shard):
    return sum(region.count for region in shard.regions)


@given(objective_sizes=SIZES, num_servers=st.integers(1, 9))
def test_shards_hold_every_element_once_with_its_optimizer(objective_sizes, num_servers):
    found = shards(objective_sizes, num_servers=num_servers)
    owners = [index for index, size in enumerate(objective_sizes) for _ in range(size)]
    held = [region.optimizer for shard in found for region in shard.regions for _ in range(region.count)]
    counts = [elements(shard) for shard in found]
    assert held == owners
    assert [shard.start for shard in found] == [0, *accumulate(counts)][:-1]
    assert max(counts) - min(counts) <= 1
    assert all(region.count for shard in found for region in shard.regions)


@given(counts=st.lists(st.integers(1, 30), max_size=5), chunk_elements=st.integers(1, 12))
def test_chunks_lie_behind_each_other_and_have_one_optimizer(counts, chunk_elements):
    regions = [Region(count=count, optimizer=index) for index, count in enumerate(counts)]
    found = chunks(regions, chunk_elements=chunk_elements)
    owners = [index for index, count in enumerate(counts) for _ in range(count)]
    assert [chunk.optimizer for chunk in found for _ in range(chunk.count)] == owners
    assert [chunk.offset for chunk in found] == [0, *accumulate(chunk.count for chunk in found)][:-1]
    assert all(1 <= chunk.count <= chunk_elements for chunk in found)
    for chunk, following in pairwise(found):  # only a region's last is smaller
        assert chunk.count == chunk_elements or following.optimizer != chunk.optimizer


@given(sizes=SIZES, data=st.data())
def test_pieces_are_the_range_that_was_asked_for(sizes, data):
    space = [(index, element) for index, size in enumerate(sizes) for element in range(size)]
    start = data.draw(st.integers(0, len(space)))
    stop = data.draw(st.integers(start, len(space)))
    found = list(pieces(sizes, start, stop))
    assert [(p.parameter, e) for p in found for e in range(p.start, p.stop)] == space[start:stop]
    assert all(p.stop > p.start for p in found)


@given(parameter_sizes=SIZES, num_servers=st.integers(1, 5), chunk_elements=st.integers(1, 12))
def test_chunks_of_all_shards_take_every_element_of_every_parameter_once(
    parameter_sizes, num_servers, chunk_elements
):
    found = []
    for shard in shards([sum(parameter_sizes)], num_servers=num_servers):
        for chunk in chunks(shard.regions, chunk_elements=chunk_elements):
            start = shard.start + chunk.offset
            for piece in pieces(parameter_sizes, start, start + chunk.count):
                found += [(piece.parameter, element) for element in range(piece.start, piece.stop)]
    assert found == [(index, e) for index, size in enumerate(parameter_sizes) for e in range(size)]


def test_offsets_of_more_than_32_bits():
    huge = 3 << 40
    first, second = shards([huge + 1], num_servers=2)
    assert (first.start, second.start) == (0, huge // 2)
    assert elements(second) == huge // 2 + 1
    last = chunks(second.regions, chunk_elements=1 << 38)[-1]
    assert last == Chunk(offset=6 << 38, count=1, optimizer=0)
    assert list(pieces([huge, 1], huge - 2, huge + 1)) == [
        Piece(parameter=0, start=huge - 2, stop=huge),
        Piece(parameter=1, start=0, stop=1),
    ]
