"""Bounds by hand, and the reasons where there is none."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dlscale.analysis.findings.bounds import efficiency_limits, lowest_of, network_bound
from dlscale.analysis.measured import measure
from tests.made_records import CONFIGURATION, make_record

EVENTS = "events.h5:0123456789ab"
PARAMETERS = 9_634  # of hep_cnn's preset tiny
positive = st.floats(1e-6, 1e3)
BANDWIDTH = 1e7  # bytes per second: 8 ms for all gradients on 4 nodes are near


def study(*, bandwidth=BANDWIDTH, told=None, loader=400.0, num_nodes=4, backend="ring", **fields):
    """1 rank at 100 samples per second with local batch 8, a step of 80 ms; 4 ranks over a backend; the loader."""
    fabric = {} if bandwidth is None else {"bandwidth": bandwidth}
    fields = {"data": EVENTS, **fields}
    records = []
    for block in range(3):
        records.append(make_record(block=block, samples_per_second=100.0, **fields))
        many = {"num_ranks": 4, "num_nodes": num_nodes, "block": block, **fields}
        records.append(make_record(backend=backend, samples_per_second=300.0, **many))
        if loader:
            records.append(make_record(control="loader", samples_per_second=loader, **many))
    configuration = CONFIGURATION.model_copy(update={"fabric": fabric})
    update = {"configuration": configuration, "backend_settings": told or {}}
    return [record.model_copy(update=update) for record in records]


def of(records, kind):
    (found,) = efficiency_limits(measure(records)).values()
    return next(one for one in found if one.kind == kind)


def test_the_wire_by_hand():
    wire = of(study(), "wire")
    seconds = 2 * 3 / 4 * 4 * PARAMETERS / BANDWIDTH
    assert wire.seconds == pytest.approx(seconds)
    assert wire.efficiency == 1.0  # 5.8 ms hide behind 80 ms
    slow = of(study(bandwidth=BANDWIDTH / 100), "wire")
    assert slow.efficiency == pytest.approx(0.08 / (100 * seconds))
    assert "2 (n - 1) / n x 0.0385 MB of gradients at 0.0001 GB/s per node" in slow.words
    in_line = of(study(told={"overlap": False}), "wire")
    assert in_line.efficiency == pytest.approx(0.08 / (0.08 + seconds))
    half = of(study(told={"wire": "bfloat16"}), "wire")
    assert half.seconds == pytest.approx(seconds / 2)


def test_shaped_links_of_emulated_hosts_are_a_wire():
    emulated = []
    for record in study(bandwidth=BANDWIDTH / 100, evidence="emulated"):
        configuration = record.configuration.model_copy(update={"emulation": {"queue": 1e6}})
        emulated.append(record.model_copy(update={"configuration": configuration}))
    real = of(study(bandwidth=BANDWIDTH / 100), "wire")
    assert of(emulated, "wire").seconds == real.seconds > 0


def test_training_is_not_faster_than_fetching():
    assert of(study(loader=340.0), "loader").efficiency == pytest.approx(0.85)
    assert of(study(loader=9000.0), "loader").efficiency == 1.0
    assert of(study(loader=340.0), "loader").words == "4 ranks that only fetch get 340 samples/s"


def test_strong_scaling_has_less_to_hide_behind():
    records = []
    for block in range(3):
        base = {"scaling_mode": "strong", "block": block, "data": EVENTS, "global_batch": 8}
        records.append(make_record(samples_per_second=100.0, **base))
        records.append(
            make_record(num_ranks=4, local_batch=2, control="loader", samples_per_second=80.0, **base)
        )
        records.append(
            make_record(num_ranks=4, local_batch=2, backend="ring", samples_per_second=300.0, **base)
        )
    assert of(records, "loader").efficiency == pytest.approx(0.2)


@pytest.mark.parametrize(
    ("kind", "fields", "reason"),
    [
        ("wire", {"bandwidth": None}, "the system's file states no bandwidth of the network"),
        ("wire", {"num_nodes": 1}, "one node: no gradient goes over the network"),
        (
            "wire",
            {"evidence": "emulated"},
            "emulated: the nodes do not have the network that the system's file states",
        ),
        ("wire", {"backend": "none"}, "nothing is exchanged"),
        (
            "wire",
            {"num_servers": 2, "backend": "grpc_ps"},
            "servers: what goes over a link depends on where they are",
        ),
        ("wire", {"workload": "unheard_of"}, "the size of unheard_of (tiny) is not known here"),
        ("memory", {}, "one rank per node"),
        ("memory", {"num_nodes": 2}, "what memory moves was not measured on 4 ranks"),
        ("loader", {"loader": None}, "fetching alone was not measured on 4 ranks"),
        ("loader", {"data": "synthetic"}, "no data are read"),
    ],
)
def test_what_is_not_known_has_a_reason_and_no_number(kind, fields, reason):
    one = of(study(**fields), kind)
    assert (one.efficiency, one.seconds, one.words) == (None, None, reason)


def test_without_a_base_case_there_is_no_bound():
    (found,) = efficiency_limits(measure([one for one in study() if one.case.cell.num_ranks > 1])).values()
    assert lowest_of(found) is None
    assert {one.words for one in found} == {"none on 1 rank was not measured"}


@settings(max_examples=30, deadline=None)
@given(st.floats(1e3, 1e12), st.floats(1, 1e5), st.sampled_from([True, False]))
def test_bounds_lie_between_0_and_1_and_hidden_above_in_line(bandwidth, loader, overlap):
    (found,) = efficiency_limits(
        measure(study(bandwidth=bandwidth, loader=loader, told={"overlap": overlap}))
    ).values()
    known = [one.efficiency for one in found if one.efficiency is not None]
    assert lowest_of(found).efficiency == min(known)
    assert all(one.efficiency is None or 0 < one.efficiency <= 1 for one in found)
    other = of(study(bandwidth=bandwidth, told={"overlap": not overlap}), "wire")
    mine = next(one for one in found if one.kind == "wire")
    assert (mine.efficiency >= other.efficiency) if overlap else (mine.efficiency <= other.efficiency)


def network(num_nodes, compute=0.01, num_bytes=100_000_000, rate=8e9):
    return network_bound(
        num_nodes=num_nodes,
        num_ranks=num_nodes,
        compute_seconds=compute,
        gradient_bytes=num_bytes,
        bytes_per_second=rate,
    )


def test_a_case_by_hand():
    """100 MB at 8 GB/s on 4 nodes: 2 * 3/4 * 12.5 ms = 18.75 ms on the wire, beside 10 ms of computation."""
    found = network(4)
    assert found.wire_seconds == pytest.approx(0.01875)
    assert found.hidden == pytest.approx(10 / 18.75)
    assert found.exposed == pytest.approx(10 / 28.75)
    found = network(1)
    assert (found.wire_seconds, found.hidden, found.exposed) == (0.0, 1.0, 1.0)


@given(st.integers(1, 10_000), positive, st.integers(1, 10**9), st.floats(1e6, 1e12))
def test_nothing_hidden_is_never_better_and_more_nodes_never_help(nodes, compute, num_bytes, rate):
    small, large = network(nodes, compute, num_bytes, rate), network(nodes + 1, compute, num_bytes, rate)
    assert 0 < small.exposed <= small.hidden <= 1
    assert large.hidden <= small.hidden
    assert large.exposed <= small.exposed
