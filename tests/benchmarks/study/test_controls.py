"""Controls of 1 rank: its profile, and a smaller batch alone; planned where they have a place, else refused."""

import types

import pytest

from dlscale.base.errors import UsageError
from dlscale.benchmarks.records.profile import MIN_PROFILED_STEPS
from dlscale.benchmarks.study.check import check_study
from dlscale.benchmarks.study.expand import expand
from dlscale.benchmarks.study.plan import step_seconds
from dlscale.benchmarks.study.sizes import Shape, Size
from dlscale.benchmarks.study.study import load_study
from dlscale.benchmarks.systems.system import Policy


def shape(ranks):
    sizes = tuple(Size(1, count) for count in ranks)
    return Shape(sizes=sizes, ranks_per_node=None, num_cores=4, cores_per_rank=1, threads_per_rank=1)


def plan(name="weak-scaling", *, ranks=(1, 2), **changes):
    fields = {"workloads": ["hep_cnn"], "backends": ["none", "ring"], "preset": "tiny", "launches": 1}
    study = load_study(name, **fields | changes)
    return expand(study, environment="default", shape=shape(ranks), data="synthetic", policy=Policy())


def profiled(planned):
    kinds = [[case.cell for case in launch.cases] for launch in planned.launches]
    return [cells for cells in kinds if any(cell.control == "profile" for cell in cells)]


def alone(name, *, ranks=(1, 2, 4), **changes):
    cases = [case for launch in plan(name, ranks=ranks, **changes).launches for case in launch.cases]
    return [case for case in cases if case.cell.control == "alone"]


def test_a_profile_shares_the_launch_of_one_rank_alone():
    ((training, profile),) = profiled(plan(controls=["profile"]))
    found = (training.control, profile.control, profile.backend, profile.num_ranks)
    assert found == ("train", "profile", "none", 1)
    assert profile.model_copy(update={"control": "train"}) == training
    for name in ("weak-scaling", "strong-scaling"):
        assert not profiled(plan(name)), "unasked"


def test_the_time_of_a_profile_is_that_of_all_its_steps():
    with_one, without = (plan(preset="small", controls=controls) for controls in (["profile"], []))
    ((training, _),) = profiled(with_one)
    more = with_one.seconds(with_one.launches) - without.seconds(without.launches)
    assert more > 2 * MIN_PROFILED_STEPS * step_seconds(training)


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"backends": ["ring"]}, "add none to --backends"),
        ({"ranks": (2, 4)}, "runs on 1 rank, and the study on 2, 4"),
        ({"device": "gpu", "backends": ["none", "nccl"]}, "give --device cpu"),
        ({"name": "time-to-solution"}, "without a target"),
    ],
)
def test_a_study_without_a_place_for_a_profile_is_refused(changes, problem):
    with pytest.raises(UsageError, match=problem):
        plan(**changes, controls=["profile"])


def test_a_keras_network_of_the_user_s_has_no_profile():
    """It draws and remembers by assignments, which TensorFlow orders in a `tf.function` alone."""
    study = load_study("weak-scaling", controls=["profile"])
    torch, keras = (
        study.model_copy(update={"own_models": {"mine": types.SimpleNamespace(framework=framework)}})
        for framework in ("torch", "tensorflow")
    )
    check_study(torch, shape((1,)))
    with pytest.raises(UsageError, match="mine assigns variables inside its Keras network"):
        check_study(keras, shape((1,)))


def test_strong_scaling_has_a_smaller_batch_alone_for_each_number_of_ranks_in_every_block():
    found = alone("strong-scaling", batch=8, launches=2)
    batches = sorted((case.block, case.cell.local_batch) for case in found)
    assert batches == [(0, 2), (0, 4), (1, 2), (1, 4)]
    for case in found:
        assert (case.cell.num_ranks, case.cell.num_nodes, case.cell.backend) == (1, 1, "none")
        assert case.cell.global_batch == case.cell.local_batch
        assert (case.cell.scaling_mode, case.cell.cores_per_rank) == ("strong", 1)


def test_weak_scaling_and_other_backends_need_none_alone():
    assert alone("weak-scaling", controls=["alone"]) == []
    assert alone("strong-scaling", batch=8, backends=["ring"]) == []
    assert alone("strong-scaling", batch=8, controls=["synthetic"]) == []
    assert alone("strong-scaling", batch=8, ranks=(1,)) == []
