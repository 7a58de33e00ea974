"""SimGrid's flows versus closed forms, versus programs that SimGrid replays message by message, and versus LogGP."""

import dataclasses
import subprocess

import numpy as np
import pytest

from dlscale.analysis.predict import simgrid_engine
from dlscale.analysis.predict.engine import NetworkExchange
from dlscale.analysis.predict.loggp import LogGP
from dlscale.analysis.predict.network import Groups, Network
from dlscale.analysis.predict.platform_xml import platform_xml
from dlscale.analysis.predict.simgrid_engine import SimGrid
from dlscale.analysis.predict.smpi import replayed_seconds
from dlscale.base.errors import UsageError

MB = 10**6
RATE, LATENCY, GAMMA = 10e9, 2e-6, 1e-10
STAR = Network(
    name="star",
    num_nodes=2048,
    node_bytes_per_second=RATE,
    latency_seconds=LATENCY,
    node_memory_bytes_per_second=100e9,
    reduce_seconds_per_byte=0.0,
)
# Eight nodes of a group can send more than the group, and that more than a pair of groups.
GROUPS = Groups(
    num_groups=8,
    nodes_per_group=8,
    group_bytes_per_second=20e9,
    pair_bytes_per_second=5e9,
    extra_latency_seconds=1e-6,
)
DRAGONFLY = dataclasses.replace(STAR, name="dragonfly", num_nodes=64, groups=GROUPS)


def exchange(algorithm, num_nodes, **more):
    return NetworkExchange(algorithm=algorithm, num_nodes=num_nodes, **more)


def seconds(network, engine=None, size=25 * MB, **more):
    return (engine or SimGrid()).exchange_seconds(network, exchange(**more), [size])[0]


@pytest.mark.requires("simgrid")
@pytest.mark.parametrize("size", [2, 64])
@pytest.mark.parametrize("gamma", [0.0, GAMMA])
def test_closed_forms_on_a_star(size, gamma):
    network = dataclasses.replace(STAR, reduce_seconds_per_byte=gamma)
    engine, n, share = SimGrid(), 25 * MB, (size - 1) / size
    moved = 2 * share * n / RATE + share * n * gamma
    log = np.log2(size)
    assert seconds(network, engine, algorithm="ring", num_nodes=size) == pytest.approx(
        moved + 2 * (size - 1) * LATENCY, rel=0.005
    )
    assert seconds(network, engine, algorithm="halving_doubling", num_nodes=size) == pytest.approx(
        moved + 2 * log * LATENCY, rel=0.005
    )
    assert seconds(network, engine, algorithm="recursive_doubling", num_nodes=size) == pytest.approx(
        log * (n / RATE + n * gamma + LATENCY), rel=0.005
    )
    for servers in (1, 4):
        busiest = max(size / servers, 1) * n  # a server's share of all, or all of a worker's
        assert seconds(
            network, engine, algorithm="parameter_servers", num_nodes=size, num_servers=servers
        ) == pytest.approx(2 * busiest / RATE + size / servers * n * gamma + 2 * LATENCY, rel=0.005)


@pytest.mark.requires("simgrid")
def test_time_is_affine_in_bytes_and_one_simulation_serves_all_sizes(monkeypatch):
    engine = SimGrid()
    asked = []
    monkeypatch.setattr(simgrid_engine, "_ask", lambda _: asked.append(1) or {"seconds": [1.0]})
    times = engine.exchange_seconds(STAR, exchange("ring", 4), [0, MB, 2 * MB])
    assert engine.exchange_seconds(STAR, exchange("ring", 4), [MB]) == times[1:2]
    assert times[0] == pytest.approx(6 * LATENCY)
    assert times[2] - times[1] == pytest.approx(times[1] - times[0])
    assert len(asked) == 1
    # What is faster as a whole, or answers sooner, needs no other simulation.
    faster = dataclasses.replace(STAR, node_bytes_per_second=2 * RATE, latency_seconds=LATENCY / 2)
    assert engine.exchange_seconds(faster, exchange("ring", 4), [2 * MB])[0] == pytest.approx(times[2] / 2)
    assert len(asked) == 1
    engine.exchange_seconds(DRAGONFLY, exchange("ring", 4), [MB])
    assert len(asked) == 2


@pytest.mark.requires("simgrid", "smpirun")
@pytest.mark.parametrize(
    ("algorithm", "smpi", "size"),
    [("ring", "lr", 64), ("halving_doubling", "rab_rdb", 64), ("halving_doubling", "rab_rdb", 48)],
)
@pytest.mark.parametrize("routing", ["adaptive", "minimal"])
def test_a_program_that_is_replayed_message_by_message_takes_as_long(algorithm, smpi, size, routing):
    """Also where groups are congested, which says at what distance the large messages go."""
    # Beyond a power of two some ranks of a phase are late, and others need not wait for them.
    for network in (STAR, DRAGONFLY) if size & (size - 1) == 0 else (STAR,):
        job = exchange(algorithm, size, routing=routing)
        replayed = replayed_seconds(network, job, 24 * MB, selector=smpi)
        assert SimGrid().exchange_seconds(network, job, [24 * MB]) == pytest.approx([replayed], rel=0.01)


def loggp_ring(size, n):
    """The end of a ring's last rank, message by message."""
    time = np.zeros(size)
    for _ in range(2 * (size - 1)):
        # A rank goes on when its message has left and its neighbour's has come.
        time = np.maximum(time + n / size / RATE, np.roll(time, 1) + LATENCY + n / size / RATE)
    return time.max()


def loggp_halving_doubling(size, n):
    time, ranks = np.zeros(size), np.arange(size)
    distances = 2 ** np.arange(int(np.log2(size)))
    for distance in [*distances, *distances[::-1]]:
        time = np.maximum(time, time[ranks ^ distance]) + LATENCY + n / 2 / distance / RATE
    return time.max()


@pytest.mark.requires("simgrid")
@pytest.mark.parametrize("size", [64, 256])
@pytest.mark.parametrize("n", [64 * 1024, 25 * MB])
def test_without_congestion_it_is_loggp(size, n):
    engine = SimGrid()
    assert seconds(STAR, engine, n, algorithm="ring", num_nodes=size) == pytest.approx(
        loggp_ring(size, n), rel=0.01
    )
    assert seconds(STAR, engine, n, algorithm="halving_doubling", num_nodes=size) == pytest.approx(
        loggp_halving_doubling(size, n), rel=0.01
    )


ALL = [
    *({"algorithm": name, "num_nodes": 24} for name in ("ring", "two_level_ring", "tree")),
    *({"algorithm": name, "num_nodes": 32} for name in ("recursive_doubling", "halving_doubling")),
    {"algorithm": "parameter_servers", "num_nodes": 24, "num_servers": 4},
    {"algorithm": "ring", "num_nodes": 12, "ranks_per_node": 4},
]


@pytest.mark.requires("simgrid")
@pytest.mark.parametrize("more", ALL, ids=lambda it: f"{it['algorithm']}-{it['num_nodes']}")
@pytest.mark.parametrize("placement", ["packed", "scattered"])
def test_the_closed_forms_of_the_fullest_link_are_as_long(more, placement):
    """Nearly, where flows share several links that are full: there the closed form is too low."""
    for routing in ("adaptive", "minimal"):
        job = exchange(**more, placement=placement, routing=routing)
        assert SimGrid().method(job) == "flows"
        (flows,), (link,) = (
            engine.exchange_seconds(DRAGONFLY, job, [25 * MB]) for engine in (SimGrid(), LogGP())
        )
        assert 0.85 * flows < link < 1.001 * flows


@pytest.mark.requires("simgrid")
def test_too_many_flows_are_said_to_be_of_the_fullest_link():
    job = exchange("parameter_servers", 1025, num_servers=16)
    assert SimGrid().method(job) == "fullest link"
    assert SimGrid().exchange_seconds(STAR, job, [MB]) == LogGP().exchange_seconds(STAR, job, [MB])
    with pytest.raises(
        UsageError, match="slow nodes with 16400 flows of the job at once: SimGrid takes up to 16384"
    ):
        SimGrid(slow_nodes={1: 0.5}).exchange_seconds(STAR, job, [MB])


@pytest.mark.requires("simgrid")
def test_a_pair_of_groups_is_a_bottleneck_by_direct_links_only():
    """Eight nodes of one group send to eight of the next."""
    job = {"algorithm": "recursive_doubling", "num_nodes": 16}
    n = 25 * MB
    within = 3 * (n / RATE + LATENCY)
    further = LATENCY + GROUPS.extra_latency_seconds
    for routing, rate in (("minimal", 5e9), ("adaptive", 20e9)):
        assert seconds(DRAGONFLY, **job, routing=routing) == pytest.approx(within + 8 * n / rate + further)


@pytest.mark.requires("simgrid")
def test_a_slow_link_slows_the_ring_and_other_traffic_does():
    job = {"algorithm": "ring", "num_nodes": 16}
    alone = seconds(DRAGONFLY, **job)
    assert seconds(DRAGONFLY, SimGrid(slow_nodes={5: 0.5}), **job) == pytest.approx(2 * alone, rel=0.01)
    assert seconds(DRAGONFLY, SimGrid(slow_nodes={40: 0.5}), **job) == alone
    # 64 flows of others, of which many leave and enter the groups that the job spans.
    scattered = {**job, "placement": "scattered"}
    busy = seconds(DRAGONFLY, SimGrid(background_flows=64), **scattered)
    assert busy > 1.2 * seconds(DRAGONFLY, **scattered)


@pytest.mark.requires("simgrid")
def test_what_disturbs_the_network_is_in_the_version():
    """Answers are remembered by it."""
    disturbed = SimGrid(background_flows=3, slow_nodes={5: 0.5})
    assert disturbed.version == f"{SimGrid().version}, 3 background flows, node 5 at 0.5 of its rate"
    with pytest.raises(UsageError, match="node 64 is to be slow; dragonfly has nodes 0 to 63"):
        seconds(DRAGONFLY, SimGrid(slow_nodes={64: 0.5}), algorithm="ring", num_nodes=2)


def test_a_platform_has_the_nodes_that_take_part_and_no_others():
    text = platform_xml(DRAGONFLY, [0, 1, 2, 9, 17], routing="minimal")
    assert 'radical="0-2"' in text
    assert 'radical="9"' in text
    assert text.count("<zoneRoute ") == 3
    assert 'id="p0_1" bandwidth="5000000000.0Bps"' in text
    assert 'id="p0_1" bandwidth="20000000000.0Bps"' in platform_xml(DRAGONFLY, [0, 9], routing="adaptive")


@pytest.mark.requires("simgrid")
@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"background_flows": -1}, "give 0 or more"),
        ({"slow_nodes": {3: 0.0}}, "node 3 at 0 of its link's rate"),
    ],
)
def test_what_cannot_be_simulated(wrong, said):
    with pytest.raises(UsageError, match=said):
        SimGrid(**wrong)


@pytest.mark.requires("simgrid")
def test_background_needs_nodes_outside_the_job():
    with pytest.raises(UsageError, match="1 of its nodes are outside the job"):
        seconds(DRAGONFLY, SimGrid(background_flows=1), algorithm="ring", num_nodes=63)


def test_where_it_is_not_installed_the_reason_says_how(monkeypatch, tmp_path):
    monkeypatch.setattr(simgrid_engine, "_DISTRIBUTION", tmp_path)
    simgrid_engine._binding.cache_clear()
    try:
        problem = simgrid_engine.available()
        with pytest.raises(UsageError, match="apt-get install"):
            SimGrid()
    finally:
        simgrid_engine._binding.cache_clear()
    assert problem == f"SimGrid's Python binding is not installed; {simgrid_engine.INSTALL}"


def test_a_binding_of_another_python_runs_in_that_python(monkeypatch, tmp_path):
    (tmp_path / "simgrid.cpython-399-x86_64-linux-gnu.so").touch()
    monkeypatch.setattr(simgrid_engine, "_DISTRIBUTION", tmp_path)
    monkeypatch.setattr(simgrid_engine.Path, "exists", lambda _: True)
    simgrid_engine._binding.cache_clear()
    try:
        assert simgrid_engine._binding().interpreter == "/usr/bin/python3.99"
    finally:
        simgrid_engine._binding.cache_clear()


def test_what_cannot_be_loaded_is_one_line(tmp_path):
    extension = tmp_path / "simgrid.cpython-311-x86_64-linux-gnu.so"
    extension.write_text("no extension")
    binding = simgrid_engine._Binding(extension=extension, interpreter=simgrid_engine.sys.executable)
    with pytest.raises(UsageError, match=r"failed: ImportError: .*; install it again: apt-get") as caught:
        simgrid_engine._version(binding)
    assert "\n" not in str(caught.value)


@pytest.mark.requires("simgrid")
def test_a_crash_of_simgrid_is_its_own_first_line():
    """It is no Python error, and goes on with a page of addresses."""
    pattern = {"sources": ["n-0"], "targets": ["n-9"], "num_bytes": 1}
    question = {"platform": platform_xml(STAR, [0, 1]), "links": {}, "background": [], "patterns": [pattern]}
    with pytest.raises(UsageError, match="Host not found: 'n-9'") as caught:
        simgrid_engine._ask(question)
    assert "\n" not in str(caught.value)


def test_no_answer_in_time_is_one_line(monkeypatch):
    def never(*_, timeout, **__):
        raise subprocess.TimeoutExpired("python", timeout)

    monkeypatch.setattr(simgrid_engine.subprocess, "run", never)
    binding = simgrid_engine._Binding(extension=simgrid_engine.Path("x"), interpreter="python")
    with pytest.raises(UsageError, match="no answer in 5 s; ask for fewer nodes, or use --engine loggp"):
        simgrid_engine._run_driver(binding, {}, time_limit=5.0)
