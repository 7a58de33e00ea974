"""Distances between maps that are drawn and maps that are real."""

from dataclasses import replace

import numpy as np
import pytest

from dlscale.models import load_workload
from dlscale.models.quality.metric import HeldOut
from dlscale.models.workload import Shard

FACTS = load_workload("cosmogan")
PRESET = FACTS.preset("tiny")


@pytest.fixture(scope="module")
def held_out():
    source = replace(FACTS.input("tiny"), held_out=0.05)
    return HeldOut(FACTS.data(), FACTS.quality(), preset=PRESET, source=source)


def measured(held_out, draw, count=1):
    shares = [held_out.measure(draw, Shard(index=index, count=count)) for index in range(count)]
    return held_out.metrics([piece for share in shares for piece in share])


def uniform(z):
    """Maps of 32x32 pixels between -1 and 1 that depend on z alone."""
    return np.stack([np.random.default_rng(abs(int(1e6 * one[0]))).uniform(-1, 1, (32, 32, 1)) for one in z])


def test_maps_like_the_real_ones_are_near_and_others_are_not(held_out):
    maps = np.concatenate([held_out._read(number)[0] for number in range(len(held_out._pieces))])
    taken = iter(np.array_split(maps, np.cumsum([len(piece) for piece in held_out._pieces])[:-1]))
    assert measured(held_out, lambda _: next(taken)) == {"pixel_distance": 0.0, "spectrum_distance": 0.0}
    found = measured(held_out, uniform)
    assert 0.2 < found["pixel_distance"] <= 1
    assert 0.5 < found["spectrum_distance"] <= 1


def test_ranks_share_the_work_and_get_the_same_distances(held_out):
    assert measured(held_out, uniform, count=3) == measured(held_out, uniform)


def test_a_generator_that_diverged_has_no_distance(held_out):
    """One bad map among many pieces is enough."""

    def broken(z):
        return np.where(z[:, :1, None, None] > 1.5, np.nan, uniform(z))

    assert measured(held_out, broken) == {}


def test_distances_by_hand():
    """Of pixels 0 0 0 1 and 0 1 1 1 of two bins, cumulated 3/4 and 1/4; of powers apart, 1, and equal ones, 0."""
    found = FACTS.quality().metrics(
        {
            "real_pixels": np.array([[3.0, 1.0]]),
            "drawn_pixels": np.array([[1.0, 3.0]]),
            "real_powers": np.array([[1.0, 5.0], [2.0, 6.0]]),
            "drawn_powers": np.array([[3.0, 6.0], [4.0, 5.0]]),
        }
    )
    assert found == {"pixel_distance": 0.5, "spectrum_distance": 0.5}
