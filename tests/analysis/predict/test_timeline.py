"""Buckets as backends cut them, and steps as they overlap them."""

from dataclasses import replace
from typing import get_args

import numpy as np
import pytest

from dlscale.analysis.predict import backends
from dlscale.analysis.predict.backends import rule_of
from dlscale.analysis.predict.profile import ComputedStep, Gradient
from dlscale.analysis.predict.timeline import BucketExchange, step_seconds
from dlscale.base.errors import UsageError
from dlscale.collectives.capabilities import Exchange
from tests.analysis import made_scenarios

MIB = 1 << 20
TENSORS = [("d", MIB, 0.12), ("c", 20 * MIB, 0.18), ("b", 6 * MIB, 0.24), ("a", 4096, 0.3)]
PROFILE = replace(
    made_scenarios.PROFILE,
    update_seconds=0.01,
    gradients=tuple(
        Gradient(name=name, num_bytes=size, ready_seconds=ready) for name, size, ready in TENSORS
    ),
    step_seconds=(0.31,),
)


def rule(backend, framework="torch", spare_core=True, **options):
    return rule_of(backend, options, framework=framework, num_servers=2, spare_core=spare_core)


WHOLE = 27 * MIB + 4096


CUT = [MIB, 26 * MIB, 4096]
FUSED = [21 * MIB, 6 * MIB + 4096]


@pytest.mark.parametrize(
    ("backend", "options", "expected"),
    [
        ("ring", {}, CUT),
        ("mpi", {}, CUT),
        ("gloo", {}, CUT),
        ("ring", {"spare_core": False}, CUT),  # not overlapped, but cut alike
        ("ring", {"framework": "tensorflow", "spare_core": False}, [WHOLE]),
        ("gloo", {"bucket_cap_mb": 5}, [21 * MIB, 6 * MIB, 4096]),
        ("tf_collective", {"framework": "tensorflow"}, [WHOLE]),
        ("mpi_ps", {}, [WHOLE]),
        ("grpc_ps", {"framework": "tensorflow"}, [MIB, 20 * MIB, 6 * MIB, 4096]),
        ("grpc_ps", {}, [WHOLE]),
        ("mpi", {"compression": "bf16"}, [MIB // 2, 13 * MIB, 2048]),
        ("none", {}, []),
        ("horovod", {}, [MIB, 20 * MIB, 6 * MIB, 4096]),
        ("horovod", {"cycle_time_ms": 200.0}, FUSED),
        ("horovod", {"cycle_time_ms": 1000.0}, [WHOLE]),
        ("horovod", {"cycle_time_ms": 1000.0, "fusion_threshold_mib": 20.0}, FUSED),
    ],
)
def test_each_backend_cuts_its_own_buckets(backend, options, expected):
    profile = replace(PROFILE, framework=options.get("framework", "torch"))
    assert [bucket.num_bytes for bucket in rule(backend, **options).buckets(profile)] == expected


APART = [MIB, 20 * MIB, 6 * MIB + 4096]
TWO_OBJECTIVES = replace(
    PROFILE,
    gradients=tuple(
        replace(gradient, objective=objective)
        for gradient, objective in zip(PROFILE.gradients, (0, 1, 1, 1), strict=True)
    ),
)


@pytest.mark.parametrize(
    ("backend", "options", "expected"),
    [
        ("gloo", {}, APART),
        ("mpi", {}, APART),
        ("ring", {}, APART),
        ("mpi", {"framework": "tensorflow", "spare_core": False}, [WHOLE]),
        ("mpi_ps", {}, [WHOLE]),
    ],
)
def test_objectives_have_buckets_of_their_own(backend, options, expected):
    buckets = rule(backend, **options).buckets(TWO_OBJECTIVES)
    assert [bucket.num_bytes for bucket in buckets] == expected


@pytest.mark.parametrize(
    ("backend", "expected"),
    [
        ("mpi", 0.12 + 3 * 0.1),  # one bucket after the other from the first one's moment on
        ("gloo", 0.3 + 0.1 + 0.1),  # what is back at 0.22 instead of 0.12 makes the last one 0.1 s later
    ],
)
def test_ddp_waits_for_an_objectives_exchange_before_the_next_one(backend, expected):
    chosen = rule(backend)
    exchanges = [
        BucketExchange(bucket=bucket, seconds=np.full((1, 1), 0.1))
        for bucket in chosen.buckets(TWO_OBJECTIVES)
    ]
    found = step_seconds(TWO_OBJECTIVES, chosen, exchanges, np.ones((1, 1)), np.random.default_rng(0))
    assert found.item() == pytest.approx(expected + PROFILE.update_seconds)


def test_what_is_ready_while_horovod_exchanges_is_fused_into_the_next_one():
    """The first gradient travels from 0.12 to 0.27, when two others are ready, and then the last one."""
    fused = rule("horovod").buckets(PROFILE, seconds_of=lambda _: 0.15)
    assert [(bucket.num_bytes, bucket.ready_seconds) for bucket in fused] == [
        (MIB, 0.12),
        (26 * MIB, 0.24),
        (4096, 0.3),
    ]


def test_a_bucket_is_ready_with_its_last_gradient():
    ready = [bucket.ready_seconds for bucket in rule("mpi").buckets(PROFILE)]
    assert ready == [0.12, 0.24, 0.3]


def test_the_algorithm_follows_from_the_size():
    ring, mpi = rule("ring"), rule("mpi")
    assert [ring.algorithm(n) for n in (4096, 65536, 26 * MIB)] == [
        "recursive_doubling",
        "halving_doubling",
        "ring",
    ]
    assert [mpi.algorithm(n) for n in (2048, 4096)] == ["recursive_doubling", "halving_doubling"]
    assert rule("gloo").algorithm(8) == "ring"
    assert rule("grpc_ps").algorithm(8) == "parameter_servers"


def test_the_ring_changes_algorithms_where_its_engine_does():
    engine = pytest.importorskip("dlscale.collectives.ring._engine")
    assert engine.default_switch_points(16)[1:] == (
        backends.RING_RECURSIVE_DOUBLING_BYTES,
        backends.RING_HALVING_DOUBLING_BYTES,
    )


def test_the_sizes_of_buckets_are_those_of_the_trainers():
    trainers = pytest.importorskip("dlscale.collectives.training.communication")
    assert trainers.FIRST_BUCKET_BYTES == backends.FIRST_BUCKET_BYTES
    assert trainers.BUCKET_BYTES == backends.BUCKET_BYTES


@pytest.mark.parametrize(
    ("backend", "options", "said"),
    [
        ("ring", {"segment_bytes": 4096}, "predictions do not model ring.segment_bytes=4096"),
        ("ring", {"teams": 2}, "ring.teams=2"),
        ("mpi", {"compression": "topk"}, "mpi.compression=topk"),
        ("horovod", {"operations": "nccl"}, "horovod.operations=nccl"),
        ("nccl", {}, "nccl cannot be predicted"),
        ("xccl", {}, "xccl cannot be predicted"),
        ("tf_collective", {}, "does not train in torch"),
        ("ring", {"colour": "red"}, "colour"),
    ],
)
def test_what_is_not_modelled_is_refused(backend, options, said):
    with pytest.raises(UsageError, match=said):
        rule(backend, **options)


def test_every_exchange_has_a_rule():
    assert {*backends._RULES} == {*get_args(Exchange)}


def test_whole_tensors_do_not_divide_among_servers():
    """20 MiB on one server are as slow as all shares of a quarter less than 27 MiB on one."""
    tensors = replace(rule("grpc_ps", "tensorflow"), whole_tensors=True)
    assert [tensors.num_equal_servers(PROFILE, count) for count in (0, 1, 2, 512)] == [0, 1, 1, 1]
    even = replace(PROFILE, gradients=(replace(PROFILE.gradients[0], num_bytes=100),) * 8)
    assert [tensors.num_equal_servers(even, count) for count in (2, 3, 8, 512)] == [2, 3, 8, 8]
    assert rule("grpc_ps").num_equal_servers(PROFILE, 512) == 512


ONCE = np.ones((1, 1))
RNG = np.random.default_rng(0)


def step(chosen, *seconds, factors=ONCE):
    buckets = chosen.buckets(PROFILE)
    exchanges = [
        BucketExchange(bucket=bucket, seconds=np.full((len(factors), 1), own))
        for bucket, own in zip(buckets, seconds, strict=True)
    ]
    return step_seconds(PROFILE, chosen, exchanges, factors, RNG)


def test_what_is_overlapped_costs_only_what_is_left_after_backward():
    # 0.12 + 0.02; 0.24 + 0.05; 0.3 + 0.01
    assert step(rule("mpi"), 0.02, 0.05, 0.01) == pytest.approx(0.32)
    # The second one ends at 0.44, and the last one follows.
    assert step(rule("mpi"), 0.02, 0.2, 0.01) == pytest.approx(0.46)
    assert step(rule("ring", spare_core=False), 0.02, 0.05, 0.01) == pytest.approx(0.39)
    assert step(rule("none")) == pytest.approx(0.31)


def test_a_timeline_asks_for_no_more_than_what_is_computed():
    computed = ComputedStep(backward_seconds=0.3, update_seconds=0.01)
    assert step_seconds(computed, rule("none"), [], ONCE, RNG) == pytest.approx(0.31)


def test_delayed_by_a_step_the_longer_of_the_two_counts():
    assert step(rule("ring", pipelined=True), 0.02, 0.2, 0.01) == pytest.approx(0.31)
    assert step(rule("ring", pipelined=True), 0.02, 0.6, 0.01) == pytest.approx(0.63)


def test_the_slowest_rank_makes_everybodys_gradients_late():
    assert step(rule("mpi"), 0.02, 0.05, 0.01, factors=np.array([[2.0]])) == pytest.approx(0.63)


def test_a_gradient_waits_for_horovods_next_cycle():
    slow = rule("horovod", cycle_time_ms=200.0)
    steps = step(slow, 0.0, 0.0, factors=np.ones((2000, 1)))
    assert 0.31 <= steps.min() < steps.max() <= 0.31 + 0.2
    assert steps.mean() == pytest.approx(0.31 + 0.1, abs=0.01)
