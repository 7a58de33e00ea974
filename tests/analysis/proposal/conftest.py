"""Studies whose ranks keep a known share of the ideal speed."""

from dlscale.analysis.measured import measure
from dlscale.analysis.proposal.sizes import curves
from tests.made_records import make_study


def kept(shares, **fields):
    """Records of: backend -> {ranks: share of the ideal speed}."""
    return make_study(**{"efficiency": shares, "noise": 0.0} | fields)


def curve_of(records, *, threshold=0.75, **options):
    """The one curve that a proposal shows of records."""
    (found,) = curves(measure(records), threshold=threshold, **options)
    return found
