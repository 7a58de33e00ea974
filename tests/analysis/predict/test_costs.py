"""Costs of software: by frequency, by message and byte, on top of operations, and the same draws on every size."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from dlscale.analysis.predict.costs import Coordination, Serving, step_cost, table_of
from dlscale.analysis.predict.measured import fixed_cost
from dlscale.analysis.predict.network import Machine, completed, network_of
from dlscale.analysis.predict.noise import Noise
from dlscale.analysis.predict.prediction import predict_curve, predict_point
from dlscale.analysis.predict.profile import at_batch
from dlscale.analysis.predict.public_profiles import public_profile
from dlscale.benchmarks.records.record import Quantiles, SecondBatch, StepProfile
from dlscale.benchmarks.systems.system import load_system
from tests.analysis.made_scenarios import PROFILE, scenario

CORI = load_system("cori")


def test_a_step_costs_more_clocks_on_a_slower_processor():
    steps, most = table_of("costs")["steps"], table_of("costs")["clocks"]["high"]
    (here,) = [it["seconds"] for it in steps if (it["workload"], it["framework"]) == ("hep_cnn", "torch")]
    low, high = step_cost(CORI, "hep_cnn", "torch", device="cpu")
    assert (low, high) == pytest.approx((1.5 * here[0], 1.5 * most * here[1]))  # 2.1 and 1.4 GHz
    assert step_cost(CORI, "hep_cnn", "torch", device="gpu") == (0.0, high)  # launches overlap with kernels


def test_a_small_network_takes_what_its_calls_take_and_not_only_its_operations():
    profile = public_profile(CORI, "hep_cnn", "tiny", "torch", device="cpu", ranks_per_node=1)
    assert profile.fixed_share > 0.9
    assert profile.mean_step_seconds > 2e-3
    assert at_batch(profile, 1).mean_step_seconds > 0.9 * profile.mean_step_seconds


def test_two_batches_tell_what_a_step_takes_whatever_its_batch():
    moment = Quantiles(low=0.004, median=0.004, high=0.004)
    profile = StepProfile.model_construct(
        plain_seconds=[0.010 + 0.004 + 2 * 0.003],
        update=moment,
        second=SecondBatch(local_batch=8, seconds=[0.010 + 0.004 + 8 * 0.003]),
    )
    assert fixed_cost(profile, 2) == pytest.approx(0.010)
    assert fixed_cost(profile.model_copy(update={"second": None}), 2) is None


def test_a_node_of_many_cores_computes_few_samples_as_long_as_more():
    """4 samples of 30 ms as long as 8; the update is as it was."""
    point = predict_point(
        scenario("none", profile=replace(PROFILE, least_batch=(8, 8)), scaling_mode="strong", batch=40), 10
    )
    assert point.step_seconds.center == pytest.approx(8 * 0.03 + 0.02)


def test_horovods_rank_0_asked_every_rank_in_2018():
    """63 ranks: 4 messages of 10 us each, and a request for each tensor."""
    options = {"options": {"cycle_time_ms": 1000.0}}
    asked = Coordination(latencies=(4, 4), request_seconds=(1e-3, 1e-3))
    steps = [
        predict_point(scenario("horovod", **options, coordination=it), 64).step_seconds.center
        for it in (Coordination(latencies=(0, 0), request_seconds=(0, 0)), asked)
    ]
    expected = 63 * (4 * 10e-6 + len(PROFILE.gradients) * 1e-3)
    assert steps[1] - steps[0] == pytest.approx(expected, rel=1e-3)


def test_a_servers_processor_and_its_link_work_at_the_same_time():
    """8 workers of 100 MB: 0.2 s of a link each, there and back, and 0.3 s or 0.1 s of the processor."""
    for worker, expected in ((0.3, 8 * 0.3 + 0.2), (0.1, 8 * 0.2 + 0.1)):
        serving = Serving(
            message_seconds=(0.0, 0.0), byte_seconds=(worker / 1e8, worker / 1e8), threads=(1.0, 1.0)
        )
        point = predict_point(scenario("mpi_ps", serving=serving), 8)
        assert point.step_seconds.center - 0.32 == pytest.approx(expected, rel=1e-3)


def test_what_is_overlapped_takes_from_computing():
    profile = replace(PROFILE, gradients=(replace(PROFILE.gradients[0], num_bytes=10**7, ready_seconds=0.2),))
    still = predict_point(scenario(profile=profile), 2).step_seconds.center
    assert still == pytest.approx(0.32)  # 10 ms of exchange are over before backpropagation is
    taken = predict_point(scenario(profile=profile, contention=(1e-9, 1e-9)), 2).step_seconds.center
    assert taken - still == pytest.approx(1e-9 * 1e7)
    after = {"profile": PROFILE, "contention": (1e-9, 1e-9)}  # ready when nothing computes any more
    exposed = [predict_point(scenario(**it), 2).step_seconds.center for it in ({"profile": PROFILE}, after)]
    assert exposed[0] == pytest.approx(exposed[1])


@pytest.mark.parametrize(
    "noise",
    [Noise(variation=(0.004, 0.1)), Noise(steps=tuple(np.random.default_rng(1).lognormal(0, 0.1, 300)))],
    ids=["lognormal", "measured"],
)
def test_curves_do_not_rise_by_chance(noise):
    quiet = scenario(noise=noise, network=replace(scenario().network, node_bytes_per_second=1e15))
    points = predict_curve(quiet, [2**power for power in range(13)]).points
    for smaller, larger in pairwise(points):
        assert np.all(larger.replicates <= smaller.replicates + 1e-12), larger.num_nodes


def test_a_link_of_ethernet_has_tcps_share_and_one_of_infiniband_all():
    rates = {}
    for name in ("25 Gb/s Ethernet", "RoCE over Ethernet", "InfiniBand HDR"):
        fabric = CORI.fabric.model_copy(update={"name": CORI.fabric.name.model_copy(update={"value": name})})
        machine = Machine(CORI.model_copy(update={"fabric": fabric}))
        rates[name] = network_of(machine).node_bytes_per_second / 8e9
    assert list(rates.values()) == pytest.approx([1448 / 1514, 1, 1])


def test_steps_of_gpus_vary_as_they_were_measured_on_one():
    perlmutter = completed(load_system("perlmutter")).system
    profile = public_profile(perlmutter, "resnet50", "paper", "torch", device="gpu", ranks_per_node=4)
    assert profile.variation == (0.001, 0.017)
