"""What a compressed training keeps of its buckets: given back to the same buckets, refused for others."""

from types import SimpleNamespace

import numpy as np
import pytest

from dlscale.base.errors import UsageError
from dlscale.collectives.compression.collective import CompressedCollective
from dlscale.collectives.compression.options import Compression
from dlscale.collectives.compression.trainer import CompressedTrainer

SIZES = (600, 7)


def trainer_of(*sizes, num_teams=2):
    """(the trainer, its buckets, its collectives, what the trainer in it was given)."""
    buckets = [np.zeros(size, np.float32) for size in sizes]
    carrier = SimpleNamespace(rank=0, size=2, allgather_bytes=lambda message: [message, message])
    compressor = Compression(compression="qsgd", qsgd_levels=1).compressor()
    collectives = [CompressedCollective(carrier, compressor) for _ in range(num_teams)]
    given = []
    inner = SimpleNamespace(restore=given.append)
    layout = SimpleNamespace(buckets=lambda: buckets)
    return CompressedTrainer(inner, collectives, layout=layout, settings={}), buckets, collectives, given


def average(buckets, collectives, seed):
    """One exchange of each bucket, each by the team whose turn it is; gives the results."""
    for place, bucket in enumerate(buckets):
        bucket[:] = np.random.default_rng((seed, place)).normal(size=bucket.size)
        collectives[place % len(collectives)].allreduce(bucket, "average")
    return [bucket.copy() for bucket in buckets]


@pytest.mark.parametrize("num_teams", [1, 2])
def test_another_trainer_goes_on_with_the_same_chance(num_teams):
    trainer, buckets, collectives, _ = trainer_of(*SIZES)
    assert trainer.own_state() == {}
    first = average(buckets, collectives, 1)
    saved = trainer.own_state()
    assert {name.split(".")[1] for name in saved} == {"bucket0", "bucket1"}
    expected = average(buckets, collectives, 1)
    assert not np.array_equal(first[0], expected[0]), "chance differs from step to step"
    other, buckets, collectives, given = trainer_of(*SIZES, num_teams=num_teams)
    other.restore({"weights": np.ones(2), **saved})
    assert [sorted(state) for state in given] == [["weights"]]
    assert all(map(np.array_equal, average(buckets, collectives, 1), expected))
    assert saved["own.bucket0.drawn"].tolist() == [1], "a copy"


@pytest.mark.parametrize(
    ("sizes", "words"),
    [((600, 8), "its bucket 1 has 7 elements, here 8"), ((600,), "it has more than 1 bucket")],
)
def test_a_state_of_other_buckets_is_refused(sizes, words):
    trainer, buckets, collectives, _ = trainer_of(*SIZES)
    average(buckets, collectives, 1)
    with pytest.raises(UsageError, match=f"the checkpoint belongs to another training: {words}"):
        trainer_of(*sizes)[0].restore(trainer.own_state())
