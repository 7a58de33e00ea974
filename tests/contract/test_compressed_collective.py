"""Averages of compressed buckets over the backends' collectives, against the same compressor in one process."""

import numpy as np
import pytest

from dlscale.base.errors import UsageError
from dlscale.collectives.compression import CompressedCollective, Compression
from dlscale.collectives.compression.halves import BFLOAT16, from_halves, to_halves
from dlscale.collectives.registry import connect

pytestmark = pytest.mark.on_ranks(2, 3)


@pytest.fixture(params=["mpi", "ring"])
def carrier(request, world):
    backend = connect(request.param, control=world)
    collective = backend.collective()
    yield collective
    collective.close()
    backend.close()


def values(rank, count):
    return np.random.default_rng(rank).standard_normal(count).astype(np.float32)


@pytest.mark.parametrize("lengths", [(0, 0, 0), (5, 0, 1000), (1, 2, 3)])
def test_messages_of_any_length_arrive_in_order_of_rank(carrier, lengths):
    messages = carrier.allgather_bytes(np.full(lengths[carrier.rank], carrier.rank + 1, np.uint8))
    assert [message.tolist() for message in messages] == [
        [rank + 1] * lengths[rank] for rank in range(carrier.size)
    ]


@pytest.mark.parametrize("count", [0, 1, 2, 1001])
@pytest.mark.parametrize("bfloat16", [True, False])
def test_means_of_halves_are_rounded_once(carrier, count, bfloat16):
    def halves(array):
        return to_halves(array, BFLOAT16) if bfloat16 else array.astype(np.float16)

    offers = [halves(values(rank, count)) for rank in range(carrier.size)]
    mean = offers[carrier.rank].copy()
    carrier.average_halves(mean)
    total = np.zeros(count, np.float32)
    for offer in offers:
        total += from_halves(offer) if bfloat16 else offer
    np.testing.assert_array_equal(mean, halves(total / np.float32(carrier.size)))


def test_an_average_is_compressed_and_all_else_is_not(carrier, world):
    collective = CompressedCollective(carrier, Compression(compression="topk", topk_share=0.25).compressor())
    bucket = np.array([4, 3, 2, 1], np.float32) if carrier.rank else np.array([0, 1, 0, 8], np.float32)
    total = bucket.copy()
    collective.allreduce(total)
    assert total.tolist() == [4 * (carrier.size - 1), *total[1:]]
    collective.allreduce(bucket, "average")
    others = carrier.size - 1
    expected = np.array([4 * others, 0, 0, 8], np.float32) / carrier.size
    np.testing.assert_allclose(bucket, expected, rtol=1e-6)
    assert len(set(world.allgather(bucket.tobytes()))) == 1
    # Then the second largest, which the first message left out.
    bucket[:] = 0
    collective.allreduce(bucket, "average")
    expected = np.array([0, 3 * others + 1, 0, 0], np.float32) / carrier.size
    np.testing.assert_allclose(bucket, expected, rtol=1e-6)
    assert collective.num_bytes == 2 * 8 * others
    with pytest.raises(UsageError, match="takes float32 gradients, and these are float64"):
        collective.allreduce(np.ones(3), "average")
