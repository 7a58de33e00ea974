"""Times of exchanges against closed forms written down again here, and against single messages followed one by one."""

import math
from dataclasses import replace

import pytest

from dlscale.analysis.predict.exchange import NetworkExchange, cost, phases_of
from dlscale.analysis.predict.network import Groups, Machine, between_gpus, network_of
from dlscale.base.errors import UsageError
from dlscale.benchmarks.systems.system import load_system
from tests.analysis.made_scenarios import NETWORK

B, L, G, M = 8e9, 3e-6, 2e-11, 1e11
RATES = {"node_bytes_per_second": B, "node_memory_bytes_per_second": M}
SWITCH = replace(NETWORK, num_nodes=10_000, latency_seconds=L, reduce_seconds_per_byte=G, **RATES)
N = 25 << 20


def seconds(algorithm, num_nodes, num_bytes=N, network=SWITCH, **more):
    exchange = NetworkExchange(algorithm=algorithm, num_nodes=num_nodes, **more)
    return cost(network, exchange).of(num_bytes)


@pytest.mark.parametrize("num_nodes", [2, 4, 64, 1024, 8192])
@pytest.mark.parametrize("num_bytes", [1, 4096, N])
def test_closed_forms(num_nodes, num_bytes):
    p, n, log = num_nodes, num_bytes, math.log2(num_nodes)
    once = (p - 1) / p * n
    expected = {
        "ring": 2 * (p - 1) * L + 2 * once / B + once * G,
        "recursive_doubling": log * (L + n / B + n * G),
        "halving_doubling": 2 * log * L + 2 * once / B + once * G,
    }
    for algorithm, closed in expected.items():
        assert seconds(algorithm, p, n) == pytest.approx(closed, rel=0.005)


@pytest.mark.parametrize(("workers", "servers"), [(1, 1), (64, 1), (1024, 16), (8192, 7)])
def test_servers_on_a_star_are_limited_by_their_links(workers, servers):
    at_server = workers * N / servers
    closed = 2 * L + 2 * max(at_server, N) / B + at_server * G
    assert seconds("parameter_servers", workers, num_servers=servers) == pytest.approx(closed, rel=0.005)


def test_a_single_node_sends_nothing_and_several_ranks_copy():
    assert seconds("ring", 1) == 0
    assert seconds("ring", 1, ranks_per_node=4) == pytest.approx(8 * N / M)
    with pytest.raises(UsageError, match=r"node\.memory_bandwidth"):
        seconds("ring", 2, ranks_per_node=2, network=replace(SWITCH, node_memory_bytes_per_second=None))


def test_ranks_that_exchange_from_gpu_to_gpu_take_its_links():
    machine = load_system("aurora")
    network = between_gpus(network_of(Machine(machine)), machine)
    assert seconds("ring", 1, ranks_per_node=12, network=network) == pytest.approx(2 * 11 / 12 * N / 15e9)
    assert network.reduce_seconds_per_byte == 3 / 1e12  # read, read and written in a tile's memory
    unstated = machine.devices.model_copy(update={"link": None})
    without = machine.model_copy(update={"devices": unstated})
    assert between_gpus(network_of(Machine(machine)), without) == network_of(Machine(machine))


def reached(phases, num_nodes):
    """Which nodes' gradients each node has after the phases."""
    known = [{node} for node in range(num_nodes)]
    for phase in phases:
        if phase.num_steps > 1:  # all that is sent goes round
            known = [set().union(*known)] * num_nodes
            continue
        before = [set(own) for own in known]
        for source, target in zip(phase.sources, phase.targets, strict=True):
            known[target] |= before[source]
    return known


@pytest.mark.parametrize("algorithm", ["ring", "recursive_doubling", "halving_doubling"])
@pytest.mark.parametrize("num_nodes", [2, 3, 5, 8, 13])
def test_every_gradient_reaches_every_node_for_any_number_of_nodes(algorithm, num_nodes):
    phases = phases_of(NetworkExchange(algorithm=algorithm, num_nodes=num_nodes))
    assert reached(phases, num_nodes) == [set(range(num_nodes))] * num_nodes


def test_groups_limit_what_crosses_them():
    """Halving-doubling over consecutive nodes crosses the same pair of groups in its long-distance rounds."""
    rates = {"group_bytes_per_second": 6e9, "pair_bytes_per_second": 2e9, "extra_latency_seconds": 1e-6}
    groups = Groups(num_groups=4, nodes_per_group=4, **rates)
    network = replace(SWITCH, num_nodes=16, groups=groups)
    inside = cost(network, NetworkExchange(algorithm="halving_doubling", num_nodes=4))
    assert inside == cost(SWITCH, NetworkExchange(algorithm="halving_doubling", num_nodes=4))
    exchange = NetworkExchange(algorithm="halving_doubling", num_nodes=8)
    minimal = cost(network, replace(exchange, routing="minimal"))
    adaptive = cost(network, exchange)
    # The last halving and the first doubling cross: 4 nodes of a group send n/8 each.
    near, far = 0.75 * 2 / B + 7 / 8 * G, 4 / 8
    assert minimal.seconds_per_byte == pytest.approx(near + 2 * far / 2e9)
    assert adaptive.seconds_per_byte == pytest.approx(near + 2 * far / 6e9)
    assert adaptive.seconds == pytest.approx(6 * L + 2e-6)
    assert cost(network, replace(exchange, placement="scattered", seed=1)) != adaptive


def test_more_nodes_than_the_machine_has_are_refused():
    with pytest.raises(UsageError, match="10001 nodes, servers' nodes included, on switch, which has 10000"):
        seconds("parameter_servers", 10_000, num_servers=1)


def test_the_network_of_a_system_file():
    cori = network_of(Machine(load_system("cori")))
    assert (cori.num_nodes, cori.node_bytes_per_second, cori.latency_seconds) == (9688, 8e9, 1.3e-6)
    assert cori.groups.pair_bytes_per_second == pytest.approx(77.9e9, rel=1e-3)  # a bisection of 45 TB/s
    assert cori.rate_factors == (7.5 / 8, 1.25)
    assert cori.latency_factors == (1.0, pytest.approx(31 / 1.3))
    assert cori.reduce_seconds_per_byte == pytest.approx(3 / (102 * 2**30))


@pytest.mark.parametrize(
    ("system", "key"),
    [("local", r"\[fabric\]"), ("frontier", r"fabric\.latency"), ("piz-daint", r"node\.memory_bandwidth")],
)
def test_a_number_that_no_file_states_is_an_error_that_names_its_key(system, key):
    with pytest.raises(UsageError, match=key):
        network_of(Machine(load_system(system)))
