"""The planted share of an exchange that is hidden, and the step that is predicted of its parts."""

import numpy as np
import pytest

from dlscale.analysis.findings.communication import communications, communications_on_most_ranks
from dlscale.analysis.findings.overlap import NOT_OVERLAPPED, predict_step
from dlscale.analysis.findings.waterfall_parts import waterfalls
from dlscale.analysis.launches import launches_of

from .conftest import DRIFT, MS, Link


def found_in(records):
    good = launches_of(records)
    return communications(good, waterfalls(good))


def only(records):
    (found,) = found_in(records)
    return found


@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
def test_the_planted_overlap_is_found_again(plant, share):
    found = only(plant(hidden=share, overlap=True))
    assert found.how == "overlapped"
    for hidden in (found.overlap.hidden, found.step.hidden):
        assert (hidden.center, hidden.low, hidden.high) == pytest.approx((share,) * 3, abs=1e-9)
        assert (hidden.method, hidden.n) == ("paired t", 6)
    drift = float(np.exp(np.mean(np.log(DRIFT[:6]))))
    assert found.step.longest == pytest.approx(drift * (40 * MS + Link().step))
    assert found.step.shortest == pytest.approx(drift * 40 * MS)


def test_in_line_the_step_is_the_sum(plant):
    found = only(plant(overlap=False))
    assert (found.how, found.overlap.hidden, found.overlap.reason) == ("in line", None, NOT_OVERLAPPED)
    assert found.step.hidden is None
    assert found.step.shortest == found.step.longest
    ratio = found.step.of_sum
    assert (ratio.center, ratio.low, ratio.high, ratio.n) == pytest.approx((1.0, 1.0, 1.0, 6))


def test_a_step_that_takes_longer_than_its_parts_says_so(plant):
    link = Link(bandwidth=0.5e9)
    found = only(plant(link, hidden=-0.5, overlap=False))
    expected = (40 * MS + 1.5 * link.step) / (40 * MS + link.step)
    assert found.step.of_sum.center == pytest.approx(expected)
    slower = only(plant(link, hidden=-0.5, overlap=True))
    assert slower.overlap.hidden.center == pytest.approx(-0.5)
    assert slower.step.hidden.center == pytest.approx(-0.5)


def test_an_exchange_longer_than_the_computation_cannot_be_hidden_whole(plant):
    link = Link(bandwidth=0.2e9)  # takes 69 ms
    share = 10 * MS / link.step
    found = only(plant(link, computation=10 * MS, hidden=share, overlap=True))
    assert link.step > 10 * MS
    assert found.step.hidden.center == pytest.approx(1.0)  # all that can be
    assert found.overlap.hidden.center == pytest.approx(share)  # of the exchange
    assert found.step.shortest == pytest.approx(found.alone.seconds.center, rel=0.05)


@pytest.mark.parametrize("share", [0.0, 0.5])
def test_intervals_cover_the_planted_share(plant, share):
    link = Link(bandwidth=1e9)
    covered = [0, 0, 0]
    for seed in range(60):
        found = only(plant(link, hidden=share, overlap=True, noise=0.01, seed=seed))
        true_ratio = (40 * MS + (1 - share) * link.step) / (40 * MS + link.step)
        intervals = (
            (found.overlap.hidden, share),
            (found.step.hidden, share),
            (found.step.of_sum, true_ratio),
        )
        for index, (interval, truth) in enumerate(intervals):
            covered[index] += interval.low <= truth <= interval.high
    assert min(covered) >= 51  # 85 %: 60 draws of 95 % fall below with a chance of 0.2 %


def test_drift_that_blocks_share_does_not_widen_the_interval(plant):
    found = only(plant(hidden=0.5, overlap=True))
    hidden = found.overlap.hidden
    assert hidden.high - hidden.low < 1e-9
    assert found.step.measured.high / found.step.measured.low > 1.2


def test_too_few_launches_give_no_interval(plant):
    found = only(plant(hidden=0.5, overlap=True, num_blocks=2))
    assert found.overlap.hidden.center == pytest.approx(0.5)
    assert (found.overlap.hidden.low, found.step.of_sum.low) == (None, None)
    assert found.step.of_sum.method == "insufficient data"


def without(records, **fields):
    return [
        one
        for one in records
        if not all(getattr(one.case.cell, name) == value for name, value in fields.items())
    ]


def test_without_none_there_is_no_prediction(plant):
    found = only(without(plant(overlap=True), backend="none", num_ranks=4))
    assert (found.step, found.reason) == (None, "none on 4 ranks was not measured")
    assert found.overlap.hidden is None
    assert found.alone.seconds.n == 6


def test_blocks_are_paired_or_not_used(plant):
    records = [
        one.model_copy(update={"case": one.case.model_copy(update={"block": one.case.block + 9})})
        if one.case.cell.control == "exchange"
        else one
        for one in plant(overlap=True)
    ]
    found = only(records)
    assert (found.step, found.reason) == (None, "no block in common with none on 4 ranks")


def test_without_stamps_late_ranks_are_not_told_apart(plant):
    found = only(plant(hidden=0.5, overlap=True, stamps=False))
    assert found.overlap.reason == "exposed communication is not known by itself"
    assert found.step.hidden.center == pytest.approx(0.5)


def test_without_a_base_case_the_prediction_stays(plant):
    found = only(without(plant(hidden=0.5, overlap=True), num_ranks=1))
    assert found.overlap.hidden is None
    assert found.step.hidden.center == pytest.approx(0.5)


def test_an_exchange_without_its_training_stays_by_itself(plant):
    found = only(without(plant(), backend="ring", control="train"))
    assert (found.step, found.reason, found.how) == (None, "no training gave a number", "")


def test_launches_that_exchange_differently_are_mixed(plant):
    records = [
        one.model_copy(update={"backend_settings": {"overlap": one.case.block > 2}})
        if (one.case.cell.backend, one.case.cell.control) == ("ring", "train")
        else one
        for one in plant(hidden=0.5)
    ]
    found = only(records)
    assert found.how == "mixed"
    assert found.step.hidden.center == pytest.approx(0.5)


def test_evidence_is_never_mixed(plant):
    records = [
        one.model_copy(update={"evidence": "emulated"}) if one.case.cell.backend == "none" else one
        for one in plant(overlap=False)
    ]
    assert only(records).reason == "none on 4 ranks was not measured"


def test_the_most_ranks_of_each_backend(plant):
    records = [*plant(Link(num_ranks=2)), *plant(Link(num_ranks=8)), *plant(backend="mpi")]
    found = found_in({one.case.id: one for one in records}.values())
    assert [(one.cell.backend, one.cell.num_ranks) for one in found] == [("mpi", 4), ("ring", 2), ("ring", 8)]
    assert [(one.cell.backend, one.cell.num_ranks) for one in communications_on_most_ranks(found)] == [
        ("mpi", 4),
        ("ring", 8),
    ]


def test_no_exchange_is_nothing(make_study):
    assert found_in(make_study()) == ()
    assert found_in([]) == ()


def test_a_step_needs_a_common_block():
    assert predict_step({("s", 0): 1.0}, {("s", 1): 1.0}, {("s", 0): 1.0}, how="") is None
