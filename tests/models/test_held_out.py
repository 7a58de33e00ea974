"""Which samples no training sees."""

import math

import pytest

from dlscale.models.held_out import held_out_samples, training_samples
from tests.models.test_samples import batches, taken


def test_every_sample_is_in_one_of_the_two_parts():
    held_out, trained = (part(5000, share=0.125) for part in (held_out_samples, training_samples))
    assert sorted([*held_out, *trained]) == list(range(5000))
    # 5 standard deviations of a binomial number
    assert abs(len(held_out) - 625) < 5 * math.sqrt(5000 * 0.125 * 0.875)


def test_the_part_is_the_same_everywhere_and_stays_when_there_are_more_samples():
    assert list(held_out_samples(40, share=0.25)) == [0, 11, 12, 19, 22, 39]
    assert [index for index in held_out_samples(400, share=0.25) if index < 40] == [0, 11, 12, 19, 22, 39]
    assert set(held_out_samples(1000, share=0.1)) < set(held_out_samples(1000, share=0.25))


def test_without_a_share_all_are_trained_on():
    assert len(held_out_samples(10, share=0.0)) == 0
    assert list(training_samples(10, share=0.0)) == list(range(10))


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
