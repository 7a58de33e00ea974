"""Sentences of a proposal: each says what the numbers do, and no more."""

import pytest

from dlscale.analysis.proposal import section
from dlscale.analysis.proposal.sizes import node_hours_request

GOOD = {"none": {1: 1.0}, "ring": {1: 0.99, 2: 0.95, 4: 0.9}}


def asked(curve):
    return section.request_sentence(node_hours_request(curve, samples=3_600_000, runs=2), curve)


def test_result_states_the_base_case_and_its_rate(kept, curve_of):
    said = section.result_sentence(curve_of(kept(GOOD)))
    assert "On 4 ranks (1 node) the training runs at" in said
    assert "a scaled speed-up of 3.60 [3.60, 3.60]" in said
    assert "a scaling efficiency of 90.0 % [90.0, 90.0]" in said
    assert "relative to 1 rank without a communication layer, which alone does" in said
    assert "From 2 to 4 ranks each doubling multiplied the throughput by 1.89" in said


def test_strong_scaling_has_a_plain_speed_up(kept, curve_of):
    said = section.result_sentence(curve_of(kept(GOOD, scaling_mode="strong")))
    assert ": a speed-up of" in said


@pytest.mark.parametrize(
    ("shares", "wobble", "said"),
    [
        ({1: 1, 2: 0.95, 4: 0.9}, 0.0, ["at or above 75 % up to 4 ranks (1 node), at 95 % confidence"]),
        (
            {1: 1, 2: 0.95, 4: 0.5},
            0.0,
            ["at or above 75 % up to 2 ranks", "below 75 % on 4 ranks (1 node): 50"],
        ),
        (
            {1: 1, 2: 0.95, 4: 0.75},
            0.02,
            [
                "at or above 75 % up to 2 ranks",
                "On 4 ranks (1 node) the interval",
                "more launches would decide",
            ],
        ),
        (
            {1: 1, 2: 0.6, 4: 0.5},
            0.0,
            ["No size above 1 rank has an efficiency of 75 % or more", "below 75 % on 2 ranks"],
        ),
        ({1: 1, 2: 0.6, 4: 0.9}, 0.0, ["at or above 75 % on 4 ranks", "find out why"]),
    ],
)
def test_the_threshold_is_surely_possibly_or_not_kept(kept, curve_of, shares, wobble, said):
    text = section.threshold_sentence(curve_of(kept({"none": {1: 1.0}, "ring": shares}, wobble=wobble)))
    for part in said:
        assert part in text
    assert ("would decide" in text) == any("would decide" in part for part in said)


def test_another_threshold_is_named(kept, curve_of):
    text = section.threshold_sentence(curve_of(kept(GOOD), threshold=0.925))
    assert "Efficiency stays at or above 92.5 % up to 2 ranks" in text
    assert "below 92.5 % on 4 ranks" in text


def test_two_launches_are_insufficient(kept, curve_of):
    curve = curve_of(kept(GOOD, num_blocks=2))
    assert "Insufficient data for a threshold of 75 %" in section.threshold_sentence(curve)
    assert "insufficient data for an interval" in section.result_sentence(curve)
    assert asked(curve) == (
        "No node-hours are derived: no size has an efficiency of 75 % or more at 95 % confidence."
    )


def test_one_rank_says_nothing_about_scaling(kept, curve_of):
    curve = curve_of(kept({"none": {1: 1.0}}))
    assert "nothing can be said about scaling" in section.result_sentence(curve)
    assert "Insufficient data" in section.threshold_sentence(curve)


def test_without_a_base_case_there_is_no_efficiency(kept, curve_of):
    curve = curve_of(kept({"ring": {2: 1.0, 4: 0.9}}))
    assert "There is no efficiency" in section.result_sentence(curve)
    assert "Insufficient data" in section.threshold_sentence(curve)


def test_node_hours_are_told_with_what_is_not_in_them(kept, curve_of):
    said = asked(curve_of(kept(GOOD, nodes={4: 2})))
    assert "One training on 3 600 000 samples on 4 ranks (2 nodes) takes" in said
    assert "2 trainings take" in said
    assert "Whole nodes are counted" in said


@pytest.mark.parametrize("evidence", ["emulated", "simulated"])
def test_no_node_hours_are_asked_on_the_ground_of_what_was_not_measured(kept, curve_of, evidence):
    curve = curve_of(kept(GOOD, evidence=evidence, nodes={2: 2, 4: 4}))
    assert f"These numbers are {evidence}" in section.evidence_sentence(curve)
    assert asked(curve).startswith(f"No node-hours are derived from {evidence} numbers")


def test_one_node_is_said_before_the_numbers_and_several_are_nothing_special(kept, curve_of):
    assert section.evidence_sentence(curve_of(kept(GOOD))).startswith("All ranks ran on one node")
    assert section.evidence_sentence(curve_of(kept(GOOD, nodes={4: 2}))) == ""


def test_what_the_numbers_do_not_say_is_listed(kept, curve_of, make_record):
    records = [
        *kept({**GOOD, "mpi": {1: 1, 2: 0.5}}),
        make_record(backend="ring", num_ranks=2, block=7, failure="x"),
    ]
    said = " ".join(section.caveats(curve_of(records)))
    for part in (
        "size tiny, not in the published one",
        "Input was synthetic",
        "The batch grows with the ranks",
        "6 of 7 on 2 ranks (1 node)",
        "Also measured, and in the study's report: mpi",
    ):
        assert part in said


def test_the_published_size_on_real_data_under_strong_scaling_needs_fewer_words(kept, curve_of):
    records = kept(GOOD, preset="paper", data="events:0123456789ab", scaling_mode="strong")
    assert list(section.caveats(curve_of(records))) == []
