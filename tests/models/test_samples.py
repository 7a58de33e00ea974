"""Local batches of a shard: nothing twice, nothing lost, and bad samples left out without anybody waiting."""

import itertools
import math
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlscale.base.errors import UsageError
from dlscale.models.hep_cnn import WORKLOAD
from dlscale.models.samples import BadSample, LocalBatches, held_out_samples, shard_indices, training_samples
from dlscale.models.workload import Input, Shard

PRESET = replace(WORKLOAD.preset("tiny"), input_shape=(1, 1, 1))


class Numbers:
    """Sample i is the number i; `bad` ones cannot be read."""

    def __init__(self, num_samples, bad=()):
        self._num_samples, self._bad = num_samples, set(bad)
        self.num_skipped = 0

    def __len__(self):
        return self._num_samples

    def skip(self, count):
        self.num_skipped += count

    def read(self, indices):
        for index in indices:
            if int(index) in self._bad:
                raise BadSample(f"numbers: sample {index} is bad", index=int(index))
        return (np.asarray(indices),)


def module(samples):
    """A data module of numbers, with one random number per step."""
    return SimpleNamespace(
        open_samples=lambda *_, **__: samples,
        synthetic_batch=lambda _, local_batch, rng: (rng.random(local_batch),),
        step_inputs=lambda _, __, rng, **___: (rng.random(1),),
    )


def batches(samples=None, *, index=0, count=1, local_batch=2, seed=1, gate=False, **source):
    return LocalBatches(
        module(samples or Numbers(100)),
        preset=PRESET,
        local_batch=local_batch,
        source=Input(**({"path": Path("numbers")} | source)),
        shard=Shard(index=index, count=count),
        seed=seed,
        gate=gate,
    )


def taken(found, num_batches):
    return [int(n) for (part,) in itertools.islice(found.samples(), num_batches) for n in part]


def test_a_bad_sample_is_an_error_that_names_it():
    found = batches(Numbers(10, bad=[3]))
    with pytest.raises(BadSample, match="sample 3 is bad") as caught:
        taken(found, 5)
    assert caught.value.index == 3
    assert isinstance(caught.value, UsageError)


def test_skipped_samples_are_counted_and_replaced():
    found = batches(Numbers(10, bad=[3, 7]), skip_bad=True)
    seen = taken(found, 5)
    assert sorted(seen[:8]) == [0, 1, 2, 4, 5, 6, 8, 9]
    assert found.num_skipped >= 2
    assert not {3, 7} & set(taken(found, 20))
    assert found.num_skipped >= 8  # again in every epoch: 50 samples are more than five of them


def test_a_shard_skips_without_its_neighbours():
    neighbours = [batches(Numbers(40, bad=[1, 2, 3]), index=i, count=2, skip_bad=True) for i in (0, 1)]
    whole = [batches(Numbers(40), index=i, count=2) for i in (0, 1)]
    for skipping, undisturbed in zip(neighbours, whole, strict=True):
        expected = [n for n in taken(undisturbed, 10) if n not in (1, 2, 3)]
        assert taken(skipping, 8)[: len(expected)] == expected[:16]


def test_nothing_left_is_an_error_and_no_endless_search():
    with pytest.raises(UsageError, match="bad"):
        taken(batches(Numbers(6, bad=range(6)), skip_bad=True), 1)


def test_a_synthetic_source_repeats_its_samples_and_draws_anew():
    found = batches(path=None)
    first, second = itertools.islice(found.samples(), 2)
    assert first is second is found.fixed
    assert found.step_inputs() != found.step_inputs()
    others = batches(path=None, index=1)
    assert not np.array_equal(first[0], others.fixed[0])


def test_a_gate_repeats_everything_whatever_the_seed():
    one, other = batches(gate=True, seed=1), batches(gate=True, seed=2)
    assert np.array_equal(one.fixed[0], other.fixed[0])
    assert one.step_inputs() == one.step_inputs() == other.step_inputs()
    assert taken(one, 1) == taken(one, 1)


def test_training_draws_depend_on_seed_and_shard():
    draws = {float(batches(seed=s, index=i, count=2).step_inputs()[0][0]) for s in (1, 2) for i in (0, 1)}
    assert len(draws) == 4


@pytest.mark.parametrize("num_drawn", [0, 1, 7, 60])  # an epoch has 50 batches of two
def test_it_goes_on_at_any_step(num_drawn):
    whole, rest, numbers = batches(index=1, count=3), None, Numbers(100)
    seen, drawn = taken(whole, num_drawn + 5), [whole.step_inputs()[0][0] for _ in range(num_drawn + 5)]
    assert whole.num_drawn == num_drawn + 5
    rest = batches(numbers, index=1, count=3)
    rest.begin_at(num_drawn)
    assert taken(rest, 5) == seen[2 * num_drawn :]
    assert [rest.step_inputs()[0][0] for _ in range(5)] == drawn[num_drawn:]
    assert numbers.num_skipped == 2 * num_drawn
    assert rest.num_drawn == num_drawn + 5


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
    rows = []
    for index in range(num_shards):
        shard = Shard(index=index, count=num_shards)
        steps = shard_indices(num_samples, shard=shard, local_batch=local_batch, seed=3)
        rows.append(list(itertools.islice(steps, num_steps)))
    # In the order of the row: step by step, and shard by shard within a step.
    row = np.concatenate([shard for step in zip(*rows, strict=True) for shard in step])
    for epoch in range(epochs):
        part = row[epoch * num_samples : (epoch + 1) * num_samples]
        assert sorted(part) == list(range(num_samples))


def test_epochs_are_shuffled_anew():
    first, second = (taken(batches(local_batch=100), 2)[begin : begin + 100] for begin in (0, 100))
    assert sorted(first) == sorted(second)
    assert first != second


def test_every_sample_is_in_one_of_the_two_parts():
    held_out, trained = (part(5000, share=0.125) for part in (held_out_samples, training_samples))
    assert sorted([*held_out, *trained]) == list(range(5000))
    # 5 standard deviations of a binomial number
    assert abs(len(held_out) - 625) < 5 * math.sqrt(5000 * 0.125 * 0.875)


def test_the_part_is_the_same_everywhere_and_stays_when_there_are_more_samples():
    assert list(held_out_samples(40, share=0.25)) == [0, 11, 12, 19, 22, 39]
    assert [index for index in held_out_samples(400, share=0.25) if index < 40] == [0, 11, 12, 19, 22, 39]
    assert set(held_out_samples(1000, share=0.1)) < set(held_out_samples(1000, share=0.25))


@pytest.mark.parametrize("count", [1, 2, 3])
def test_no_rank_is_given_a_held_out_sample_and_an_epoch_has_all_others(count):
    """94 of 100 samples, in batches of 1 on each rank."""
    trained = [int(index) for index in training_samples(100, share=0.125)]
    shards = [batches(index=index, count=count, local_batch=1, held_out=0.125) for index in range(count)]
    steps = list(zip(*(taken(shard, len(trained)) for shard in shards), strict=True))
    seen = [sample for step in steps for sample in step]
    assert sorted(seen[: len(trained)]) == trained
    assert set(seen) == set(trained)


def test_another_order_has_the_same_samples_in_another_one():
    one, other = (taken(batches(order=order), 50) for order in (0, 1))
    assert sorted(one) == sorted(other) == list(range(100))
    assert one != other
