"""The canaries' verdict on a job."""

import pytest

from dlscale.analysis.findings.drift import drifts
from dlscale.analysis.launches import launches_of
from tests.made_records import make_record


@pytest.mark.parametrize(
    ("begin", "end", "steady", "text"),
    [
        (100.0, 102.0, True, "job 1: the canary at its end was 2.0 % faster than at its beginning: steady"),
        (100.0, 90.0, False, "10.0 % slower than at its beginning: drift"),
    ],
)
def test_the_end_is_compared_with_the_beginning(begin, end, steady, text):
    canaries = [
        make_record(control="canary", backend="ring", num_ranks=4, block=2, samples_per_second=begin),
        make_record(control="canary", backend="ring", num_ranks=4, block=3, samples_per_second=end),
    ]
    (drift,) = drifts(launches_of(canaries))
    assert drift.job == 1
    assert drift.ratio == pytest.approx(end / begin)
    assert drift.steady is steady
    assert text in drift.text


def test_the_latest_good_attempt_counts_and_without_one_nothing_is_known():
    first = make_record(control="canary", block=0, samples_per_second=100.0)
    failed = make_record(control="canary", block=1, failure="killed")
    (drift,) = drifts(launches_of([failed, first]))
    assert (drift.ratio, drift.steady) == (None, None)
    again = make_record(control="canary", block=1, attempt=2, samples_per_second=101.0)
    (drift,) = drifts(launches_of([again, first, failed]))
    assert drift.ratio == pytest.approx(1.01)
