"""Numbers of servers as people type them, and what they mean for a number of workers."""

import pytest

from dlscale.base.errors import UsageError
from dlscale.benchmarks.study.servers import check_servers, num_servers, server_counts


@pytest.mark.parametrize(
    ("spec", "num_ranks", "expected"),
    [("2", 8, 2), ("1/2", 1, 1), ("1/2", 2, 1), ("1/2", 3, 2), ("1/4", 9, 3), ("1/1", 5, 5)],
)
def test_a_ratio_is_rounded_up(spec, num_ranks, expected):
    assert num_servers(spec, num_ranks) == expected


@pytest.mark.parametrize("spec", ["0", "0/2", "1/0", "-1", "half", "1.5", ""])
def test_what_is_no_number_of_servers_is_refused(spec):
    with pytest.raises(ValueError, match="is not a number of servers"):
        check_servers([spec])


def test_no_number_at_all_is_refused():
    with pytest.raises(ValueError, match="list of servers is empty"):
        check_servers([])


def test_numbers_above_the_workers_are_left_out_with_a_warning_and_equal_ones_counted_once():
    found, left_out = server_counts(["1", "2", "1/2"], [1, 2])
    assert found == {1: [1], 2: [1, 2]}
    assert left_out == ["2 servers for 1 worker: more servers than workers, left out"]


def test_more_servers_than_workers_everywhere_is_a_mistake():
    with pytest.raises(UsageError, match="more servers than workers everywhere"):
        server_counts(["3"], [1, 2])
