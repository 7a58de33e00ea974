"""What so many launches can show."""

import math

import pytest

from dlscale.analysis.statistics import blocks_needed, half_width


@pytest.mark.parametrize(("comparisons", "blocks"), [(1, 6), (2, 7), (3, 7), (4, 8), (10, 9)])
def test_blocks_that_comparisons_need(comparisons, blocks):
    assert blocks_needed(comparisons) == blocks
    assert 2 ** (1 - blocks) <= 0.05 / comparisons
    assert 2 ** (2 - blocks) > 0.05 / comparisons


def test_intervals_narrow_with_blocks():
    assert half_width(6) == pytest.approx(2.5706 / math.sqrt(6), rel=1e-4)
    assert half_width(2) == pytest.approx(12.7062 / math.sqrt(2), rel=1e-4)
    assert half_width(1) == math.inf
    assert half_width(12) < half_width(6) / math.sqrt(2)
