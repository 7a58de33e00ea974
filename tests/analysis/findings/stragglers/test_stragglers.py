"""Planted slow hosts and ranks, and what may not be concluded."""

import pytest

from dlscale.analysis.findings.heat_maps import rank_times, to_heat_rows
from dlscale.analysis.findings.stragglers import HOST_ALPHA, straggler_sentences, stragglers
from dlscale.analysis.launches import launches_of

from .conftest import cluster


def only(records):
    (found,) = stragglers(launches_of(records))
    return found


def listed(found):
    return [(one.host, one.rank, one.verdict) for one in found.suspects]


NESTED = [("a", "b"), ("a", "c"), ("a", "d"), ("b", "c"), ("b", "d"), ("c", "d")] * 2


@pytest.mark.parametrize(
    ("planted", "suspects"),
    [
        ({"slow": {"c": 1.1}}, [("c", None, "late")]),
        # A slow rank is late, and its host is not.
        ({"slow_ranks": {5: 1.15}, "per_host": 2}, [("c", 5, "late")]),
        ({"slow_ranks": {5: 1.15}, "per_host": 4}, [("b", 5, "late")]),
        ({"hosts": ("a",), "slow_ranks": {1: 1.2}}, [("a", 1, "late")]),
        # Six launches tell one of two hosts.
        ({"hosts": ("a", "b"), "slow": {"b": 1.2}, "per_host": 1}, [("b", None, "late")]),
        ({"hosts": ("a", "b"), "slow": {"b": 1.2}, "per_host": 2}, [("b", None, "late")]),
    ],
)
def test_what_is_slow_is_found_with_its_cause(planted, suspects):
    assert listed(only(cluster(**planted))) == suspects


def test_how_slow_it_is_and_how_certain():
    found = only(cluster(slow={"c": 1.1}))
    (one,) = found.suspects
    assert one.slower.low < 0.1 < one.slower.high
    assert one.p_value <= HOST_ALPHA
    assert found.hosts == ("a", "b", "c", "d")


@pytest.mark.parametrize(
    ("hosts", "said"), [(("a", "b", "c", "d"), "none of the 4 hosts"), (("a",), "neither of the 2 ranks")]
)
def test_nobody_is_late_where_nobody_was_slowed(hosts, said):
    found = only(cluster(hosts=hosts, noise=0.02))
    assert all(one.verdict == "not known" for one in found.suspects)
    sentence = f"{said} is consistently late (6 launches without communication)."
    assert sentence in straggler_sentences(found)


def test_too_few_launches_do_not_tell_and_say_how_many_would():
    (one,) = only(cluster(hosts=("a",), slow_ranks={1: 1.2}, num_blocks=5)).suspects
    assert (one.verdict, one.reason) == ("not known", "5 launches; 6 are needed to tell it from chance")


def test_without_none_nothing_is_said():
    records = [one for one in cluster() if one.case.cell.backend != "none"]
    assert stragglers(launches_of(records)) == ()


def test_the_heat_map_has_a_row_per_rank_and_a_column_per_window():
    none, ring = rank_times(launches_of(cluster(slow={"c": 1.1}, noise=0.0)))
    assert (none.cell.backend, ring.cell.backend) == ("none", "ring")
    assert none.values.shape == (8, 60)
    assert none.first_columns == (0, 10, 20, 30, 40, 50)
    assert none.hosts == ("a", "a", "b", "b", "c", "c", "d", "d")
    assert none.values[4:6] == pytest.approx(0.1)
    assert none.values[:4] == pytest.approx(0)
    assert ring.values == pytest.approx(0)
    many = cluster(num_windows=50, slow={"c": 1.1}, noise=0.0)
    none, _ = rank_times(launches_of(many), max_columns=66)
    assert none.values.shape == (8, 66)
    assert (none.first_columns[1], none.num_windows) == (11, 300)
    assert none.values[4] == pytest.approx(0.1)


def test_hosts_that_change_have_no_name_in_the_heat_map():
    none, _ = rank_times(launches_of(cluster(hosts=NESTED, num_blocks=6)))
    assert none.moved
    assert {row["host"] for row in to_heat_rows(none)} == {None}
