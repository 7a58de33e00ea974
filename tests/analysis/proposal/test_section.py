"""Sentences of a proposal: each says what the numbers do, and no more."""

import pytest

from dlscale.analysis.proposal import section
from dlscale.analysis.proposal.sizes import node_hours_request
from tests.made_records import make_record

from .conftest import curve_of, kept

ONE = {"none": {1: 1.0}}
GOOD = {**ONE, "ring": {1: 0.99, 2: 0.95, 4: 0.9}}


def ring(*shares):
    return {**ONE, "ring": dict(zip((1, 2, 4), shares, strict=True))}


@pytest.mark.parametrize(
    ("shares", "options", "parts"),
    [
        (
            GOOD,
            {},
            [
                "On 4 ranks (1 node) the training runs at",
                "a scaled speed-up of 3.60 [3.60, 3.60]",
                "a scaling efficiency of 90.0 % [90.0, 90.0]",
                "relative to 1 rank without communication, which alone does",
                "From 2 to 4 ranks each doubling multiplied the throughput by 1.89",
            ],
        ),
        (GOOD, {"global_batch": 32}, [": a speed-up of"]),
        (GOOD, {"num_blocks": 2}, ["insufficient data for an interval"]),
        (ONE, {}, ["nothing can be said about scaling"]),
        ({"ring": {2: 1.0, 4: 0.9}}, {}, ["There is no efficiency"]),
    ],
)
def test_the_result_states_what_is_known_and_relative_to_what(shares, options, parts):
    said = section.result_sentence(curve_of(kept(shares, **options)))
    assert all(part in said for part in parts)


@pytest.mark.parametrize(
    ("shares", "options", "threshold", "parts"),
    [
        (ring(1, 0.95, 0.9), {}, 0.75, ["at or above 75 % up to 4 ranks (1 node), at 95 % confidence"]),
        (ring(1, 0.95, 0.5), {}, 0.75, ["above 75 % up to 2 ranks", "below 75 % on 4 ranks (1 node): 50"]),
        (
            ring(1, 0.95, 0.75),
            {"noise": 0.02},
            0.75,
            ["above 75 % up to 2 ranks", "On 4 ranks (1 node) the interval", "more launches would decide"],
        ),
        (ring(1, 0.6, 0.5), {}, 0.75, ["No size above 1 rank has an efficiency of 75 %", "below 75 % on 2"]),
        (ring(1, 0.6, 0.9), {}, 0.75, ["at or above 75 % on 4 ranks", "find out why"]),
        (GOOD, {}, 0.925, ["stays at or above 92.5 % up to 2 ranks", "below 92.5 % on 4 ranks"]),
        (GOOD, {"num_blocks": 2}, 0.75, ["Insufficient data for a threshold of 75 %"]),
        (ONE, {}, 0.75, ["Insufficient data"]),
        ({"ring": {2: 1.0, 4: 0.9}}, {}, 0.75, ["Insufficient data"]),
    ],
)
def test_the_threshold_is_surely_possibly_or_not_kept(shares, options, threshold, parts):
    text = section.threshold_sentence(curve_of(kept(shares, **options), threshold=threshold))
    assert all(part in text for part in parts)
    assert ("would decide" in text) == any("would decide" in part for part in parts)


@pytest.mark.parametrize(
    ("options", "parts"),
    [
        (
            {"num_nodes": {4: 2}},
            ["3 600 000 samples on 4 ranks (2 nodes) takes", "2 trainings take", "Whole nodes are counted"],
        ),
        ({"num_blocks": 2}, ["No node-hours are derived: no size has an efficiency of 75 % or more"]),
        ({"evidence": "emulated"}, ["No node-hours are derived from emulated numbers"]),
        ({"evidence": "simulated"}, ["No node-hours are derived from simulated numbers"]),
    ],
)
def test_node_hours_are_those_of_a_size_that_surely_keeps_the_threshold(options, parts):
    curve = curve_of(kept(GOOD, **options))
    said = section.request_sentence(node_hours_request(curve, samples=3_600_000, runs=2), curve)
    assert all(part in said for part in parts)


@pytest.mark.parametrize(
    ("options", "begin"),
    [
        ({}, "All ranks ran on one node"),
        ({"num_nodes": {4: 2}}, ""),
        ({"evidence": "emulated", "num_nodes": {4: 2}}, "These numbers are emulated"),
        ({"evidence": "simulated", "num_nodes": {4: 2}}, "These numbers are simulated"),
    ],
)
def test_what_was_not_measured_on_nodes_is_said_before_the_numbers(options, begin):
    said = section.evidence_sentence(curve_of(kept(GOOD, **options)))
    assert said.startswith(begin)
    assert bool(said) == bool(begin)


def test_what_the_numbers_do_not_say_is_listed():
    records = [
        *kept({**GOOD, "mpi": {1: 1, 2: 0.5}}),
        make_record(backend="ring", num_ranks=2, block=7, failure="x"),
    ]
    said = " ".join(section.caveats(curve_of(records)))
    for part in (
        "preset tiny, not the published network",
        "Input was synthetic",
        "The batch grows with the ranks",
        "6 of 7 on 2 ranks (1 node)",
        "Also measured, and in the study's report: mpi",
    ):
        assert part in said
    records = kept(GOOD, preset="paper", data="events:0123456789ab", global_batch=32)
    assert list(section.caveats(curve_of(records))) == []
