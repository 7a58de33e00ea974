"""Studies whose ranks keep a known share of the ideal speed."""

import pytest

from dlscale.analysis.measured import measure
from dlscale.analysis.proposal.sizes import curves
from tests.made_records import make_study


@pytest.fixture
def kept():
    """Records of: backend -> {ranks: share of the ideal speed}."""
    return lambda shares, **fields: make_study(**{"efficiency": shares, "noise": 0.0} | fields)


@pytest.fixture
def curve_of():
    """The one curve that a proposal shows of records."""

    def one(records, *, threshold=0.75, **options):
        (found,) = curves(measure(records), threshold=threshold, **options)
        return found

    return one
