"""What is said of a waterfall: in a sentence, in the terminal, in rows."""

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from dlscale.analysis.findings.waterfall import (
    FINDING,
    LOSSES,
    headline,
    largest_loss,
    loss_rows,
    losses_of,
    losses_on_most_ranks,
    waterfall_rows,
)
from dlscale.analysis.findings.waterfall_parts import LEAD_LEVEL, NAMES, launches_to_separate
from dlscale.analysis.measured import measure
from dlscale.analysis.statistics import Interval

from .conftest import MS, Planted, only, plant

ALL = Planted(co_running=0.2 * MS, input=0.1 * MS, delays=(0.4 * MS,), exposed=1.2 * MS)
ALIKE = Planted(co_running=0.5 * MS, exposed=0.5 * MS, reads=False)


def interval(center, half, n=6, level=0.95):
    return Interval(center=center, low=center - half, high=center + half, level=level, method="paired t", n=n)


@pytest.mark.parametrize(
    ("truth", "options", "said"),
    [
        (ALL, {}, "communication and waiting 12.1 % [12.1, 12.1]"),
        (ALL, {"num_blocks": 2}, "insufficient data: 2 of 3 blocks"),
        (Planted(reads=False), {"noise": 0.01}, "no loss is significant; largest: "),
        (ALIKE, {"noise": 0.01}, "; not separable from "),
    ],
)
def test_no_more_is_said_of_the_largest_loss_than_is_known(truth, options, said):
    one = only(plant(truth, **options))
    assert said in largest_loss(one)
    assert f" ranks; largest loss: {largest_loss(one)}" in headline(one)


@pytest.mark.parametrize(("evidence", "name"), [("measured", "ring"), ("emulated", "ring (emulated)")])
def test_the_screen_names_the_evidence_that_is_not_measured(evidence, name):
    records = plant(ALL, evidence=evidence)
    first, second = (block.text for block in FINDING.screen(measure(records)))
    assert first == "Largest loss on 4 ranks, of the ideal speed"
    assert second == f"  {name}  {largest_loss(only(records))}"


def test_the_losses_drawn_are_those_on_the_most_ranks_of_each_training():
    (one,) = losses_of([only(plant(ALL))])
    drawn = [
        replace(one, title=title, num_ranks=ranks)
        for title, ranks in (("a", 2), ("b", 8), ("a", 4), ("b", 2))
    ]
    assert [(loss.title, loss.num_ranks) for loss in losses_on_most_ranks(drawn)] == [("a", 4), ("b", 8)]


@pytest.mark.parametrize(("milliseconds", "text"), [(-1e-6, "0 ["), (4e-5, "0 ["), (6e-5, "0.0001 [")])
def test_milliseconds_of_next_to_nothing_are_0_without_a_sign(milliseconds, text):
    one = only(plant(ALL))
    seconds = interval(milliseconds * MS, 1e-3)
    table = LOSSES.of(loss_rows([replace(one, parts=(replace(one.parts[0], seconds=seconds),))]))
    assert table.rows[0].values[-2].text.startswith(text)


@pytest.mark.parametrize(
    ("rivals", "said"),
    [(("b", "c"), "; not separable from b or c"), (("b", "c", "d"), " from 3 other causes")],
)
def test_two_rivals_of_the_largest_loss_are_named(rivals, said):
    assert largest_loss(replace(only(plant(ALL)), rivals=rivals, separated=False)).endswith(said)


def test_a_part_of_nothing_is_no_loss():
    one = only(plant(ALL))
    parts = (replace(one.parts[0], loss=interval(0.0, 0.1)), *one.parts[1:])
    assert waterfall_rows([replace(one, parts=parts)])[0]["verdict"] == "gain"


def test_losses_that_are_alike_are_not_ranked():
    one = only(plant(ALIKE, noise=0.01))
    assert set(one.rivals) == {"sharing the machine", "communication and waiting"} - {one.largest.name}
    assert {row["launches_needed"] for row in waterfall_rows([one])} == {one.launches_needed}
    assert only(plant(ALL)).launches_needed is None
    for needed in (one.efficiency.n, one.efficiency.n + 1):
        enough = f"(about {needed} launches would be enough)"
        assert (enough in headline(replace(one, launches_needed=needed))) == (needed > one.efficiency.n)


def test_about_how_many_launches_would_separate_the_largest_loss():
    """With n launches half an interval is 0.1 t(n - 1) / sqrt(n) x sqrt(6) / t(5), for t at one-sided 5 %."""

    def half(num_launches):
        scale = math.sqrt(6) / stats.t.ppf(0.95, 5)
        return 0.1 * scale * stats.t.ppf(0.95, num_launches - 1) / math.sqrt(num_launches)

    def lead(center):
        return interval(center, 0.1, level=LEAD_LEVEL)

    needed = launches_to_separate([lead(0.06), lead(0.5)])
    assert half(needed) < 0.06 <= half(needed - 1)
    assert launches_to_separate([lead((half(98) + half(99)) / 2)]) == 99
    assert launches_to_separate([lead((half(99) + half(100)) / 2)]) is None
    assert launches_to_separate([lead(0.06), lead(0.001)]) is None
    assert launches_to_separate([lead(0.0)]) is None
    assert launches_to_separate([replace(lead(0.1), low=None)]) is None


@pytest.mark.parametrize(("seed", "rivals"), [(97, ("sharing the machine",)), (159, ())])
def test_the_lead_of_the_largest_loss_is_tested_at_one_sided_5_percent(seed, rivals):
    """A two-sided paired t test gives a probability of 10.5 % for the first seed and of 9.6 % for the second."""
    truth = Planted(co_running=0.5 * MS, exposed=0.7 * MS, reads=False)
    one = only(plant(truth, noise=0.01, seed=seed, num_windows=2))
    first, second = (np.array([losses[index] for _, losses in one.by_block]) for index in (2, 0))
    assert 0.09 < stats.ttest_rel(first, second).pvalue < 0.11
    assert one.largest.name == "communication and waiting"
    assert one.rivals == rivals
    assert one.separated == (not rivals)


def test_the_largest_losses_are_named_where_a_loss_is_certain():
    one = only(plant(ALL))
    assert one.largest_names == ("communication and waiting",)
    assert replace(one, rivals=("stragglers",)).largest_names == ("communication and waiting", "stragglers")
    uncertain = tuple(replace(part, loss=interval(0.1, 0.1)) for part in one.parts)
    of_uncertain = replace(one, parts=uncertain, loss=interval(0.15, 0.03))
    assert of_uncertain.largest_names == (), "a limit of 0 is not certain"
    assert largest_loss(of_uncertain).startswith("no single cause is significant")
    assert largest_loss(replace(of_uncertain, loss=interval(0.1, 0.1))).startswith("no loss is significant")


def test_a_waterfall_without_parts_has_a_row_with_the_reason():
    rows = waterfall_rows([only(plant(ALL))])
    unknown = only([record for record in plant(ALL) if record.case.cell.num_ranks > 1])
    (empty,) = waterfall_rows([unknown])
    assert empty.keys() == rows[0].keys()
    assert (empty["part"], empty["reason"]) == (None, "vs 1 rank: none on 1 rank was not measured")
    assert empty["reason"] in headline(unknown)


def test_one_rank_over_a_backend_has_no_waterfall():
    alone = [record for record in plant(Planted(num_ranks=1)) if record.case.cell.backend == "ring"]
    assert alone
    assert only([*plant(ALL), *alone]).cell.num_ranks == 4


def test_the_metrics_page_explains_each_part_by_the_name_shown():
    page = (Path(__file__).parents[4] / "docs/metrics.md").read_text(encoding="utf-8")
    assert [name for name in NAMES if f"**{name}**" not in page] == []
