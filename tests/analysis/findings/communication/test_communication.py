"""The planted share of an exchange that is hidden, the step predicted of its parts, and what is said of both."""

import numpy as np
import pytest

from dlscale.analysis.findings.communication import communication_rows, communication_sentence
from dlscale.analysis.findings.overlap import (
    NOT_OVERLAPPED,
    communications,
    communications_on_most_ranks,
    predict_step,
)
from dlscale.analysis.findings.waterfall_parts import waterfalls_of
from dlscale.analysis.launches import launches_of
from tests.made_records import make_study

from .conftest import DRIFT, MS, Link, plant


def found_in(records):
    good = launches_of(records)
    return communications(good, waterfalls_of(good))


def only(records):
    (found,) = found_in(records)
    return found


@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
def test_the_planted_overlap_is_found_again(share):
    found = only(plant(hidden=share, overlap=True))
    assert found.how == "overlapped"
    for hidden in (found.hidden, found.step.hidden):
        assert (hidden.center, hidden.low, hidden.high) == pytest.approx((share,) * 3, abs=1e-9)
        assert (hidden.method, hidden.n) == ("paired t", 6)
    drift = float(np.exp(np.mean(np.log(DRIFT[:6]))))
    assert found.step.longest == pytest.approx(drift * (40 * MS + Link().step))
    assert found.step.shortest == pytest.approx(drift * 40 * MS)
    assert found.step.measured.high / found.step.measured.low > 1.2, "the drift cancels in the shares alone"


def test_in_line_the_step_is_the_sum():
    found = only(plant(overlap=False))
    assert (found.how, found.hidden, found.hidden_reason) == ("in line", None, NOT_OVERLAPPED)
    assert found.step.hidden is None
    assert found.step.shortest == found.step.longest
    ratio = found.step.of_sum
    assert (ratio.center, ratio.low, ratio.high, ratio.n) == pytest.approx((1.0, 1.0, 1.0, 6))


def test_a_step_that_takes_longer_than_its_parts_says_so():
    link = Link(bandwidth=0.5e9)
    found = only(plant(link, hidden=-0.5, overlap=False))
    expected = (40 * MS + 1.5 * link.step) / (40 * MS + link.step)
    assert found.step.of_sum.center == pytest.approx(expected)
    slower = only(plant(link, hidden=-0.5, overlap=True))
    assert slower.hidden.center == slower.step.hidden.center == pytest.approx(-0.5)


def test_an_exchange_longer_than_the_computation_cannot_be_hidden_whole():
    link = Link(bandwidth=0.2e9)  # takes 69 ms
    share = 10 * MS / link.step
    found = only(plant(link, computation=10 * MS, hidden=share, overlap=True))
    assert found.step.hidden.center == pytest.approx(1.0)  # all that can be
    assert found.hidden.center == pytest.approx(share)  # of the exchange
    assert found.step.shortest == pytest.approx(found.alone.seconds.center, rel=0.05)


@pytest.mark.parametrize("share", [0.0, 0.5])
def test_intervals_cover_the_planted_share(share):
    link = Link(bandwidth=1e9)
    covered = [0, 0, 0]
    for seed in range(60):
        found = only(plant(link, hidden=share, overlap=True, noise=0.01, seed=seed))
        ratio = (40 * MS + (1 - share) * link.step) / (40 * MS + link.step)
        intervals = ((found.hidden, share), (found.step.hidden, share), (found.step.of_sum, ratio))
        for index, (interval, truth) in enumerate(intervals):
            covered[index] += interval.low <= truth <= interval.high
    assert min(covered) >= 51  # 85 %: 60 draws of 95 % fall below with a chance of 0.2 %


def without(records, **fields):
    def alike(cell):
        return all(getattr(cell, name) == value for name, value in fields.items())

    return [one for one in records if not alike(one.case.cell)]


def changed(records, update, **fields):
    kept = {one.case.id for one in without(records, **fields)}
    return [one if one.case.id in kept else one.model_copy(update=update(one)) for one in records]


def later(record):
    return {"case": record.case.model_copy(update={"block": record.case.block + 9})}


@pytest.mark.parametrize(
    ("records", "reason"),
    [
        (lambda all_: without(all_, backend="none", num_ranks=4), "none on 4 ranks was not measured"),
        (
            lambda all_: changed(all_, lambda _: {"evidence": "emulated"}, backend="none"),
            "none on 4 ranks was not measured",
        ),
        (lambda all_: changed(all_, later, control="exchange"), "no block in common with none on 4 ranks"),
        (lambda all_: without(all_, backend="ring", control="train"), "no training gave a number"),
    ],
)
def test_what_cannot_be_predicted_has_a_reason(records, reason):
    found = only(records(plant(overlap=True)))
    assert (found.step, found.step_reason) == (None, reason)
    assert found.alone.seconds.n == 6
    empty, *_ = communication_rows([found])
    assert reason in empty["reason"]
    assert empty["measured_seconds"] is None
    assert empty.keys() == communication_rows([only(plant(overlap=True))])[0].keys()


@pytest.mark.parametrize(
    ("options", "num_ranks", "reason"),
    [
        ({"stamps": False}, None, "communication and waiting is not known by itself"),
        ({}, 1, "communication and waiting is not known by itself"),  # without a base case
    ],
)
def test_without_parts_of_the_loss_the_prediction_stays(options, num_ranks, reason):
    found = only(without(plant(hidden=0.5, overlap=True, **options), num_ranks=num_ranks))
    assert (found.hidden, found.hidden_reason) == (None, reason)
    assert found.step.hidden.center == pytest.approx(0.5)


def test_too_few_launches_give_no_interval():
    found = only(plant(hidden=0.5, overlap=True, num_blocks=2))
    assert found.hidden.center == pytest.approx(0.5)
    assert (found.hidden.low, found.step.of_sum.low) == (None, None)
    assert "(no interval)" in communication_sentence(found)
    assert predict_step({("s", 0): 1.0}, {("s", 1): 1.0}, {("s", 0): 1.0}, how="") is None


def test_the_most_ranks_of_each_backend():
    records = [*plant(Link(num_ranks=2)), *plant(Link(num_ranks=8)), *plant(backend="mpi")]
    found = found_in({one.case.id: one for one in records}.values())
    shown = communications_on_most_ranks(found)
    places = [[(one.cell.backend, one.cell.num_ranks) for one in each] for each in (found, shown)]
    assert places == [[("mpi", 4), ("ring", 2), ("ring", 8)], [("mpi", 4), ("ring", 8)]]
    assert found_in(make_study()) == found_in([]) == ()
