"""Fitted networks against made-up truths with 2 % noise, and what is no calibration."""

from dataclasses import replace

import numpy as np
import pytest

from dlscale.analysis.predict.calibration import CalibrationPoint, calibrated
from dlscale.analysis.predict.exchange import NetworkExchange, cost
from dlscale.base.errors import UsageError
from tests.analysis.made_scenarios import NETWORK

TRUTH = replace(NETWORK, node_bytes_per_second=1.2e9, latency_seconds=30e-6, reduce_seconds_per_byte=3e-10)
START = replace(TRUTH, node_bytes_per_second=8e9, latency_seconds=2e-6, reduce_seconds_per_byte=1e-10)
SIZES = (1 << 10, 1 << 14, 1 << 18, 1 << 22, 25 << 20)
ALGORITHMS = ("ring", "recursive_doubling", "halving_doubling")


def exchange_of(algorithm, num_nodes, ranks_per_node=1):
    return NetworkExchange(algorithm=algorithm, num_nodes=num_nodes, ranks_per_node=ranks_per_node)


def points(*exchanges, sizes=SIZES, noise=0.02, seed=1, truth=TRUTH):
    rng = np.random.default_rng(seed)
    return [
        CalibrationPoint(
            exchange=exchange,
            num_bytes=size,
            seconds=cost(truth, exchange).of(size) * np.exp(rng.normal(0, noise)),
        )
        for exchange in exchanges
        for size in sizes
    ]


@pytest.mark.parametrize("seed", range(5))
def test_a_network_is_found_from_two_and_four_nodes_and_predicts_a_thousand(seed):
    kinds = [exchange_of(algorithm, num_nodes) for algorithm in ALGORITHMS for num_nodes in (2, 4)]
    found = calibrated(points(*kinds, seed=seed), START, source="weak-scaling")
    network = found.network
    assert network.latency_seconds == pytest.approx(TRUTH.latency_seconds, rel=0.05)
    assert network.node_bytes_per_second == pytest.approx(TRUTH.node_bytes_per_second, rel=0.10)
    assert network.reduce_seconds_per_byte == pytest.approx(TRUTH.reduce_seconds_per_byte, rel=0.30)
    assert abs(found.held_out_error) < 0.1  # it is one noisy point
    assert found.held_out.exchange.num_nodes == 4
    assert found.scatter == pytest.approx(0.02, rel=0.5)
    predicts(network, exchange_of("ring", 1000))
    predicts(network, exchange_of("halving_doubling", 1000))


def predicts(network, far):
    """The large exchange takes on the network what it takes in truth."""
    predicted, true = (cost(net, far).of(25 << 20) for net in (network, TRUTH))
    assert predicted == pytest.approx(true, rel=0.06)


def kinds_of(found):
    """How each number is known, and from where."""
    return {origin.input: f"{origin.kind}: {origin.source}" for origin in found.network.origins}


def test_what_a_ring_leaves_open_does_not_change_what_it_predicts():
    found = calibrated(points(exchange_of("ring", 2), exchange_of("ring", 4)), START, source="weak-scaling")
    predicts(found.network, exchange_of("ring", 64))
    assert "10 exchanges of weak-scaling" in kinds_of(found)["latency of a message"]
    assert found.network.num_nodes == START.num_nodes


def test_what_horovods_cycle_takes_is_no_latency_of_the_network():
    """Half of a cycle of 1 ms, and two agreements of log2 P messages, are more than small exchanges themselves."""
    measured = [
        replace(
            point,
            seconds=point.seconds + 0.5e-3 + 2 * (point.exchange.num_nodes // 2) * 30e-6,
            cycle_seconds=1e-3,
        )
        for point in points(exchange_of("halving_doubling", 2), exchange_of("halving_doubling", 4), noise=0)
    ]
    found = calibrated(measured, START, source="s").network
    assert found.latency_seconds == pytest.approx(TRUTH.latency_seconds, rel=0.05)
    predicts(found, exchange_of("halving_doubling", 64))


def test_the_bands_hold_the_truth():
    inside = []
    for seed in range(20):
        network = calibrated(
            points(exchange_of("ring", 2), exchange_of("recursive_doubling", 4), seed=seed), START, source="s"
        ).network
        low, high = network.latency_factors
        inside.append(low <= TRUTH.latency_seconds / network.latency_seconds <= high)
        assert network.rate_factors[0] < 1 < network.rate_factors[1]
    assert np.mean(inside) >= 0.85


def test_the_largest_point_is_judged_by_the_others():
    """Whatever it was, it does not enter its own prediction."""
    measured = points(*(exchange_of("ring", num_nodes) for num_nodes in (2, 4, 8)), noise=0)
    assert calibrated(measured, START, source="s").held_out_error == pytest.approx(0, abs=0.01)
    far = [
        replace(point, seconds=2 * point.seconds) if point.exchange.num_nodes == 8 else point
        for point in measured
    ]
    found = calibrated(far, START, source="s")
    assert found.held_out_error == pytest.approx(-0.5, abs=0.01)
    assert (found.held_out.num_bytes, found.held_out.exchange.num_nodes) == (25 << 20, 8)


def test_what_is_not_to_be_trusted_says_why():
    measured = points(*(exchange_of("ring", num_nodes) for num_nodes in (2, 4)), noise=0)
    found = calibrated(measured, START, source="s")
    assert (found.doubts(4), found.doubts(256)) == ((), ())
    assert found.doubts(257) == ("257 nodes are more than 64 times the 4 of the calibration",)
    (doubt,) = found._replace(held_out_error=-0.2).doubts(2)
    assert "wrong by -20 % for its largest point" in doubt


def test_on_one_number_of_nodes_the_largest_message_is_held_out():
    found = calibrated(points(exchange_of("ring", 4), noise=0), START, source="s")
    assert found.held_out.num_bytes == 25 << 20
    assert abs(found.held_out_error) < 0.05


@pytest.mark.parametrize(
    ("made", "problem"),
    [
        ([], "no exchange was measured"),
        (points(exchange_of("ring", 2), sizes=SIZES[:2]), "2 measured points"),
        (points(exchange_of("ring", 1, 2), sizes=SIZES), "within one node"),
        (
            points(*(exchange_of("ring", n) for n in (2, 3, 4, 5)), sizes=SIZES[:1]),
            "no 3 points of two sizes",
        ),
        ([replace(point, seconds=0.0) for point in points(exchange_of("ring", 2))], "took 0.0 s"),
        ([replace(point, seconds=float("nan")) for point in points(exchange_of("ring", 2))], "took nan s"),
    ],
)
def test_what_is_no_calibration_is_one_line(made, problem):
    with pytest.raises(UsageError, match=problem) as caught:
        calibrated(made, START, source="weak-scaling")
    assert "\n" not in str(caught.value)
