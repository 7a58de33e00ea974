"""The cells of a plan: their numbers on one node and on several, their controls, and the order of their launches."""

from collections import defaultdict
from pathlib import Path

import pytest

from dlscale.base.errors import UsageError
from dlscale.benchmarks.study.check import num_servers
from tests.benchmarks.study.plans import cells, on_nodes, plan, tiny


def test_sizes_that_do_not_share_a_job_have_blocks_of_their_own():
    blocks = defaultdict(set)
    planned = on_nodes(
        ranks=(2, 20, 40),
        launches=3,
        reference_launches=2,
        backends=["none", "ring"],
    )
    for case in (case for launch in planned.launches for case in launch.cases):
        blocks[case.cell.num_nodes, case.cell.control].add(case.block)
    each = {1: {0, 1, 2, 3, 4, 5}, 10: {3, 4, 5, 6, 7, 8}, 20: {6, 7, 8}}
    assert blocks == {(1, "whole_machine"): {0, 1}} | {
        (nodes, control): numbers for nodes, numbers in each.items() for control in ("train", "exchange")
    }


def test_launches_of_a_block_are_numbered_in_their_order():
    positions = defaultdict(list)
    for launch in tiny(launches=2).launches:
        assert len({(case.block, case.position) for case in launch.cases}) == 1
        positions[launch.cases[0].block].append(launch.cases[0].position)
    assert positions == {0: [0, 1, 2, 3, 4], 1: [0, 1, 2, 3, 4]}


def test_the_order_is_another_in_every_study_and_the_same_when_one_is_resumed():
    def order(*args, **changes):
        launches = tiny(*args, launches=6, **changes).launches
        return tuple((launch.cell.backend, launch.cell.num_ranks) for launch in launches)

    assert order() == order()
    assert len({order(), order("strong-scaling"), order(precision="bf16"), order(seed=2)}) == 4


def test_servers_take_places_on_nodes_and_other_backends_have_none():
    found = on_nodes(backends=["ring", "grpc_ps"], servers=["1", "1/2"], reference_launches=1, ranks=(2, 4))
    places = {(c.backend, c.num_ranks, c.num_servers, c.num_nodes) for c in cells(found, "train")}
    ring, served = [("ring", 2, 0, 1), ("ring", 4, 0, 2)], [(2, 1, 2), (4, 1, 3), (4, 2, 3)]
    assert places == {*ring, *(("grpc_ps", *numbers) for numbers in served)}
    (reference,) = cells(found, "whole_machine")
    assert (reference.backend, reference.num_servers, reference.num_ranks, reference.num_nodes) == (
        "none",
        0,
        1,
        1,
    )


@pytest.mark.parametrize(
    ("spec", "num_ranks", "expected"),
    [("2", 8, 2), ("1/2", 1, 1), ("1/2", 2, 1), ("1/2", 3, 2), ("1/4", 9, 3), ("1/1", 5, 5)],
)
def test_a_ratio_of_servers_is_rounded_up(spec, num_ranks, expected):
    assert num_servers(spec, num_ranks) == expected


@pytest.mark.parametrize("spec", ["0", "0/2", "1/0", "-1", "half", "1.5"])
def test_what_is_no_number_of_servers_is_refused(spec):
    with pytest.raises(UsageError, match="pattern"):
        plan(servers=[spec])


def test_ranks_have_the_threads_of_the_placement_and_the_whole_machine_its_cores():
    found = on_nodes(reference_launches=1)
    assert {(c.cores_per_rank, c.threads_per_rank) for c in cells(found, "train")} == {(4, 3)}
    assert {(c.cores_per_rank, c.threads_per_rank) for c in cells(found, "whole_machine")} == {(8, 8)}


def test_the_whole_machine_is_a_reference_of_each_program_for_all_batches():
    assert len(cells(plan(), "whole_machine")) == 1
    assert cells(plan(num_cores=1), "whole_machine") == []
    both = plan(compiled=[False, True], batch=[2, 4])
    assert sorted(cell.compiled for cell in cells(both, "whole_machine")) == [False, True]


def alone(name, **changes):
    """(split, samples) of 1 rank that computes what one of several does; each once."""
    own = {"backends": ["none", "ring"], "ranks": [1, 2, 4], "num_cores": 4, "controls": ["alone"]}
    found = [(c.split, c.local_batch, c.global_batch) for c in cells(tiny(name, **own | changes), "alone")]
    assert len(found) == len(set(found))
    assert all(c.num_ranks == 1 and c.backend == "none" for c in cells(tiny(name, **own | changes), "alone"))
    return sorted(found)


def test_one_rank_computes_alone_what_a_smaller_batch_and_thin_blocks_are():
    assert alone("strong-scaling", batch=8) == [(1, 2, 2), (1, 4, 4)]
    assert alone("strong-scaling", batch=4, split=[1, 2]) == [
        *((1, 1, 1), (1, 2, 2)),  # as 2 ranks with split 2 have the whole batch, and 4 ranks the half of it
        *((2, 2, 2), (2, 4, 4)),
    ]
    assert alone("weak-scaling", batch=4, split=[1, 2]) == [(2, 8, 8)]
    nothing = [{"backends": ["ring"]}, {"controls": ["synthetic"]}, {"ranks": [1]}]
    assert [alone("strong-scaling", batch=8, **changes) for changes in nothing] == [[], [], []]
    assert alone("weak-scaling") == []


def test_a_smaller_batch_alone_is_measured_on_resident_tensors_too_where_data_are_read():
    found = tiny("strong-scaling", data=None, batch=8, ranks=[1, 2], backends=["none", "ring"])
    (group,) = [launch for launch in found.launches if launch.cell.control == "alone"]
    assert [case.cell.data.partition(":")[0] for case in group.cases] == ["sample_64.h5", "synthetic"]
    assert {launch.data.name for launch in found.launches} == {"sample_64.h5"}
    assert {launch.data for launch in tiny().launches} == {None}


def test_a_profile_shares_the_launch_of_one_rank_alone():
    planned = tiny(controls=["profile"])
    ((training, profile),) = [launch.cases for launch in planned.launches if len(launch.cases) > 1]
    assert (profile.cell.control, profile.cell.backend, profile.cell.num_ranks) == ("profile", "none", 1)
    assert profile.cell.model_copy(update={"control": "train"}) == training.cell
    assert not cells(tiny(), "profile")


def test_controls_of_the_input_need_an_input_and_none_stands_for_no_control():
    others = {"train", "exchange", "whole_machine"}
    assert {c.control for c in cells(plan())} == {*others, "synthetic", "loader"}
    assert {c.control for c in cells(plan(data="synthetic"))} == others
    assert {c.control for c in cells(plan(controls="none"))} == {"train", "whole_machine"}


def test_an_exchange_is_measured_alone_where_a_backend_has_operations_on_host_buffers():
    every = {
        "frameworks": ["torch", "tensorflow"],
        "backends": ["none", "mpi", "gloo", "ring", "horovod", "grpc_ps"],
    }
    found = {(c.backend, c.framework, c.num_ranks) for c in cells(plan(**every), "exchange")}
    both = [(b, f, 2) for b in ("mpi", "ring") for f in ("torch", "tensorflow")]
    assert found == {*both, ("gloo", "torch", 2), ("horovod", "torch", 2)}
    on_gpus = {"horovod": {"operations": "nccl"}}
    assert (
        cells(on_nodes(backends=["none", "horovod"], device="gpu", backend_options=on_gpus), "exchange") == []
    )
    sharded = cells(tiny(backends=["gloo"], shard=["none", "optimizer"]), "exchange")
    assert {cell.shard for cell in sharded} == {"none"}


def test_each_workload_has_its_own_input():
    both = {"workloads": ["hep_cnn", "cosmogan"], "preset": "tiny"}
    names = {c.workload: c.data for c in cells(plan(**both))}
    assert names["hep_cnn"].startswith("sample_64.h5:")
    assert names["cosmogan"].startswith("sample_256.npy:")
    assert {c.data for c in cells(plan(data="synthetic", **both))} == {"synthetic"}
    path = Path("models/cosmogan/sample_256.npy")
    given = plan(data=f"hep_cnn=synthetic,cosmogan={path}", **both)
    assert {c.data for c in cells(given) if c.workload == "hep_cnn"} == {"synthetic"}


@pytest.mark.parametrize("workload", ["cosmogan", "hep_cnn", "resnet50"])
def test_a_batch_of_one_is_enough_for_networks_that_can_train_on_it(workload):
    assert {c.local_batch for c in cells(plan(workloads=[workload], batch=1))} == {1}
