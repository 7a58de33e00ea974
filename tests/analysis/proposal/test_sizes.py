"""Speed-ups, doublings, node-hours and verdicts against what was planted."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlscale.analysis.measured import measure
from dlscale.analysis.metrics import BASE_CASE
from dlscale.analysis.proposal.sizes import curves, node_hours_request, power, verdict
from dlscale.analysis.statistics import Interval, median_interval
from tests.made_records import make_record, rows_of

from .conftest import curve_of, kept

SHARES = {"none": {1: 1.0, 2: 0.99}, "ring": {1: 0.98, 2: 0.95, 4: 0.9, 8: 0.6}}
NODES = {4: 2, 8: 4}


def interval(low, high):
    return Interval(center=(low * high) ** 0.5, low=low, high=high, level=0.95, method="paired t", n=6)


def test_planted_efficiencies_give_their_speed_ups_and_doublings():
    found = curve_of(kept(SHARES))
    assert found.name == "ring"
    assert [one.num_ranks for one in found.sizes] == [1, 2, 4, 8]
    assert [one.efficiency.center for one in found.sizes] == pytest.approx([0.98, 0.95, 0.9, 0.6])
    assert [one.speed_up.center for one in found.sizes] == pytest.approx([0.98, 1.9, 3.6, 4.8])
    assert found.sizes[0].per_doubling is None
    assert [one.per_doubling.center for one in found.sizes[1:]] == pytest.approx(
        [1.9 / 0.98, 3.6 / 1.9, 4.8 / 3.6]
    )
    # Drift of 20 % is common to a block: it is in the rates' intervals, and in no ratio's.
    assert found.sizes[3].row.throughput.high / found.sizes[3].row.throughput.low > 1.3
    assert found.sizes[3].per_doubling.high - found.sizes[3].per_doubling.low < 1e-9


def test_a_step_over_several_doublings_is_told_per_doubling():
    found = curve_of(kept({"none": {1: 1.0}, "ring": {1: 1.0, 8: 0.512}}))
    # 8 x 0.512 = 1.6^3
    assert found.sizes[1].per_doubling.center == pytest.approx(1.6)


def test_node_hours_count_whole_nodes():
    found = curve_of(kept(SHARES, num_nodes=NODES))
    for one in found.sizes:
        rate = one.row.throughput
        assert one.node_hours.center == pytest.approx(one.num_nodes * 1e6 / rate.center / 3600)
        assert one.node_hours.low == pytest.approx(one.num_nodes * 1e6 / rate.high / 3600)
        assert one.node_hours.high == pytest.approx(one.num_nodes * 1e6 / rate.low / 3600)


@pytest.mark.parametrize(
    ("efficiency", "wanted"),
    [
        (interval(0.76, 0.9), "surely"),
        (interval(0.75, 0.9), "surely"),
        (interval(0.7, 0.76), "possibly"),
        (interval(0.6, 0.74), "not"),
        (None, "unknown"),
        (Interval(center=0.9, low=None, high=None, level=0.95, method="insufficient data", n=2), "unknown"),
        (Interval(center=1.0, low=None, high=None, level=0.95, method=BASE_CASE, n=1), "surely"),
    ],
)
def test_a_verdict_follows_from_the_whole_interval(efficiency, wanted):
    assert verdict(efficiency, 0.75) == wanted


@given(st.floats(0.01, 2), st.floats(1, 3), st.floats(0.01, 1), st.floats(0.01, 1))
def test_a_stricter_threshold_never_makes_a_verdict_better(low, ratio, first, second):
    order = ["surely", "possibly", "not"]
    found = interval(low, low * ratio)
    loose, strict = (order.index(verdict(found, one)) for one in sorted((first, second)))
    assert loose <= strict


@given(st.floats(0.1, 10), st.floats(1, 2), st.floats(0.1, 3))
def test_a_power_keeps_the_order_of_limits_and_has_an_inverse(low, ratio, exponent):
    found = power(interval(low, low * ratio), exponent)
    assert found.low <= found.center * (1 + 1e-12)
    assert found.center <= found.high * (1 + 1e-12)
    again = power(found, 1 / exponent)
    assert (again.low, again.high) == pytest.approx((low, low * ratio))


def test_the_fastest_backend_on_most_ranks_is_shown_and_the_others_named():
    shares = {**SHARES, "mpi": {1: 1, 2: 0.99, 4: 0.95}, "gloo": {1: 1, 2: 0.9, 4: 0.8, 8: 0.5}}
    found = curve_of(kept(shares))
    assert found.name == "ring"
    assert found.others == ("gloo", "mpi")
    chosen = curves(measure(kept(shares)), threshold=0.75, backends=["mpi", "gloo"])
    assert [one.name for one in chosen] == ["gloo", "mpi"]


def test_only_none_measured_is_shown_as_it_is():
    assert curve_of(kept({"none": {1: 1, 2: 0.99}})).name == "none"


def test_without_none_the_backend_s_own_1_rank_is_the_base():
    found = curve_of(kept({"ring": {1: 0.5, 2: 0.4}}))
    assert found.base == "backend"
    assert found.sizes[1].efficiency.center == pytest.approx(0.8)
    assert found.base_rate == found.sizes[0].row.throughput
    records = kept(SHARES)
    alone = [one for one in records if (one.case.cell.backend, one.case.cell.num_ranks) == ("none", 1)]
    seconds = [max(rows_of(one.windows)[-1].seconds) / rows_of(one.windows)[-1].num_steps for one in alone]
    assert curve_of(records).base_rate.center == pytest.approx(8 / median_interval(seconds).center)


def test_a_size_whose_launches_all_failed_has_no_numbers_and_is_passed_over():
    died = [make_record(backend="ring", num_ranks=2, failure="died")]
    found = curve_of(kept({"none": {1: 1}, "ring": {1: 1, 4: 0.64}}) + died)
    assert (found.sizes[1].verdict, found.sizes[1].node_hours) == ("unknown", None)
    assert found.largest.num_ranks == 4
    assert found.sizes[2].per_doubling.center == pytest.approx(1.6)  # 2.56 ^ (1/2), since 1 rank


def test_weak_and_strong_are_curves_of_their_own():
    records = kept(SHARES) + kept({"none": {1: 1}, "ring": {1: 1, 2: 1}}, global_batch=32)
    found = curves(measure(records), threshold=0.75)
    assert [one.family.scaling_mode for one in found] == ["strong", "weak"]


def test_node_hours_are_asked_at_the_largest_size_that_surely_keeps_the_threshold():
    found = node_hours_request(curve_of(kept(SHARES, num_nodes=NODES)), samples=3_600_000, runs=4)
    assert found.size.num_ranks == 4  # 90 %; 8 ranks keep 60 %
    rate = found.size.row.throughput.center
    assert found.hours.center == pytest.approx(1000 / rate)
    assert found.node_hours.center == pytest.approx(2000 / rate)
    assert found.total.center == pytest.approx(8000 / rate)
    assert found.total.low == pytest.approx(8000 / found.size.row.throughput.high)


def test_nothing_is_asked_on_the_ground_of_too_few_launches():
    found = curve_of(kept(SHARES, num_blocks=2))
    assert {one.verdict for one in found.sizes} == {"unknown"}
    assert node_hours_request(found, samples=1000, runs=1) is None
