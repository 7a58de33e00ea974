"""The bound of M33, and its figure."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlscale.analysis.figures.rehearsal import draw_rehearsal, rehearsal_origin
from dlscale.analysis.findings.bounds import network_bound

positive = st.floats(1e-6, 1e3)


def of(num_nodes, compute_seconds=0.01, gradient_bytes=100_000_000, bytes_per_second=8e9):
    return network_bound(
        num_nodes=num_nodes,
        num_ranks=num_nodes,
        compute_seconds=compute_seconds,
        gradient_bytes=gradient_bytes,
        bytes_per_second=bytes_per_second,
    )


def test_a_case_by_hand():
    """100 MB at 8 GB/s on 4 nodes: 2 * 3/4 * 12.5 ms = 18.75 ms on the wire, beside 10 ms of computation."""
    found = of(4)
    assert found.wire_seconds == pytest.approx(0.01875)
    assert found.hidden == pytest.approx(10 / 18.75)
    assert found.exposed == pytest.approx(10 / 28.75)


def test_one_node_sends_nothing():
    found = of(1)
    assert (found.wire_seconds, found.hidden, found.exposed) == (0.0, 1.0, 1.0)


@given(st.integers(1, 10_000), positive, st.integers(1, 10**9), st.floats(1e6, 1e12))
def test_nothing_hidden_is_never_better_and_more_nodes_never_help(nodes, compute, num_bytes, rate):
    small, large = of(nodes, compute, num_bytes, rate), of(nodes + 1, compute, num_bytes, rate)
    assert 0 < small.exposed <= small.hidden <= 1
    assert large.hidden <= small.hidden
    assert large.exposed <= small.exposed


def test_the_figure_is_the_same_to_the_byte_and_has_its_numbers_beside_it(tmp_path):
    found = [of(nodes) for nodes in (1, 2, 4, 64)]
    where = rehearsal_origin(found, study="s", system="t", commit="c", command="dlscale run weak-scaling")
    words = {"title": "one", "subtitle": "two", "small_print": ["three"], "provenance": where}
    first = draw_rehearsal(found, tmp_path / "a" / "bounds", **words)
    second = draw_rehearsal(found, tmp_path / "b" / "bounds", **words)
    assert [path.suffix for path in first] == [".png", ".pdf", ".svg", ".csv"]
    assert [path.read_bytes() for path in first] == [path.read_bytes() for path in second]
    lines = first[-1].read_text().splitlines()
    assert lines[0].startswith("num_nodes,num_ranks,compute_seconds,wire_seconds")
    assert lines[3] == f"4,4,0.01,0.01875,0.533333,0.347826,s,{where.data_hash},c,"
    assert lines[1].endswith(",dlscale run weak-scaling")
    assert all(where.line().encode() in path.read_bytes() for path in first[:-1])
    assert (
        where.data_hash
        != rehearsal_origin(found[1:], study="s", system="t", commit="c", command="d").data_hash
    )
