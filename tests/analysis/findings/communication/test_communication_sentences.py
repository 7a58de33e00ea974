"""Exchanges in sentences, in the terminal and in rows."""

import json

import pytest

from dlscale.analysis.findings.communication import (
    communication_rows,
    communication_sentence,
    communications,
)
from dlscale.analysis.findings.waterfall_parts import waterfalls
from dlscale.analysis.launches import launches_of

from .conftest import Link


def found_in(records):
    good = launches_of(records)
    return communications(good, waterfalls(good))


def said(records):
    (found,) = found_in(records)
    return communication_sentence(found)


def test_a_sentence_has_time_rate_and_what_is_hidden(plant):
    link = Link(latency=0.0, bandwidth=4e9, num_ranks=2, sizes=(4_000_000,))
    assert said(plant(link, hidden=0.5, overlap=True, drift=False)) == (
        "ring on 2 ranks: the exchange of 4 MB takes 1 ms alone [1, 1] at 4 GB/s (busbw); "
        "50.0 % [50.0, 50.0] of it is hidden behind the computation."
    )


def test_in_line_nothing_is_hidden_and_the_step_is_a_sum(plant):
    text = said(plant(overlap=False))
    assert text.endswith("nothing is hidden; the step is 1.00 [1.00, 1.00] of computation plus exchange.")
    alone = [one for one in plant(overlap=False) if one.case.cell.backend != "none"]
    assert "not known, none on 4 ranks was not measured" in said(alone)


def test_an_exchange_that_takes_longer_beside_a_computation(plant):
    assert (
        "nothing is hidden: beside the computation a step is longer by 1.50 [1.50, 1.50] of that time"
        in said(plant(hidden=-0.5, overlap=True))
    )


def test_without_stamps_the_ends_of_the_prediction_are_told(plant):
    text = said(plant(Link(bandwidth=1e9), hidden=0.5, overlap=True, stamps=False, drift=False))
    assert "how much of it is hidden is not known, exposed communication is not known by itself" in text
    assert "the step takes 47.2 ms, predicted 40.0 if all of it is overlapped, 54.3 if nothing is" in text


def test_too_few_blocks_and_other_evidence_are_told(plant):
    text = said(plant(hidden=0.5, overlap=True, num_blocks=2, evidence="emulated"))
    assert text.startswith("ring (emulated) on 4 ranks: ")
    assert "50 % of it is hidden behind the computation, of 2 blocks: no interval." in text


def test_rows_are_flat_stable_and_ready_for_json(plant):
    found = found_in(plant(hidden=0.5, overlap=True))
    rows = communication_rows(found)
    assert [row["bucket_bytes"] for row in rows] == [64 << 10, 1 << 20, 4 << 20]
    assert [row["num_buckets"] for row in rows] == [1, 1, 2]
    assert sum(row["bucket_bytes"] * row["num_buckets"] for row in rows) == rows[0]["step_bytes"]
    one = rows[-1]
    assert one["busbw_gb_per_second"] == pytest.approx(1.5 * one["algbw_gb_per_second"])
    assert one["hidden"] == pytest.approx(0.5)
    assert one["predicted_low_seconds"] < one["predicted_high_seconds"]
    assert (one["exchange"], one["reason"]) == ("overlapped", None)
    assert "control" not in one
    json.dumps(rows, allow_nan=False)
    missing = [record for record in plant() if record.case.cell.control == "exchange"]
    empty, *_ = communication_rows(found_in(missing))
    assert empty.keys() == one.keys()
    assert empty["reason"] == "no training gave a number"
    assert empty["measured_seconds"] is None
