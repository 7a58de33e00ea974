"""Predicted points against arithmetic by hand, and what other inputs change."""

from dataclasses import replace

import pytest

from dlscale.analysis.predict.network import Groups
from dlscale.analysis.predict.noise import Noise
from dlscale.analysis.predict.prediction import predict_curve, predict_point, prediction_records
from dlscale.analysis.predict.show import PREDICTION, study_of
from dlscale.base.errors import UsageError
from tests.analysis.made_scenarios import NETWORK, PROFILE, scenario


def test_without_noise_a_point_is_arithmetic():
    point = predict_point(scenario(), 4)
    ring = 6 * 10e-6 + 2 * 0.75 * 0.1
    assert point.step_seconds.center == pytest.approx(0.32 + ring)
    assert point.samples_per_second.center == pytest.approx(40 / (0.32 + ring))
    assert point.efficiency.center == point.efficiency.low == point.efficiency.high
    assert point.efficiency.center == pytest.approx(0.32 / (0.32 + ring))
    assert sum(point.parts.values()) == pytest.approx(1 - point.efficiency.center)
    assert point.parts["exposed communication"] == pytest.approx(ring / (0.32 + ring))


@pytest.mark.parametrize("backend", ["gloo", "horovod", "mpi_ps"])
def test_parts_add_up_where_each_replicate_draws_its_pace(backend):
    """A pace between a quarter and four times is no waiting: nobody is slower than the others by it."""
    drawn = replace(PROFILE, time_factors=(0.25, 4.0))
    point = predict_point(scenario(backend, profile=drawn, noise=Noise(variation=(0.01, 0.1))), 64)
    assert sum(point.parts.values()) == pytest.approx(1 - point.efficiency.center, abs=1e-9)
    steady = predict_point(scenario("none", profile=drawn), 64)
    assert steady.parts["stragglers"] == pytest.approx(0, abs=1e-9)


def test_fewer_workers_than_servers_fill_their_own_links():
    """The documents' formula, 2 max(P/S, 1) n/B: 2 P n/(S B) would be a quarter of it."""
    point = predict_point(scenario("mpi_ps", num_servers=8), 2)
    assert point.step_seconds.center - 0.32 == pytest.approx(2 * 0.1 + 2 * 10e-6, rel=1e-3)


def test_one_rank_and_no_exchange_are_ideal():
    assert predict_point(scenario(), 1).efficiency.center == pytest.approx(1)
    assert predict_point(scenario("none"), 64).efficiency.center == pytest.approx(1)
    noisy = scenario("none", noise=Noise(variation=(0.1, 0.1)))
    assert predict_point(noisy, 64).efficiency.center == pytest.approx(1, abs=0.01)  # nobody waits


def test_servers_take_time_that_grows_with_ranks_and_a_ring_does_not():
    ring, servers = (predict_curve(scenario(name), [4, 64, 512]).points for name in ("gloo", "mpi_ps"))
    assert servers[2].step_seconds.center - 0.32 == pytest.approx(2 * 512 * 0.1, rel=0.01)
    exposed = [point.step_seconds.center - 0.32 for point in ring]
    assert exposed[2] < 1.5 * exposed[0]


def test_asynchronous_servers_are_limited_by_their_link():
    few = scenario("grpc_ps", options={"asynchronous": True})
    assert predict_point(few, 1).step_seconds.center == pytest.approx(0.32 + 0.2, rel=0.001)
    assert predict_point(few, 64).step_seconds.center == pytest.approx(64 * 0.1, rel=0.001)
    assert predict_point(few, 2).num_servers == 1


def test_horovods_ranks_agree_before_an_exchange():
    cycle = {"options": {"cycle_time_ms": 1e-3}}
    horovod, mpi = predict_point(scenario("horovod", **cycle), 64), predict_point(scenario("mpi"), 64)
    later = horovod.step_seconds.center - mpi.step_seconds.center
    assert later == pytest.approx(2 * 6 * 10e-6, abs=2e-6)  # and half a cycle of a microsecond


def test_strong_scaling_divides_the_batch_but_not_the_update():
    point = predict_point(scenario("none", scaling_mode="strong", batch=40), 4)
    assert point.local_batch == 10
    whole = 4 * 0.3 + 0.02
    assert point.efficiency.center == pytest.approx(whole / (4 * 0.32))
    assert point.parts["batch effect"] == pytest.approx((0.32 - whole / 4) / 0.32)


@pytest.mark.parametrize(
    ("num_nodes", "changes", "said"),
    [
        (8192, {}, "8192 nodes on switch, which has 4096"),
        (4096, {"backend": "mpi_ps"}, r"4097 nodes \(1 servers included\)"),
        (3, {"scaling_mode": "strong", "batch": 64}, "global batch 64 is not a multiple of 3 ranks"),
    ],
)
def test_sizes_that_cannot_be_are_refused_before_anything_is_computed(num_nodes, changes, said):
    with pytest.raises(UsageError, match=said):
        predict_curve(scenario(**changes), [1, num_nodes])


def test_bands_have_what_sources_do_not_agree_on():
    wide = replace(NETWORK, rate_factors=(0.5, 2.0))
    point = predict_point(scenario(network=wide), 64)
    lowest, highest = (0.32 / (0.32 + 2 * 63 / 64 * 0.1 * factor + 126e-5) for factor in (2, 0.5))
    assert lowest < point.efficiency.low < point.efficiency.center < point.efficiency.high < highest
    grouped = replace(
        NETWORK,
        groups=Groups(
            num_groups=64,
            nodes_per_group=64,
            group_bytes_per_second=64e9,
            pair_bytes_per_second=1e9,
            extra_latency_seconds=0.0,
        ),
    )
    # Halving and doubling over two groups of consecutive nodes: their direct links carry all of it, or are avoided.
    over = scenario("mpi", network=grouped)
    point = predict_point(over, 128)
    assert point.efficiency.high - point.efficiency.low > 0.05


def test_the_same_question_has_the_same_answer():
    noisy = scenario(noise=Noise(variation=(0.01, 0.1)))
    assert predict_point(noisy, 64) == predict_point(noisy, 64)
    assert predict_point(noisy, 64) != predict_point(replace(noisy, seed=1), 64)


def test_sharding_moves_the_bytes_of_an_allreduce_and_half_as_many_again_and_cuts_the_update():
    seconds = {
        shard: predict_point(scenario(shard=shard), 8).step_seconds.center
        for shard in ("none", "optimizer", "parameters")
    }
    allreduce = seconds["none"] - 0.32
    assert allreduce == pytest.approx(2 * 7 / 8 * 0.1 + 14 * 10e-6)
    assert seconds["optimizer"] == pytest.approx(0.3 + allreduce + 0.02 / 8)
    assert seconds["parameters"] == pytest.approx(0.3 + 1.5 * allreduce + 0.02 / 8)
    lost = predict_point(scenario(shard="parameters"), 8)
    assert sum(lost.parts.values()) == pytest.approx(1 - lost.efficiency.center)
    assert lost.parts["update of a part"] == pytest.approx(-0.02 * 7 / 8 / seconds["parameters"])


def test_one_rank_has_nothing_to_shard():
    points = [predict_point(scenario(shard=shard), 1) for shard in ("none", "parameters")]
    assert points[0].step_seconds == points[1].step_seconds


def test_predictions_of_a_shard_are_a_curve_of_their_own():
    curves = [predict_curve(scenario(shard=shard), [2]) for shard in ("none", "parameters")]
    frame = PREDICTION.of(study_of(list(prediction_records(curves))))
    assert list(frame["curve"]) == ["gloo", "gloo, parameters sharded"]


def test_a_ring_has_the_same_line_whoever_stands_next_to_it():
    """2 (P - 1) / P of 100 MB at 1 GB/s; a server's link carries all workers' gradients there and back."""
    alone, beside = (
        {
            record.backend: record
            for record in prediction_records([predict_curve(scenario(name), [4]) for name in names])
        }
        for names in (["gloo"], ["gloo", "mpi_ps"])
    )
    assert alone["gloo"].wire_seconds == beside["gloo"].wire_seconds == pytest.approx(0.15)
    assert beside["mpi_ps"].wire_seconds == pytest.approx(0.8)
    assert (alone["gloo"].may_be_fastest, beside["gloo"].may_be_fastest) == (None, True)
    assert not beside["mpi_ps"].may_be_fastest
