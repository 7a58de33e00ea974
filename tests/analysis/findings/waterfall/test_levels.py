"""Do 95 % intervals of parts contain the truth in 95 % of simulated studies? Seeds are fixed: nothing is flaky."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from dlscale.analysis.findings.waterfall_levels import Levels, difference
from dlscale.analysis.statistics import block_difference, block_ratio

positive = st.floats(0.1, 10)


@given(st.lists(st.tuples(positive, positive, positive), min_size=3, max_size=10))
def test_a_difference_of_two_levels_is_that_of_two_backends(blocks):
    first, second, measured = (dict(enumerate(column)) for column in zip(*blocks, strict=True))
    arrays = [np.array(list(one.values())) for one in (first, second, measured)]
    levels = Levels(near=dict(zip(("mean", "ideal", "measured"), arrays, strict=True)), far={})
    found = levels.share({"mean": 1, "ideal": -1})
    expected = block_difference(first, second, measured)
    assert (found.method, found.n) == (expected.method, expected.n)
    for name in ("center", "low", "high"):
        assert getattr(found, name) == pytest.approx(getattr(expected, name), rel=1e-9, abs=1e-9)


@given(st.lists(positive, min_size=3, max_size=8), st.lists(positive, min_size=3, max_size=8))
def test_unpaired_it_agrees_with_the_ratio_to_first_order(ideal, measured):
    ideal, measured = (1 + 0.001 * np.array(one) for one in (ideal, measured))
    levels = Levels(near={"measured": measured}, far={"ideal": ideal})
    found = levels.share(difference({"measured": 1}, {"ideal": 1}))
    expected = block_ratio(
        {f"far {index}": value for index, value in enumerate(ideal)}, dict(enumerate(measured))
    ).complement()
    assert found.method == expected.method == "unpaired t"
    for name in ("center", "low", "high"):
        assert getattr(found, name) == pytest.approx(getattr(expected, name), abs=2e-4)


def test_far_levels_have_noise_of_their_own_and_near_ones_that_beside_the_measured_step():
    """2 far levels and 2 near ones with logarithms that are easy to add up."""

    # Of a measured step of 8 the levels are 1/2, 1/4, 1/4 and 1/8 by geometric means; the logarithms add up to
    # ideal / 2 + ideal_resident / 4, and to alone / 4 - mean / 8 - (1/2 + 1/4 + 1/4 - 1/8) measured.
    def level(center, logs):
        return center * np.exp(np.array(logs, float))

    levels = Levels(
        near={
            "measured": level(8, [0.8, -0.8, 0.8, -0.8]),
            "alone": level(2, [0.4, -0.4, -0.4, 0.4]),
            "mean": level(1, [0.8, -0.8, -0.8, 0.8]),
        },
        far={"ideal": level(4, [0.2, 0, -0.2]), "ideal_resident": level(2, [0, 0.8, -0.8])},
    )
    share = levels.share({"ideal": 1, "ideal_resident": 1, "alone": 1, "mean": -1})
    near, far = np.array([-0.7, 0.7, -0.7, 0.7]), np.array([0.1, 0.2, -0.3])
    variances = near.var(ddof=1) / 4, far.var(ddof=1) / 3
    freedom = sum(variances) ** 2 / (variances[0] ** 2 / 3 + variances[1] ** 2 / 2)
    assert share.center == pytest.approx(0.875)
    assert share.high - share.center == pytest.approx(stats.t.ppf(0.975, freedom) * math.sqrt(sum(variances)))
    assert (share.method, share.n, share.level) == ("unpaired t", 3, 0.95)
