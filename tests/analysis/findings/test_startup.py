"""The table of what a launch costs before it trains."""

import pytest

from dlscale.analysis.findings.startup import PHASES, start_ups
from dlscale.analysis.launches import launches_of
from dlscale.benchmarks.records.record import Phases


def phases(factor, *, missing=None):
    lists = {name: [factor * (index + 1), factor * (index + 2)] for index, name in enumerate(PHASES)}
    if missing:
        lists[missing] = [None, 1.0]
    return Phases(**lists, warm_up=[1.0, 1.0])


def test_the_slowest_rank_counts_and_launches_are_medians(make_record):
    records = [
        make_record(backend="ring", num_ranks=2, block=block).model_copy(update={"phases": phases(factor)})
        for block, factor in enumerate((1.0, 3.0, 10.0))
    ]
    (found,) = start_ups(launches_of(records))
    assert (found.backend, found.num_ranks, found.num_launches) == ("ring", 2, 3)
    assert found.seconds == {name: pytest.approx(3.0 * (index + 2)) for index, name in enumerate(PHASES)}


def test_a_phase_that_a_rank_did_not_reach_has_no_number(make_record):
    record = make_record(backend="ring", num_ranks=2).model_copy(
        update={"phases": phases(1.0, missing="gates")}
    )
    (found,) = start_ups(launches_of([record]))
    assert found.seconds["gates"] is None
    assert found.seconds["connect"] is not None


def test_failed_launches_and_controls_do_not_count(make_record):
    assert (
        start_ups(launches_of([make_record(failure="died"), make_record(control="loader", backend="none")]))
        == []
    )
