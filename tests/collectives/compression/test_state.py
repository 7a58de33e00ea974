"""What a compressed training keeps of its buckets."""

from types import SimpleNamespace

import numpy as np

from dlscale.collectives.compression.collective import CompressedCollective
from dlscale.collectives.compression.options import Compression
from dlscale.collectives.compression.trainer import CompressedTrainer

SIZES = (600, 7)


def trainer_of(*sizes):
    """(the trainer, its buckets, its collectives)."""
    buckets = [np.zeros(size, np.float32) for size in sizes]
    carrier = SimpleNamespace(rank=0, size=2, allgather_bytes=lambda message: [message, message])
    compressor = Compression(compression="qsgd", qsgd_levels=1).compressor()
    collectives = [CompressedCollective(carrier, compressor) for _ in range(2)]
    layout = SimpleNamespace(buckets=lambda: buckets)
    return CompressedTrainer(None, collectives, layout=layout, settings={}), buckets, collectives


def average(buckets, collectives, seed):
    """One exchange of each bucket, each by the team whose turn it is; gives the results."""
    for place, bucket in enumerate(buckets):
        bucket[:] = np.random.default_rng((seed, place)).normal(size=bucket.size)
        collectives[place % len(collectives)].allreduce(bucket, "average")
    return [bucket.copy() for bucket in buckets]


def test_what_is_kept_of_each_bucket_is_told_in_copies():
    trainer, buckets, collectives = trainer_of(*SIZES)
    assert trainer.own_state() == {}
    first = average(buckets, collectives, 1)
    kept = trainer.own_state()
    assert {name.split(".")[1] for name in kept} == {"bucket0", "bucket1"}
    assert not np.array_equal(first[0], average(buckets, collectives, 1)[0]), (
        "chance differs from step to step"
    )
    assert kept["own.bucket0.drawn"].tolist() == [1], "a copy"
