"""Planted slow hosts, ranks and links, and what may not be concluded."""

import json

import numpy as np
import pytest

from dlscale.analysis.findings.rank_times import rank_times, relative_seconds, to_heat_rows
from dlscale.analysis.findings.stragglers import (
    HOST_ALPHA,
    straggler_rows,
    straggler_sentences,
    stragglers,
)
from dlscale.analysis.launches import launches_of


def only(records):
    (found,) = stragglers(launches_of(records))
    return found


def listed(found):
    return [(one.hosts, one.rank, one.backend, one.verdict) for one in found.suspects]


def test_a_slow_host_is_late(cluster):
    found = only(cluster(slow={"c": 1.1}))
    assert listed(found) == [(("c",), None, "none", "late")]
    (one,) = found.suspects
    assert one.slower.low < 0.1 < one.slower.high
    assert one.p_value <= HOST_ALPHA
    assert found.hosts == ("a", "b", "c", "d")


def test_a_slow_rank_is_late_and_its_host_is_not(cluster):
    for per_host in (2, 4):
        found = only(cluster(slow_ranks={5: 1.15}, per_host=per_host))
        assert listed(found) == [(("c" if per_host == 2 else "b",), 5, "none", "late")]


def test_nobody_is_late_where_nobody_was_slowed(cluster):
    found = only(cluster(noise=0.02))
    assert all(one.verdict == "not known" for one in found.suspects)
    assert (
        "none of the 4 hosts is consistently late (6 launches without communication)."
        in straggler_sentences(found)
    )


def test_on_one_host_ranks_are_compared(cluster):
    found = only(cluster(hosts=("a",), slow_ranks={1: 1.2}))
    assert listed(found) == [(("a",), 1, "none", "late")]
    assert straggler_sentences(found)[0].startswith("rank 1 (a) on 2 ranks: late, 19.9 % [")
    assert len(straggler_sentences(found)) == 1, "no link is missed on one node"


def test_neither_of_two_ranks_is_late(cluster):
    found = only(cluster(hosts=("a",), noise=0.02))
    assert (
        "neither of the 2 ranks is consistently late (6 launches without communication)."
        in straggler_sentences(found)
    )


@pytest.mark.parametrize("per_host", [1, 2])
def test_six_launches_tell_one_of_two_hosts(cluster, per_host):
    found = only(cluster(hosts=("a", "b"), slow={"b": 1.2}, per_host=per_host))
    assert listed(found) == [(("b",), None, "none", "late")]


def test_too_few_launches_do_not_tell_and_say_how_many_would(cluster):
    found = only(cluster(hosts=("a",), slow_ranks={1: 1.2}, num_blocks=5))
    assert listed(found) == [(("a",), 1, "none", "not known")]
    assert found.suspects[0].reason == "5 launches; 6 are needed to tell it from chance"


def test_a_late_host_stays_late_whatever_the_exchange_does(cluster):
    """Over a backend that waits for all, times are alike: nothing about links follows from them."""
    found = only(cluster(slow={"c": 1.3}, links={"a": 1.5}))
    assert listed(found) == [(("c",), None, "none", "late")]
    assert found.links == {
        "ring": "all launches ran on the same nodes, and ranks that exchange wait for each other"
    }


def test_nodes_on_one_machine_have_no_links(cluster):
    found = only(cluster(one_machine=True, links={"a": 1.5}))
    assert found.links == {"ring": "nodes share a machine, and there is no link between them"}


NESTED = [("a", "b"), ("a", "c"), ("a", "d"), ("b", "c"), ("b", "d"), ("c", "d")] * 2


def test_a_link_is_slow_if_the_exchange_is_longer_whenever_its_host_takes_part(cluster):
    found = only(cluster(hosts=NESTED, links={"b": 1.2}, num_blocks=12, noise=0.002))
    assert listed(found) == [(("b",), None, "ring", "slow link")]
    assert found.links == {}
    assert found.suspects[0].slower.center == pytest.approx(0.2, abs=0.01)
    assert straggler_sentences(found)[0].startswith("host b on 4 ranks: slow link, 20.")
    assert straggler_sentences(found)[0].endswith("slower over ring, and not without communication.")


def test_equal_links_are_hardly_ever_called_slow(cluster):
    wrong = sum(
        any(
            one.verdict == "slow link"
            for one in only(cluster(hosts=NESTED, num_blocks=12, seed=seed)).suspects
        )
        for seed in range(20)
    )
    assert wrong <= 2


def test_a_late_host_is_not_also_a_slow_link(cluster):
    found = only(cluster(hosts=NESTED, slow={"b": 1.3}, links={"b": 1.3}, num_blocks=12, noise=0.002))
    assert [one for one in listed(found) if "b" in one[0]] == [(("b",), None, "none", "late")]


def test_hosts_that_always_ran_together_are_not_told_apart(cluster):
    pairs = [("a", "b"), ("c", "d"), ("c", "e"), ("d", "e")] * 3
    found = only(cluster(hosts=pairs, links={"b": 1.2}, num_blocks=12, noise=0.002))
    (one,) = [one for one in found.suspects if one.backend == "ring"]
    assert (one.hosts, one.verdict, one.reason) == (("a", "b"), "not known", "they always ran together")


def test_launches_of_one_job_count_once(cluster):
    """What differs between jobs may be their neighbours as well as their nodes."""
    hosts = [("a", "b")] * 6 + [("a", "c")] * 6
    records = cluster(hosts=hosts, links={"b": 1.2}, num_blocks=12, jobs=["1"] * 6 + ["2"] * 6)
    found = only(records)
    assert listed(found) == []
    assert found.links == {"ring": "2 jobs on different nodes are too few to tell one host from chance"}


def test_ranks_that_do_not_wait_show_their_links_themselves(cluster):
    found = only(cluster(backend="grpc_ps", steps={"b": 0.8}))
    assert listed(found) == [(("b",), None, "grpc_ps", "slow link")]
    assert found.suspects[0].slower.center == pytest.approx(0.25)


def test_a_slow_host_is_late_also_if_nobody_waits_for_it(cluster):
    found = only(cluster(backend="grpc_ps", steps={"b": 0.8}, slow={"b": 1.25}))
    assert listed(found) == [(("b",), None, "none", "late")]


def test_without_none_nothing_is_said(cluster):
    records = [one for one in cluster() if one.case.cell.backend != "none"]
    assert stragglers(launches_of(records)) == ()


def test_the_heat_map_has_a_row_per_rank_and_a_column_per_window(cluster):
    none, ring = rank_times(launches_of(cluster(slow={"c": 1.1}, noise=0.0)))
    assert (none.cell.backend, ring.cell.backend) == ("none", "ring")
    assert none.values.shape == (8, 60)
    assert none.first_columns == (0, 10, 20, 30, 40, 50)
    assert none.hosts == ("a", "a", "b", "b", "c", "c", "d", "d")
    assert none.values[4:6] == pytest.approx(0.1)
    assert none.values[:4] == pytest.approx(0)
    assert ring.values == pytest.approx(0)


def test_many_windows_are_put_together_side_by_side(cluster):
    none, _ = rank_times(launches_of(cluster(num_windows=50, slow={"c": 1.1}, noise=0.0)), max_columns=66)
    assert none.values.shape == (8, 66)
    assert none.first_columns[1] == 11
    assert none.num_windows == 300
    assert none.values[4] == pytest.approx(0.1)


def test_relative_seconds_have_a_median_of_one_in_every_window(cluster):
    for record in cluster(noise=0.05):
        assert np.median(relative_seconds(record), axis=0) == pytest.approx(np.ones(10))


def test_heat_maps_are_equal_if_all_of_them_is(cluster):
    one, other = rank_times(launches_of(cluster()))
    assert (one, other) == rank_times(launches_of(cluster()[::-1]))
    assert one != other
    assert one != rank_times(launches_of(cluster(seed=6)))[0]
    assert one != "a heat-map"


def test_hosts_that_change_have_no_name_in_the_heat_map(cluster):
    none, _ = rank_times(launches_of(cluster(hosts=NESTED, num_blocks=6)))
    assert none.moved
    assert {row["host"] for row in to_heat_rows(none)} == {None}


def test_rows_are_plain_and_the_terminal_escapes(cluster):
    records = cluster(hosts=("a", "[bold]b"), slow={"[bold]b": 1.2}, per_host=1)
    found = stragglers(launches_of(records))
    (row,) = straggler_rows(found)
    assert (row["host"], row["rank"], row["verdict"], row["num_ranks"]) == ("[bold]b", None, "late", 2)
    assert json.loads(json.dumps(straggler_rows(found))) == [row]
    heat = rank_times(launches_of(records))[0]
    rows = to_heat_rows(heat)
    assert len(rows) == 2 * 60
    assert rows[-1]["slower"] == heat.values[1, 59]
