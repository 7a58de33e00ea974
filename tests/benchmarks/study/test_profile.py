"""The control of the profile: planned on 1 rank over `none`, and refused where it has no place."""

import types

import pytest

from dlscale.base.errors import UsageError
from dlscale.benchmarks.records.profile import MIN_PROFILED_STEPS
from dlscale.benchmarks.study.cells import check_profile
from dlscale.benchmarks.study.expand import expand
from dlscale.benchmarks.study.plan import step_seconds
from dlscale.benchmarks.study.sizes import Shape, Size
from dlscale.benchmarks.study.study import load_study
from dlscale.benchmarks.systems.system import Policy


def plan(name="weak-scaling", *, ranks=(1, 2), **changes):
    fields = {"workloads": ["hep_cnn"], "backends": ["none", "ring"], "preset": "tiny", "launches": 1}
    study = load_study(name, **fields | {"controls": ["profile"]} | changes)
    sizes = tuple(Size(1, count) for count in ranks)
    shape = Shape(sizes=sizes, ranks_per_node=None, num_cores=4, cores_per_rank=1, threads_per_rank=1)
    return expand(study, environment="default", shape=shape, data="synthetic", policy=Policy())


def groups(planned):
    kinds = [[case.cell for case in launch.cases] for launch in planned.launches]
    return [cells for cells in kinds if any(cell.control == "profile" for cell in cells)]


def test_a_profile_shares_the_launch_of_one_rank_alone():
    ((training, profile),) = groups(plan())
    assert (training.control, profile.control, profile.backend, profile.num_ranks) == (
        "train",
        "profile",
        "none",
        1,
    )
    assert profile.model_copy(update={"control": "train"}) == training


def test_no_study_of_ours_has_one_unasked():
    for name in ("weak-scaling", "strong-scaling"):
        assert not groups(plan(name, controls=None))


def test_strong_scaling_has_one_for_each_local_batch():
    found = groups(plan("strong-scaling", ranks=(1, 2, 4), batch=8, controls=["alone", "profile"]))
    assert sorted([cell.local_batch for cell in cells if cell.control == "profile"] for cells in found) == [
        [2],
        [4],
        [8],
    ]


def test_its_time_is_that_of_all_its_steps():
    with_one, without = plan(preset="small"), plan(preset="small", controls=[])
    ((training, _),) = groups(with_one)
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
def test_a_study_without_a_place_for_it_is_refused(changes, problem):
    with pytest.raises(UsageError, match=problem):
        plan(**changes)


def test_a_keras_network_of_the_user_s_has_none():
    """It draws and remembers by assignments, which TensorFlow orders in a `tf.function` alone."""
    study = load_study("weak-scaling", controls=["profile"])
    shape = Shape(sizes=(Size(1, 1),), ranks_per_node=None, num_cores=1, cores_per_rank=1, threads_per_rank=1)
    for framework in ("torch", "tensorflow"):
        own = study.model_copy(update={"own_models": {"mine": types.SimpleNamespace(framework=framework)}})
        if framework == "torch":
            check_profile(own, shape)
            continue
        with pytest.raises(UsageError, match="mine assigns variables inside its Keras network"):
            check_profile(own, shape)
