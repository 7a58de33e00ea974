"""What is said of a waterfall: in a sentence, in the terminal, in rows."""

import json
import math
import re
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from dlscale.analysis.findings.waterfall import LEAD_LEVEL, launches_to_separate, waterfalls
from dlscale.analysis.findings.waterfall_table import (
    loss_rows,
    waterfall_headline,
    waterfall_rows,
)
from dlscale.analysis.launches import launches_of
from dlscale.analysis.statistics import Interval
from dlscale.analysis.text import share_text

from .conftest import Planted, only

MS = 1e-3
PARTS = ("co-running", "input stall", "stragglers", "exposed communication")
ALL = Planted(co_running=0.2 * MS, input=0.1 * MS, delays=(0.4 * MS,), exposed=1.2 * MS)


def interval(center, half, n=6):
    low, high = (None, None) if half is None else (center - half, center + half)
    return Interval(center=center, low=low, high=high, level=0.95, method="paired t", n=n)


def test_without_noise_it_is_known_to_the_digit(plant):
    (one,) = waterfalls(launches_of(plant(ALL)))
    assert waterfall_headline(one) == (
        "hep_cnn on ring: scaling efficiency 80.8 % [80.8, 80.8] at 4 ranks; the largest loss is "
        "exposed communication: 12.1 % [12.1, 12.1]."
    )


def test_losses_that_are_alike_are_not_ranked(plant):
    truth = Planted(co_running=0.5 * MS, exposed=0.5 * MS, reads=False)
    (one,) = waterfalls(launches_of(plant(truth, noise=0.01)))
    assert set(one.rivals) == {"co-running", "exposed communication"} - {one.largest.name}
    headline = waterfall_headline(one)
    assert re.search(
        r"the largest losses cannot be separated with 6 launches( \(about \d+ could\))?: ", headline
    )
    assert {row["launches_needed"] for row in waterfall_rows([one])} == {one.launches_needed}


def lead(center, half, n=6):
    return Interval(
        center=center, low=center - half, high=center + half, level=LEAD_LEVEL, method="paired t", n=n
    )


def test_about_how_many_launches_would_separate_the_largest_loss():
    """With n launches half an interval is 0.1 t(n - 1) / sqrt(n) x sqrt(6) / t(5), for t at one-sided 5 %."""

    def half(num_launches):
        scale = math.sqrt(6) / stats.t.ppf(0.95, 5)
        return 0.1 * scale * stats.t.ppf(0.95, num_launches - 1) / math.sqrt(num_launches)

    needed = launches_to_separate([lead(0.06, 0.1), lead(0.5, 0.1)])
    assert half(needed) < 0.06 <= half(needed - 1)
    assert launches_to_separate([lead(0.06, 0.1), lead(0.001, 0.1)]) is None
    assert launches_to_separate([lead(0.0, 0.1)]) is None
    assert launches_to_separate([replace(lead(0.1, 0.1), low=None)]) is None


def test_a_separated_loss_needs_no_more_launches(plant):
    assert only(plant(ALL)).launches_needed is None


@pytest.mark.parametrize(("seed", "rivals"), [(97, ("co-running",)), (159, ())])
def test_the_lead_of_the_largest_loss_is_tested_at_one_sided_5_percent(plant, seed, rivals):
    """A two-sided paired t test gives a probability of 10.5 % for the first seed and of 9.6 % for the second."""
    truth = Planted(co_running=0.5 * MS, exposed=0.7 * MS, reads=False)
    one = only(plant(truth, noise=0.01, seed=seed, num_windows=2))
    first, second = (np.array([losses[index] for _, losses in one.by_block]) for index in (2, 0))
    assert 0.09 < stats.ttest_rel(first, second).pvalue < 0.11
    assert one.largest.name == "exposed communication"
    assert one.rivals == rivals
    assert one.separated == (not rivals)


def test_the_largest_losses_are_named_where_a_loss_is_certain(plant):
    one = only(plant(ALL))
    assert one.largest_names == ("exposed communication",)
    assert replace(one, rivals=("stragglers",)).largest_names == ("exposed communication", "stragglers")
    uncertain = tuple(replace(part, loss=interval(0.1, 0.1)) for part in one.parts)
    assert replace(one, parts=uncertain).largest_names == ()
    few = only(plant(ALL, num_blocks=2))
    assert few.largest_names == ()


def test_a_loss_whose_limit_is_0_is_not_certain(plant):
    one = only(plant(ALL))
    parts = tuple(replace(part, loss=interval(0.1, 0.1)) for part in one.parts)
    assert waterfall_headline(replace(one, parts=parts, loss=interval(0.1, 0.1))).endswith(
        "; no loss is significant."
    )


def test_no_loss_is_invented_out_of_noise(plant):
    (one,) = waterfalls(launches_of(plant(Planted(reads=False), noise=0.01)))
    assert waterfall_headline(one).endswith("at 4 ranks; no loss is significant.")


def test_a_certain_loss_of_uncertain_causes_is_not_called_noise(plant):
    (one,) = waterfalls(launches_of(plant(Planted(exposed=0.5 * MS, reads=False), noise=0.01)))
    parts = tuple(
        replace(part, loss=interval(0.04 + index / 100, 0.1)) for index, part in enumerate(one.parts)
    )
    found = waterfall_headline(replace(one, parts=parts, loss=interval(0.15, 0.03)))
    assert f"; no single cause is significant; the largest is {parts[-1].name}: " in found


def test_few_blocks_are_insufficient_to_say_why(plant):
    (one,) = waterfalls(launches_of(plant(ALL, num_blocks=2)))
    assert waterfall_headline(one) == (
        "hep_cnn on ring: scaling efficiency 81 % at 4 ranks; insufficient data for causes: 2 of 3 blocks."
    )


def test_without_controls_the_headline_says_what_is_missing(plant):
    (one,) = waterfalls(launches_of([record for record in plant(ALL) if record.case.cell.num_ranks > 1]))
    assert waterfall_headline(one) == (
        "hep_cnn on ring at 4 ranks: the loss is unknown, no base case (a), none on 1 rank: not measured."
    )


def test_other_evidence_and_unpaired_ratios_are_named(plant):
    (one,) = waterfalls(launches_of(plant(ALL, base_block=50, evidence="emulated")))
    assert waterfall_headline(one).startswith("hep_cnn on ring (emulated): scaling efficiency 8")
    assert " at 4 ranks, unpaired; " in waterfall_headline(one)


def test_there_is_no_minus_zero():
    assert share_text(interval(-0.0001, 0.0001)) == "0.0 % [0.0, 0.0]"


def test_rows_add_up_and_have_stable_keys(plant):
    found = waterfalls(launches_of(plant(ALL)))
    rows = waterfall_rows(found)
    assert json.loads(json.dumps(rows)) == rows
    assert [row["part"] for row in rows] == [
        "co-running",
        "input stall",
        "late ranks",
        "exposed communication",
    ]
    assert [row["cause"] for row in rows] == [
        "co-running",
        "input stall",
        "stragglers",
        "exposed communication",
    ]
    assert sum(row["loss"] for row in rows) == pytest.approx(1 - rows[0]["efficiency"])
    lost = rows[0]["measured_seconds"] - rows[0]["ideal_seconds"]
    assert sum(row["seconds"] for row in rows) == pytest.approx(lost)
    (empty,) = waterfall_rows(
        waterfalls(launches_of([one for one in plant(ALL) if one.case.cell.num_ranks > 1]))
    )
    assert empty.keys() == rows[0].keys()
    assert (empty["part"], empty["reason"]) == (None, "no base case (a), none on 1 rank: not measured")


def test_the_rows_of_the_table_add_up_to_the_time_that_is_lost(plant):
    one = only(plant(ALL))
    *parts, total = loss_rows([one])
    assert [row.label for row in parts] == [part.name for part in one.parts]
    assert [row.largest for row in parts] == [False, False, False, True]
    assert [row.milliseconds.center for row in parts] == pytest.approx(
        [1000 * part.seconds.center for part in one.parts]
    )
    assert (total.label, total.largest) == ("in total", False)
    assert total.loss == one.loss
    assert total.milliseconds.center == pytest.approx(1000 * (one.measured_seconds - one.ideal_seconds))
    assert (total.milliseconds.low, total.milliseconds.high) == (None, None)
    assert total.milliseconds.method == "sum of the parts"
    reason = replace(one, parts=(), loss=None)
    assert list(loss_rows([reason])) == []


def test_one_rank_over_a_backend_has_no_waterfall(plant):
    alone = [record for record in plant(Planted(num_ranks=1)) if record.case.cell.backend == "ring"]
    assert alone
    assert only([*plant(ALL), *alone]).cell.num_ranks == 4
