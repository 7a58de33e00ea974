"""The control of the batch: planned where the local batch shrinks, in the blocks of its number of ranks."""

import pytest

from dlscale.benchmarks.study.expand import expand
from dlscale.benchmarks.study.sizes import Shape, Size
from dlscale.benchmarks.study.study import load_study
from dlscale.benchmarks.systems.system import Policy


@pytest.fixture
def cells():
    def find(name, *, data="synthetic", ranks=(1, 2, 4), **changes):
        changes = {
            "workloads": ["hep_cnn"],
            "backends": ["none", "ring"],
            "preset": "tiny",
            "launches": 2,
            **changes,
        }
        study = load_study(name, **changes)
        shape = Shape(
            sizes=tuple(Size(1, count) for count in ranks),
            ranks_per_node=None,
            num_cores=4,
            cores_per_rank=1,
            threads_per_rank=1,
        )
        plan = expand(study, environment="default", shape=shape, data=data, policy=Policy())
        groups = [[case for case in launch.cases if case.cell.control == "alone"] for launch in plan.launches]
        return [group for group in groups if group]

    return find


def test_strong_scaling_has_one_for_each_number_of_ranks_in_every_block(cells):
    found = cells("strong-scaling", batch=8)
    assert sorted((group[0].block, group[0].cell.local_batch) for group in found) == [
        (0, 2),
        (0, 4),
        (1, 2),
        (1, 4),
    ]
    for group in found:
        (case,) = group
        assert (case.cell.num_ranks, case.cell.num_nodes, case.cell.backend) == (1, 1, "none")
        assert case.cell.global_batch == case.cell.local_batch
        assert (case.cell.scaling_mode, case.cell.cores_per_rank) == ("strong", 1)


def test_weak_scaling_and_other_backends_need_none(cells):
    assert cells("weak-scaling", controls=["alone"]) == []
    assert cells("strong-scaling", batch=8, backends=["ring"]) == []
    assert cells("strong-scaling", batch=8, controls=["synthetic"]) == []
    assert cells("strong-scaling", batch=8, ranks=(1,)) == []
