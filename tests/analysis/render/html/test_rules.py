"""The 12 rules are judged by facts: each passes where they are there, and says what is missing where they are not."""

from dataclasses import replace

import pytest

from dlscale.analysis.declare import Point, Series
from dlscale.analysis.efficiency import scaling_table
from dlscale.analysis.render.html import rules
from dlscale.analysis.render.html.page import page_of
from dlscale.analysis.render.html.rules import (
    RULES,
    Facts,
    examples,
    judge_normality,
    judge_rates,
    judge_ratios,
)
from dlscale.analysis.render.html.study_facts import StudyFacts

ONE = (("hep_cnn", "torch"),)


def judged(made, records, **options):
    page = made.whole(records, **options)
    return {rule.number: rule for rule in page.rules}


def facts_of(records, **changes):
    return Facts(table=scaling_table(records), records=records, **changes)


def test_there_are_twelve_and_a_sound_study_meets_them_all(made):
    found = judged(made, made.study(trainings=ONE, num_blocks=8))
    assert list(found) == list(range(1, 13))
    assert {number for number, rule in found.items() if rule.verdict != "pass"} == set()
    assert all(rule.why.endswith(".") for rule in found.values())
    assert len({text for text, _ in RULES}) == 12


def test_1_without_a_base_case(made):
    records = made.study(trainings=ONE, rank_counts=(2, 4))
    rule = judged(made, records)[1]
    assert rule.verdict == "not met"
    assert "HEP-CNN small, torch" in rule.why


def test_2_a_launch_that_left_nothing(made):
    records = made.study(trainings=ONE)
    planned = [record.case for record in records]
    lost, failed = records[5], made.record(backend="ring", num_ranks=8, block=6, failure="lost its node")
    kept = [record for record in records if record is not lost]
    page = page_of(scaling_table([*kept, failed], planned=planned), [*kept, failed])
    assert page.rules[1].verdict == "not met"
    assert page.rules[1].why.startswith("1 of 97 planned cases left neither a number nor a reason")
    page = page_of(scaling_table([*records, failed], planned=planned), [*records, failed])
    assert page.rules[1].verdict == "pass"
    assert "the reasons of 1 other are listed" in page.rules[1].why


def test_3_a_rate_that_is_not_the_batch_over_the_median(made):
    facts = facts_of(made.study(trainings=ONE))
    assert judge_rates(facts)[0] == "pass"
    first = facts.table.rows[0]
    wrong = replace(first, throughput=first.throughput.times(1.01))
    table = replace(facts.table, rows=(wrong, *facts.table.rows[1:]))
    verdict, why = judge_rates(replace(facts, table=table))
    assert verdict == "not met"
    assert "none on 1 rank" in why


def test_4_a_ratio_that_is_a_mean_of_ratios(made):
    facts = facts_of(made.study(trainings=ONE))
    assert judge_ratios(facts)[0] == "pass"
    last = facts.table.rows[-1]
    wrong = replace(last, efficiency_none=last.efficiency_none.times(1.0005))
    table = replace(facts.table, rows=(*facts.table.rows[:-1], wrong))
    assert judge_ratios(replace(facts, table=table))[0] == "not met"


def test_5_too_few_launches_for_an_interval(made):
    rule = judged(made, made.study(trainings=ONE, num_blocks=4))[5]
    assert rule.verdict == "not met"
    assert rule.why.startswith("No interval of the rate: none on 1 rank")
    assert "efficiency" not in rule.why  # 4 blocks are enough for those


def test_6_one_wild_block_of_many(made):
    records = made.study(
        trainings=ONE, rank_counts=(1, 2), efficiency={"none": 1.0, "ring": 0.9}, num_blocks=12
    )
    assert judge_normality(facts_of(records))[0] == "pass"
    wild = [
        made.record(backend="ring", num_ranks=2, block=record.case.block, rate=4.0)
        if (record.case.cell.backend, record.case.cell.num_ranks, record.case.block) == ("ring", 2, 3)
        else record
        for record in records
    ]
    verdict, why = judge_normality(facts_of(wild))
    assert verdict == "not met"
    assert "ring on 2 ranks" in why


def test_7_comparisons_that_so_few_blocks_cannot_carry(made):
    records = made.study(trainings=ONE)  # 6 comparisons by 6 blocks
    rule = judged(made, records)[7]
    assert rule.verdict == "not met"
    assert rule.why.startswith(
        "6 of 6 comparisons cannot be shown: 6 launches cannot decide 6 comparisons: --launches 8 can"
    )


def test_7_enough_blocks_and_the_claims_are_counted(made):
    records = made.study(trainings=ONE, rank_counts=(1, 8), efficiency={"none": 1.0, "mpi": 0.8, "ring": 0.9})
    rule = judged(made, records)[7]
    assert rule.verdict == "pass"
    assert rule.why.startswith("1 comparison, declared by rule, with a sign-flip test of paired blocks")
    assert ": 1 claim a difference, 0 are alike within 2 %, 0 are not shown." in rule.why


def test_7_nothing_to_compare(made):
    only = made.study(trainings=ONE, efficiency={"none": 1.0, "ring": 0.9})
    assert judged(made, only)[7].verdict == "not applicable"


def test_8_slow_steps_that_the_median_does_not_show(made):
    records = made.study(trainings=ONE, rank_counts=(1, 2), efficiency={"none": 1.0, "ring": 0.9})
    record = records[-1]
    slow = [
        window.model_copy(update={"seconds": [9 * x for x in window.seconds]})
        for window in record.windows[1:5]
    ]
    changed = record.model_copy(update={"windows": [record.windows[0], *slow, *record.windows[5:]]})
    rule = judged(made, [*records[:-1], changed])[8]
    assert rule.verdict == "not met"
    assert "ring on 2 ranks" in rule.why


@pytest.mark.parametrize(
    ("update", "what"),
    [
        ({"configuration": None}, "without configuration"),
        ({"nodes": []}, "without facts of their nodes"),
    ],
)
def test_9_what_records_do_not_say(made, update, what):
    records = made.study(trainings=ONE)
    changed = [records[0].model_copy(update=update), *records[1:]]
    rule = judged(made, changed)[9]
    assert rule.verdict == "not met"
    assert f"1 {what}" in rule.why


def test_9_a_changed_checkout(made):
    record, *rest = made.study(trainings=ONE)
    dirty = record.model_copy(
        update={"fingerprint": record.fingerprint.model_copy(update={"commit": "0123+dirty"})}
    )
    assert "1 from a changed checkout" in judged(made, [dirty, *rest])[9].why


def test_10_ranks_that_start_apart_and_short_launches(made):
    short = made.study(trainings=ONE, num_windows=4)
    assert "of fewer than 10 windows" in judged(made, short)[10].why
    records = made.study(trainings=ONE)
    record = records[-1]
    windows = [
        window.model_copy(update={"start_seconds": [0.0] * 7 + [0.05 * window.seconds[0]]})
        for window in record.windows
    ]
    apart = record.model_copy(update={"windows": windows})
    rule = judged(made, [*records[:-1], apart])[10]
    assert rule.verdict == "not met"
    assert "1 launch whose ranks start more than 1 % of a window apart" in rule.why


def test_10_two_nodes_that_booted_a_day_apart(made):
    """Clocks count from each node's boot: one node's reading is never subtracted from the other's."""
    records = []
    for record in made.study(trainings=ONE):
        ranks = record.case.cell.num_ranks
        offsets = [0.0 if rank < ranks / 2 else 43_200.0 for rank in range(ranks)]
        windows = [
            window.model_copy(
                update={
                    "start_seconds": [
                        start + offset for start, offset in zip(window.start_seconds, offsets, strict=True)
                    ]
                }
            )
            for window in record.windows
        ]
        facts = [
            fact.model_copy(update={"boot_id": f"boot {offset}"})
            for fact, offset in zip(record.ranks, offsets, strict=True)
        ]
        records.append(record.model_copy(update={"windows": windows, "ranks": facts}))
    rule = judged(made, records)[10]
    assert rule.verdict == "pass"
    assert rule.why.endswith(
        "between machines, whose clocks are not synchronised, only the barrier before a window is known."
    )


def test_11_no_bound_but_the_ideal(made):
    page = made.page(made.study(trainings=ONE))  # nobody asked for causes
    assert page.rules[10].verdict == "not met"
    assert page.rules[10].why.startswith("Only the ideal line: HEP-CNN small, torch")


def test_12_a_line_that_goes_backwards(made):
    facts = facts_of(made.study(trainings=ONE))
    (plot,) = made.page(made.study(trainings=ONE)).first
    assert rules.judge_lines(replace(facts, plots=[plot]))[0] == "pass"
    points = (Point(x=2, y=1), Point(x=1, y=1))
    bad = Series(name="ring", look="ring", evidence="measured", points=points, joined=True)
    assert rules.judge_lines(replace(facts, plots=[replace(plot, series=(bad,))]))[0] == "not met"


def test_a_study_under_way_is_no_subset_with_a_reason(made):
    facts = facts_of(made.study(trainings=ONE), study=StudyFacts(running=True))
    assert rules.judge_subsets(facts)[0] == "not met"


def test_examples_stay_few():
    assert examples(["a"]) == "a"
    assert examples(["a", "b", "c", "d", "e"]) == "a, b, c and 2 more"
