"""The numbers of a cell: blocks, nodes, servers and cores, on one node and on several."""

from collections import defaultdict

import pytest

from dlscale.base.errors import UsageError
from dlscale.benchmarks.study.expand import expand
from dlscale.benchmarks.study.sizes import Shape, Size
from dlscale.benchmarks.study.study import load_study
from dlscale.benchmarks.systems.system import Policy


def plan(name="weak-scaling", *, data="synthetic", policy=None, **changes):
    fields = {"workloads": ["hep_cnn"], "backends": ["none", "ring"], "preset": "tiny", "launches": 2}
    sizes = changes.pop("sizes", (Size(1, 2), Size(2, 4)))
    shape = Shape(sizes=sizes, ranks_per_node=2, num_cores=8, cores_per_rank=4, threads_per_rank=3)
    study = load_study(name, **fields | changes)
    return expand(study, environment="default", shape=shape, data=data, policy=policy or Policy())


def cells(planned, control="train"):
    return [case.cell for launch in planned.launches for case in launch.cases if case.cell.control == control]


def test_sizes_that_do_not_share_a_job_have_blocks_of_their_own():
    blocks = defaultdict(set)
    sizes = (Size(1, 2), Size(2, 4), Size(3, 6))
    for launch in plan(policy=Policy(jobs="chained"), sizes=sizes, launches=3, reference_launches=2).launches:
        for case in launch.cases:
            blocks[case.cell.num_nodes, case.cell.control].add(case.block)
    assert blocks == {
        (1, "train"): {0, 1, 2},
        (2, "train"): {3, 4, 5},
        (3, "train"): {6, 7, 8},
        (1, "exchange"): {0, 1, 2},
        (2, "exchange"): {3, 4, 5},
        (3, "exchange"): {6, 7, 8},
        (1, "whole_machine"): {0, 1},
    }


def test_launches_of_a_block_are_numbered_in_their_order():
    positions = defaultdict(list)
    for launch in plan(reference_launches=0).launches:
        assert len({(case.block, case.position) for case in launch.cases}) == 1
        positions[launch.cases[0].block].append(launch.cases[0].position)
    assert positions == {0: [0, 1, 2, 3], 1: [0, 1, 2, 3]}


def test_the_order_is_another_in_every_study_and_the_same_when_one_is_resumed():
    def order(*args, **changes):
        launches = plan(*args, launches=6, reference_launches=0, **changes).launches
        return [(launch.cell.backend, launch.cell.num_ranks) for launch in launches]

    assert order() == order()
    orders = [order(), order("strong-scaling"), order(precision="bf16"), order(seed=2)]
    assert len({tuple(one) for one in orders}) == 4


def test_servers_take_places_on_nodes_and_other_backends_have_none():
    found = plan(backends=["none", "ring", "grpc_ps"], servers=["1", "1/2"], reference_launches=1)
    places = {(c.backend, c.control, c.num_ranks, c.num_servers, c.num_nodes) for c in cells(found)}
    assert places == {
        ("none", "train", 2, 0, 1),
        ("none", "train", 4, 0, 2),
        ("ring", "train", 2, 0, 1),
        ("ring", "train", 4, 0, 2),
        ("grpc_ps", "train", 2, 1, 2),
        ("grpc_ps", "train", 4, 1, 3),
        ("grpc_ps", "train", 4, 2, 3),
    }
    (reference,) = cells(found, "whole_machine")
    assert (reference.num_servers, reference.num_ranks, reference.num_nodes) == (0, 1, 1)


def test_ranks_have_the_threads_of_the_placement_and_the_whole_machine_its_cores():
    found = plan(reference_launches=1)
    assert {(c.cores_per_rank, c.threads_per_rank) for c in cells(found)} == {(4, 3)}
    assert {(c.cores_per_rank, c.threads_per_rank) for c in cells(found, "whole_machine")} == {(8, 8)}


def test_a_smaller_batch_alone_is_measured_on_resident_tensors_too_where_data_are_read():
    found = plan("strong-scaling", data=None, batch=8, launches=1, reference_launches=0)
    groups = [
        [
            (case.cell.data.partition(":")[0], case.cell.local_batch, case.cell.global_batch)
            for case in launch.cases
        ]
        for launch in found.launches
        if launch.cell.control == "alone"
    ]
    assert sorted(groups) == [
        [("sample_64.h5", 2, 2), ("synthetic", 2, 2)],
        [("sample_64.h5", 4, 4), ("synthetic", 4, 4)],
    ]
    assert {launch.data.name for launch in found.launches} == {"sample_64.h5"}
    assert {launch.data for launch in plan().launches} == {None}


@pytest.mark.parametrize(("device", "backends"), [("cpu", {"horovod"}), ("gpu", set())])
def test_communication_only_is_of_buffers_of_the_host(device, backends):
    operations = {"horovod": {"operations": "nccl" if device == "gpu" else "mpi"}}
    found = plan(backends=["none", "horovod"], device=device, backend_options=operations)
    assert {cell.backend for cell in cells(found, "exchange")} == backends


def test_a_backend_that_cannot_use_the_device_names_those_that_can():
    with pytest.raises(
        UsageError,
        match=r"device gpu, only cpu; .* gpu from: none, mpi, gloo, ring, horovod, grpc_ps, nccl, xccl$",
    ):
        plan(backends=["none", "tf_collective"], device="gpu")


def test_more_ranks_than_cores_on_several_nodes_are_no_warning():
    assert plan(sizes=(Size(8, 16),)).warnings == ()
