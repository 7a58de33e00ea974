from collections import Counter
from itertools import islice

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from dlscale.models.samples import shard_indices
from dlscale.models.workload import Shard


def batches(num_samples, num_shards, local_batch, num_steps, seed=3):
    return [
        list(
            islice(
                shard_indices(
                    num_samples, shard=Shard(index=i, count=num_shards), local_batch=local_batch, seed=seed
                ),
                num_steps,
            )
        )
        for i in range(num_shards)
    ]


@given(
    num_samples=st.integers(1, 60),
    num_shards=st.integers(1, 7),
    local_batch=st.integers(1, 9),
    epochs=st.integers(1, 3),
)
def test_no_sample_is_left_out_and_none_is_taken_twice_in_an_epoch(
    num_samples, num_shards, local_batch, epochs
):
    num_steps = -(-num_samples * epochs // (num_shards * local_batch))
    shards = batches(num_samples, num_shards, local_batch, num_steps)
    # In the order of the row: step by step, and shard by shard within a step.
    row = np.concatenate([shards[i][s] for s in range(num_steps) for i in range(num_shards)])
    for epoch in range(epochs):
        part = row[epoch * num_samples : (epoch + 1) * num_samples]
        assert Counter(part.tolist()) == Counter(range(num_samples))


def test_epochs_are_shuffled_anew_and_alike_on_all_ranks():
    (shard,) = batches(50, 1, 50, 2)
    assert not np.array_equal(shard[0], shard[1])
    assert np.array_equal(shard[0], batches(50, 1, 50, 1)[0][0])
    assert not np.array_equal(shard[0], batches(50, 1, 50, 1, seed=4)[0][0])
