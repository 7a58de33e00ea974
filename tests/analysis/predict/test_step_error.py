"""How far predicted steps are from measured ones, and what that does to a band."""

from dataclasses import replace

import pytest

from dlscale.analysis.predict.backend_rules import rule_of
from dlscale.analysis.predict.calibration_records import measured_steps, step_error
from dlscale.analysis.predict.network import Network
from dlscale.analysis.predict.noise import Noise
from dlscale.analysis.predict.prediction import predict_point
from dlscale.analysis.predict.profile import Gradient, Profile
from dlscale.analysis.predict.scenario import Scenario

SITUATION = Scenario(
    network=Network(
        name="switch",
        num_nodes=64,
        node_bytes_per_second=1e9,
        latency_seconds=0.0,
        node_memory_bytes_per_second=None,
        reduce_seconds_per_byte=0.0,
    ),
    profile=Profile(
        workload="hep_cnn",
        preset="tiny",
        framework="torch",
        local_batch=8,
        forward_seconds=0.1,
        backward_seconds=0.3,
        update_seconds=0.02,
        gradients=(Gradient(name="all", num_bytes=100_000_000, ready_seconds=0.3),),
        step_seconds=(0.32,),
        evidence="emulated",
        source="a test",
    ),
    noise=Noise(),
    rule=rule_of("gloo", {}, framework="torch", num_servers=0, spare_core=False),
    scaling_mode="weak",
    batch=8,
)


def predicted(num_nodes):
    return predict_point(SITUATION, num_nodes).step_seconds.center


def test_the_error_is_the_root_mean_square_of_logarithms():
    measured = [(SITUATION, 2, predicted(2) * 1.1), (SITUATION, 4, predicted(4) / 1.1)]
    assert step_error(measured) == pytest.approx(0.0953, abs=1e-4)
    assert step_error([]) == 0


def test_a_band_has_the_error_of_the_steps_that_were_measured_and_a_point_on_one_node_none():
    wide = replace(SITUATION, step_error=0.05)
    point = predict_point(wide, 8).step_seconds
    assert point.center == pytest.approx(predicted(8), rel=0.01)
    assert point.high / point.center == pytest.approx(1.0857, rel=0.02)  # exp(1.645 * 0.05)
    alone = predict_point(wide, 1).step_seconds
    assert alone.low == alone.high


def test_trainings_of_the_same_scenario_between_nodes_are_found(make_record):
    def record(num_ranks, **fields):
        return make_record(**{"backend": "gloo", "num_ranks": num_ranks, "num_nodes": num_ranks, **fields})

    records = [
        record(2, samples_per_second=16 / 0.4),
        record(2, samples_per_second=16 / 0.5, block=1),
        record(4, samples_per_second=32 / 0.6),
        record(1, num_nodes=1),
        record(2, num_nodes=1),
        record(2, backend="ring"),
        record(2, control="exchange"),
        record(2, local_batch=4),
        record(2, backend_options={"bucket_cap_mb": 5}),
        record(4, failure="gone", block=2),
    ]
    found = [(num_nodes, round(seconds, 3)) for _, num_nodes, seconds in measured_steps(SITUATION, records)]
    assert sorted(found) == [(2, 0.45), (4, 0.6)]


def test_nodes_of_servers_are_none_of_the_workers(make_record):
    served = replace(
        SITUATION,
        rule=rule_of("grpc_ps", {}, framework="torch", num_servers=1, spare_core=False),
        num_servers=lambda _: 1,
    )
    records = [
        make_record(backend="grpc_ps", num_ranks=2, num_nodes=3, num_servers=1, samples_per_second=16 / 0.5),
        make_record(backend="grpc_ps", num_ranks=2, num_nodes=4, num_servers=2, samples_per_second=16 / 0.6),
    ]
    ((_, num_nodes, seconds),) = measured_steps(served, records)
    assert (num_nodes, seconds) == (2, pytest.approx(0.5))
