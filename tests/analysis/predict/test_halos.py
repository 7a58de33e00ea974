"""What ranks that share samples are predicted to exchange, against arithmetic by hand."""

from dataclasses import replace

import numpy as np
import pytest

from dlscale.analysis.predict.backend_rules import rule_of
from dlscale.analysis.predict.halos import HaloSeconds, Replicas, calls_cost
from dlscale.analysis.predict.prediction import predict_curve, predict_point, prediction_records
from dlscale.analysis.predict.scenario import possible_sizes, scenario_of
from dlscale.base.errors import UsageError
from dlscale.benchmarks.systems.system import load_system
from dlscale.models.parallel.exchanges import Call
from tests.analysis.made_scenarios import NETWORK, PROFILE, scenario

LATENCY, RATE, MEMORY = 10e-6, 1e9, 1e10  # of NETWORK
EXCHANGE, SUM = Call("exchange", (1000, 3000)), Call("sum", (4000,))


def shared(backend="gloo", **changes):
    """A scenario whose ranks share samples."""
    carrier = rule_of("mpi", {}, framework="torch", num_servers=1, spare_core=False)
    return scenario(backend, **{"split": 2, "halo": carrier, "scaling_mode": "strong", "batch": 4} | changes)


def cost(calls, *, split, num_nodes, ranks_per_node=1):
    replicas = Replicas(split=split, num_nodes=num_nodes, ranks_per_node=ranks_per_node)
    return calls_cost(NETWORK, replicas, calls, algorithm=lambda _: "recursive_doubling")


@pytest.mark.parametrize(
    ("split", "num_nodes", "ranks_per_node", "fixed", "moved"),
    [
        (2, 4, 1, LATENCY, 3000 / RATE),  # both ways at once
        (4, 4, 1, 2 * LATENCY, 4000 / RATE),  # a middle rank sends twice
        (4, 2, 2, 2 * LATENCY, 4000 / RATE),  # over the node's border
        (4, 1, 8, 2 * LATENCY, 4000 * 2 * 6 / MEMORY),  # 3 flows of each of 2 replicas, read and written
    ],
)
def test_halos_of_a_node_cost_its_memory_and_others_the_links(split, num_nodes, ranks_per_node, fixed, moved):
    found = cost([EXCHANGE], split=split, num_nodes=num_nodes, ranks_per_node=ranks_per_node)
    assert found == pytest.approx((fixed, moved))


def test_rows_that_go_one_way_alone_are_one_message_and_sums_double_their_reach():
    assert cost([Call("exchange", (0, 3000))], split=4, num_nodes=4) == pytest.approx((LATENCY, 3000 / RATE))
    assert cost([SUM] * 2, split=8, num_nodes=8) == pytest.approx((6 * LATENCY, 6 * 4000 / RATE))


def test_between_gpus_of_a_node_rows_take_their_links():
    linked = replace(NETWORK, device_link_bytes_per_second=2e9)
    replicas = Replicas(split=4, num_nodes=1, ranks_per_node=4)
    found = calls_cost(linked, replicas, [EXCHANGE], algorithm=lambda _: "ring")
    assert found == pytest.approx((2 * LATENCY, 4000 / 2e9))


def test_a_point_beyond_the_batch_is_arithmetic():
    """8 ranks train on 4 samples; HEP-CNN's 14 blocks are 7 and 7, and its halos and sum of means as it states them."""
    point = predict_point(shared(), 8)
    ring = 2 * 7 * LATENCY + 2 * 7 / 8 * 0.1
    rows = [3 * 224, *(128 * (224 >> index) for index in range(1, 5))]
    halos = 9 * LATENCY + 4 * (rows[0] + 2 * sum(rows[1:])) / RATE
    halos += 2 * (LATENCY + 4 * 128 / RATE)
    computed = 0.3 / 10 / 2
    assert (point.split, point.local_batch) == (2, 1)
    assert point.step_seconds.center == pytest.approx(computed + halos + ring + 0.02, rel=1e-9)
    assert point.samples_per_second.center == pytest.approx(4 / point.step_seconds.center)
    assert point.parts["halo exchange"] == pytest.approx(halos / point.step_seconds.center)
    assert point.parts["uneven rows"] == 0
    assert sum(point.parts.values()) == pytest.approx(1 - point.efficiency.center)


def test_the_rank_with_the_most_blocks_counts():
    assert "uneven rows" not in predict_point(shared(split=4), 1).parts  # which has whole samples
    point = predict_point(shared(split=4), 4)  # 4 + 4 + 3 + 3
    assert point.parts["uneven rows"] == pytest.approx(
        (4 / 14 - 1 / 4) * 4 * 0.03 / point.step_seconds.center
    )
    assert sum(point.parts.values()) == pytest.approx(1 - point.efficiency.center)


def test_computing_on_a_part_of_the_rows_is_as_it_was_measured():
    """5 samples with half of the rows took 0.1 s; of 1 sample that is 20 ms, and in proportion 15 ms of its 30."""
    thin = replace(PROFILE, split=2, local_batch=5, forward_seconds=0.04, backward_seconds=0.1)
    ready = (replace(PROFILE.gradients[0], ready_seconds=0.1),)
    thin = replace(thin, update_seconds=0.0, step_seconds=(0.1,), gradients=ready)
    whole = replace(PROFILE, update_seconds=0.0, step_seconds=(0.3,))
    plain, measured = (predict_point(shared(profile=one), 8) for one in (whole, replace(whole, thin=(thin,))))
    assert measured.step_seconds.center - plain.step_seconds.center == pytest.approx(5e-3)
    assert measured.parts["thin blocks"] == pytest.approx(5e-3 / measured.step_seconds.center)
    assert sum(measured.parts.values()) == pytest.approx(1 - measured.efficiency.center)
    assert "thin blocks" not in plain.parts

    def doubts(split):
        of = replace(PROFILE, thin=(thin,))
        asked = scenario_of(
            load_system("cori"), of, "ring", scaling_mode="strong", backend_options={}, split=split
        )
        return [text for text in asked.doubts if "whatever thin blocks" in text]

    assert not doubts(2)
    assert "beside split 2, which was measured, takes" in doubts(4)[0]


@pytest.mark.parametrize("overlap", ["thread", "none", "next_step", "next_forward"])
def test_halos_lengthen_a_step_however_gradients_overlap(overlap):
    quick = replace(NETWORK, node_bytes_per_second=1e15, latency_seconds=1e-12)
    slow = shared(network=replace(quick, latency_seconds=1e-3))
    slow = replace(slow, rule=replace(slow.rule, overlap=overlap))
    point = predict_point(replace(slow, network=quick), 2)
    later = predict_point(slow, 2).step_seconds.center - point.step_seconds.center
    assert later > 10.999e-3  # 9 halos and 2 sums


def test_rows_are_exchanged_as_the_step_goes_on():
    halos = HaloSeconds(forward=np.ones((1, 1)), backward=np.full((1, 1), 4.0))
    moments = [halos.until(at, forward_seconds=1, backward_seconds=3).item() for at in (0, 0.5, 1, 2, 3, 3.1)]
    assert moments == [0, 0.5, 1, 3, 5, 5]


def test_weak_scaling_keeps_the_samples_of_a_rank():
    point = predict_point(shared(scaling_mode="weak", batch=10), 8)
    assert (point.split, point.local_batch) == (2, 20)
    assert point.samples_per_second.center == pytest.approx(80 / point.step_seconds.center)
    assert sum(point.parts.values()) == pytest.approx(1 - point.efficiency.center)


def test_auto_is_what_the_batch_needs_and_one_rank_has_whole_samples():
    auto, two = shared(split="auto"), shared()
    assert [predict_point(auto, count).split for count in (1, 2, 4, 8, 16)] == [1, 1, 1, 2, 4]
    assert possible_sizes([shared(split=1), two, auto], [1, 4, 8, 16]) == [[1, 4], [1, 4, 8], [1, 4, 8, 16]]
    names = {record.carrier for record in prediction_records([predict_curve(two, [1, 2, 8])])}
    assert names == {"gloo, split 2, halos by mpi"}


@pytest.mark.parametrize(
    ("changes", "sizes", "said"),
    [
        ({"split": 1}, [8], "is not a multiple of 8 ranks; give --nodes that divide it, --split auto"),
        ({}, [16], "is not a multiple of the 8 replicas of 16 ranks"),
        ({}, [3], "split 2 does not divide 3 ranks"),
        ({"split": 16}, [16], "has 14 blocks of rows"),
    ],
)
def test_sizes_that_no_split_can_be_on_are_refused(changes, sizes, said):
    with pytest.raises(UsageError, match=said):
        possible_sizes([shared(**changes)], sizes)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"profile": replace(PROFILE, workload="inception_v3")}, "nothing states what its layers"),
        ({"shard": "optimizer"}, "with shard=optimizer"),
        ({"backend": "grpc_ps", "backend_options": {"asynchronous": True}}, "with asynchronous servers"),
        ({"backend_options": {"compression": "fp16"}}, "with gradients of 2 bytes"),
        ({"halo": "horovod"}, "halo=horovod carries no halos"),
    ],
)
def test_what_cannot_be_split_is_refused(changes, said):
    asked = {"profile": PROFILE, "backend": "ring", "backend_options": {}, "split": 2} | changes
    with pytest.raises(UsageError, match=said):
        scenario_of(load_system("cori"), scaling_mode="weak", **asked)
