"""Numbers of servers as people type them, and what they mean for a number of workers."""

import pytest

from dlscale.base.errors import UsageError
from dlscale.benchmarks.study.expand import num_servers
from dlscale.benchmarks.study.study import load_study
from tests.benchmarks.study.test_study import cells, plan


@pytest.mark.parametrize(
    ("spec", "num_ranks", "expected"),
    [("2", 8, 2), ("1/2", 1, 1), ("1/2", 2, 1), ("1/2", 3, 2), ("1/4", 9, 3), ("1/1", 5, 5)],
)
def test_a_ratio_is_rounded_up(spec, num_ranks, expected):
    assert num_servers(spec, num_ranks) == expected


@pytest.mark.parametrize("spec", ["0", "0/2", "1/0", "-1", "half", "1.5"])
def test_what_is_no_number_of_servers_is_refused(spec):
    with pytest.raises(UsageError, match="is not a number of servers"):
        load_study("weak-scaling", servers=[spec])


def test_numbers_above_the_workers_are_left_out_with_a_warning_and_equal_ones_counted_once():
    found = plan(backends=["grpc_ps"], preset="tiny", servers=["1", "2", "1/2"])
    trained = {(c.num_ranks, c.num_servers) for c in cells(found) if c.backend == "grpc_ps"}
    assert trained == {(1, 1), (2, 1), (2, 2)}
    assert found.warnings == (
        "grpc_ps in torch on 1 rank is left out: 2 servers for 1 worker: more servers than workers",
    )


def test_more_servers_than_workers_everywhere_is_a_mistake():
    with pytest.raises(UsageError, match="more servers than workers"):
        plan(backends=["none", "grpc_ps"], preset="tiny", servers=["3"])
