"""The statistics of an audit, by hand."""

import math

import numpy as np
import pytest

from dlscale.benchmarks.rank.deviation import (
    Bounds,
    deviation,
    noisy_weights,
    whole_share,
)

PLAIN = Bounds(share=0.1, scale=0.1, window=0.1, outputs=0.1, floor=0.5, noise=0.1)


def one(**tensors):
    return {name.replace("_of_", "."): np.array(values, np.float64) for name, values in tensors.items()}


def judged(before, after, expected, **options):
    return deviation(before, after, expected, bounds=PLAIN, **options)


def test_the_share_is_the_worst_tensor_s_and_the_scale_that_of_all_together():
    before = one(weight_of_0=[0, 0], weight_of_1=[0, 0, 0, 0])
    expected = one(weight_of_0=[3, 4], weight_of_1=[2, 2, 2, 2])
    found = judged(before, one(weight_of_0=[3, 3], weight_of_1=[2, 2, 2, 2]), expected)
    assert found[0] == pytest.approx(1 / 5, rel=1e-5)
    assert found[1] == pytest.approx(4 / (25 + 16), rel=1e-5)
    # Deviations across the change do not project on it.
    across = judged(before, one(weight_of_0=[3 + 4, 4 - 3], weight_of_1=[2, 2, 2, 2]), expected)
    assert across[0] == pytest.approx(1, rel=1e-5)
    assert across[1] == 0


def test_a_small_tensor_is_measured_by_half_of_the_largest_change():
    """Of a kind, by root mean squares: 4 of the first tensor, 1 of the second."""
    before = one(weight_of_0=[0, 0], weight_of_1=[0])
    expected = one(weight_of_0=[4, 4], weight_of_1=[1])
    found = judged(before, one(weight_of_0=[4, 4], weight_of_1=[2]), expected)
    assert found[0] == pytest.approx(1 / 2, rel=1e-5)


@pytest.mark.parametrize(("kind", "scale"), [("exp_avg", 0.5), ("m", 0.5), ("exp_avg_sq", 0.0), ("v", 0.0)])
def test_second_moments_have_no_scale(kind, scale):
    for name in (f"optimizer0.3.{kind}", f"optimizer0.{kind}.3"):
        before, expected = {name: np.zeros(2)}, {name: np.array([2.0, 2.0])}
        found = judged(before, {name: np.array([1.0, 1.0])}, expected)
        assert found[0] == pytest.approx(0.5, rel=1e-5)
        assert found[1] == pytest.approx(scale, rel=1e-5)


def test_what_a_float32_cannot_hold_is_not_counted():
    before, expected = one(weight_of_0=[2.0**20]), one(weight_of_0=[2.0**20 + 1])
    for error, share in ((0.25, 0.0), (0.75, 0.5)):
        found = judged(before, one(weight_of_0=[2.0**20 + 1 + error]), expected)
        assert found[0] == pytest.approx(share, abs=1e-5)
        # A quarter of it in the projection, where signs cancel.
        assert found[1] == pytest.approx(error - 0.0625, abs=1e-5)


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_what_is_no_number_deviates_without_end(bad):
    before, good = one(weight_of_0=[0, 0]), one(weight_of_0=[1, 1])
    for after, expected in ((one(weight_of_0=[bad, 1]), good), (good, one(weight_of_0=[bad, 1]))):
        assert judged(before, after, expected) == (math.inf, math.inf)
        assert whole_share(before, after, expected) == math.inf


def test_a_slot_that_is_missing_is_no_replay():
    before, expected = one(weight_of_0=[0]), one(weight_of_0=[1], optimizer0_of_m=[1])
    assert judged(before, one(weight_of_0=[1]), expected) == (math.inf, math.inf)


def test_noisy_tensors_are_left_out():
    before, expected = one(weight_of_0=[0], weight_of_1=[0]), one(weight_of_0=[1], weight_of_1=[1])
    after = one(weight_of_0=[1], weight_of_1=[3])
    assert judged(before, after, expected, noisy={"weight.1"}) == (0.0, 0.0)
    assert whole_share(before, after, expected, noisy={"weight.1"}) == 0
    gradients = [np.array([1.0, -10.0]), np.array([0.9, -0.9]), np.array([1.0]), np.array([])]
    assert noisy_weights(gradients, bounds=PLAIN) == {"weight.1", "weight.3"}
