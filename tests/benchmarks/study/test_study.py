"""What a study expands to, and what it refuses."""

from collections import Counter
from importlib import resources
from pathlib import Path

import pytest

from dlscale.base.errors import UsageError
from dlscale.base.quantities import Count
from dlscale.benchmarks.study.expand import expand
from dlscale.benchmarks.study.sizes import default_ranks, shape
from dlscale.benchmarks.study.study import load_study
from dlscale.benchmarks.systems.system import Node, load_system
from dlscale.models import NAMES as WORKLOADS


def with_cores(number):
    node = Node(cores=Count(value=number, source="lscpu"))
    return load_system("local").model_copy(update={"node": node})


def plan(name: str = "weak-scaling", num_cores: int = 2, data: str | None = None, **changes: object):
    study, system = load_study(name, **changes), with_cores(num_cores)
    return expand(study, environment=".venv", shape=shape(study, system), data=data, policy=system.policy)


def cells(plan):
    return [case.cell for launch in plan.launches for case in launch.cases]


def test_the_default_study_is_the_promised_one():
    found = [c for c in cells(plan()) if c.control == "train"]
    counts = Counter((c.workload, c.framework, c.backend, c.num_ranks) for c in found)
    expected = {("hep_cnn", "torch", b, n): 1 for b in ("none", "mpi", "gloo", "ring") for n in (1, 2)}
    assert counts == expected


def test_one_launch_has_one_backend_and_only_its_own_controls():
    for launch in plan().launches:
        assert len({(case.cell.backend, case.cell.num_ranks) for case in launch.cases}) == 1
        assert len({case.block for case in launch.cases}) == 1
        if launch.cell.backend != "none":
            alone = ["exchange"] if launch.cell.num_ranks > 1 else []
            assert [case.cell.control for case in launch.cases] == ["train", *alone]


def test_a_block_holds_every_cell_once_in_an_order_of_its_own():
    found = plan(reference_launches=0, launches=6)
    orders = []
    for block in range(6):
        members = [launch for launch in found.launches if launch.cases[0].block == block]
        names = [launch.cell.id for launch in members]
        assert len(names) == len(set(names)) == 8
        orders.append(tuple(names))
    assert len(set(orders)) == 6
    other = plan(reference_launches=0, launches=6, seed=2)
    assert [launch.id for launch in other.launches] != [launch.id for launch in found.launches]
    assert [launch.id for launch in plan().launches] == [launch.id for launch in plan().launches]


def test_weak_scaling_keeps_the_work_per_rank():
    found = [c for c in cells(plan(ranks=[1, 2, 4], num_cores=4)) if c.control != "whole_machine"]
    assert {c.local_batch for c in found} == {2}
    assert {(c.num_ranks, c.global_batch) for c in found} == {(1, 2), (2, 4), (4, 8)}


def test_strong_scaling_keeps_the_work_in_total():
    found = [c for c in cells(plan("strong-scaling", ranks=[1, 2, 8], num_cores=8)) if c.control == "train"]
    assert {c.global_batch for c in found} == {8}
    assert {(c.num_ranks, c.local_batch) for c in found} == {(1, 8), (2, 4), (8, 1)}


def test_a_batch_of_ones_own_is_per_rank_in_weak_and_in_total_in_strong_scaling():
    weak = cells(plan(batch=1, ranks=[1, 2, 4], num_cores=4))
    assert {c.local_batch for c in weak} == {1}
    assert {c.num_ranks: c.global_batch for c in weak} == {1: 1, 2: 2, 4: 4}
    found = cells(plan("strong-scaling", batch=12, ranks=[1, 3, 4], num_cores=4))
    strong = [c for c in found if c.control != "alone"]
    assert {c.global_batch for c in strong} == {12}
    assert {c.num_ranks: c.local_batch for c in strong} == {1: 12, 3: 4, 4: 3}


def test_a_batch_of_ones_own_is_another_study_and_takes_its_own_time():
    small, default, large = plan(batch=1), plan(), plan(batch=200)
    assert len({small.digest, default.digest, large.digest}) == 3
    assert large.seconds(large.launches) > 2 * default.seconds(default.launches)
    # The preset's own batch, asked for by its number, is the same cells.
    assert {c.id for c in cells(plan(batch=2))} == {c.id for c in cells(default)}


def test_a_study_file_can_choose_the_batch(tmp_path: Path):
    text = resources.files("dlscale.benchmarks").joinpath("study", "studies", "weak-scaling.toml").read_text()
    path = tmp_path / "mine.toml"
    path.write_text(text.replace('precision = "fp32"', 'precision = "fp32"\nbatch = 3'))
    assert {c.local_batch for c in cells(plan(str(path)))} == {3}
    assert {c.local_batch for c in cells(plan(str(path), batch=5))} == {5}


@pytest.mark.parametrize("name", ["../../../escaped/x", "<script>", "", ".hidden", "a/b", "x" * 101, "a\\nb"])
def test_a_study_has_a_name_that_stays_in_its_folder(tmp_path: Path, name: str):
    text = resources.files("dlscale.benchmarks").joinpath("study", "studies", "weak-scaling.toml").read_text()
    path = tmp_path / "mine.toml"
    path.write_text(text.replace('name = "weak-scaling"', f'name = "{name}"'))
    with pytest.raises(UsageError, match=r"name: .* cannot name a folder"):
        load_study(str(path))


def test_resources_per_rank_are_a_constant_of_the_study():
    found = [c for c in cells(plan(ranks=[1, 2], num_cores=8)) if c.control != "whole_machine"]
    assert {(c.cores_per_rank, c.threads_per_rank) for c in found} == {(4, 4)}


def test_the_whole_machine_is_a_reference_of_its_own():
    found = [c for c in cells(plan(num_cores=2)) if c.control == "whole_machine"]
    assert len(found) == 1
    assert {(c.backend, c.num_ranks, c.cores_per_rank) for c in found} == {("none", 1, 2)}
    assert not [c for c in cells(plan(num_cores=1)) if c.control == "whole_machine"]


@pytest.mark.parametrize(
    ("num_cores", "ranks"),
    [(1, [1]), (2, [1, 2]), (4, [1, 2, 3, 4]), (6, [1, 2, 3, 4, 6]), (8, [1, 2, 3, 4, 8])],
)
def test_default_ranks(num_cores: int, ranks: list[int]):
    assert default_ranks(num_cores) == ranks


def test_more_ranks_than_cores_is_allowed_and_told():
    found = plan(ranks=[1, 2, 4], num_cores=2)
    assert {c.cores_per_rank for c in cells(found) if c.control == "train"} == {1}
    assert len(found.warnings) == 1
    assert "4 ranks share 2 cores" in found.warnings[0]


def test_other_questions_have_other_digests():
    assert plan().digest == plan().digest
    assert (
        len({plan().digest, plan(launches=7).digest, plan(budget="5min").digest, plan(ranks=[1]).digest}) == 4
    )


def test_usual_sizes_that_do_not_divide_a_global_batch_are_left_out_of_that_workload():
    found = plan("strong-scaling", num_cores=4, workloads=["hep_cnn", "cosmogan"], batch=None)
    sizes = {
        name: {c.num_ranks for c in cells(found) if c.workload == name} for name in ("hep_cnn", "cosmogan")
    }
    assert sizes["hep_cnn"] == {1, 2, 4}
    assert any(
        "hep_cnn on 3 ranks is left out: they do not divide global batch 8" in w for w in found.warnings
    )


def test_unknown_studies():
    known = (
        "ablation, algorithms, framework-losses, frameworks, strong-scaling, time-to-solution, tuning, weak-"
    )
    with pytest.raises(UsageError, match=f"no study 'week-scaling'; choose one of: {known}"):
        load_study("week-scaling")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("name = ", "not valid TOML"),
        ("name = 'x'", "title: field required"),
        ("nmae = 'x'", "nmae: extra inputs"),
    ],
)
def test_a_broken_study_file(text: str, words: str, tmp_path: Path):
    path = tmp_path / "mine.toml"
    path.write_text(text)
    with pytest.raises(UsageError) as caught:
        load_study(str(path))
    assert str(path) in str(caught.value)
    if words.startswith("not"):
        assert words in str(caught.value)


def test_a_study_of_ones_own(tmp_path: Path):
    text = resources.files("dlscale.benchmarks").joinpath("study", "studies", "weak-scaling.toml").read_text()
    path = tmp_path / "mine.toml"
    path.write_text(
        text.replace('"none", "mpi", "gloo", "ring"', '"none"').replace("# launches = 7", "launches = 8 #")
    )
    found = [c for c in cells(plan(str(path))) if c.control == "train"]
    assert Counter(c.num_ranks for c in found) == {1: 8, 2: 8}


def test_all_stands_for_everything_that_can_train():
    found = plan(workloads=["all"], frameworks=["all"], preset="tiny")
    trained = {(c.workload, c.framework, c.backend) for c in cells(found)}
    assert {workload for workload, _, _ in trained} == set(WORKLOADS)
    for workload in WORKLOADS:
        assert (workload, "torch", "gloo") in trained
        assert (workload, "tensorflow", "ring") in trained
        assert (workload, "tensorflow", "gloo") not in trained
    assert "backend gloo does not support tensorflow: left out there" in found.warnings


def test_a_backend_that_nobody_named_is_left_out_of_the_frameworks_it_has_not():
    found = plan(frameworks=["tensorflow"])
    assert {cell.backend for cell in cells(found)} == {"none", "mpi", "ring"}
    assert "backend gloo does not support tensorflow: left out there" in found.warnings


def test_controls_of_the_input_need_an_input():
    others = {"train", "exchange", "whole_machine"}
    assert {c.control for c in cells(plan())} == {*others, "synthetic", "loader"}
    assert {c.control for c in cells(plan(data="synthetic"))} == others


def test_an_exchange_is_measured_alone_where_a_backend_has_operations_on_host_buffers():
    every = {
        "frameworks": ["torch", "tensorflow"],
        "backends": ["none", "mpi", "gloo", "ring", "horovod", "grpc_ps"],
    }
    found = {(c.backend, c.framework, c.num_ranks) for c in cells(plan(**every)) if c.control == "exchange"}
    both = [(b, f, 2) for b in ("mpi", "ring") for f in ("torch", "tensorflow")]
    assert found == {*both, ("gloo", "torch", 2), ("horovod", "torch", 2)}
    assert not [c for c in cells(plan(controls=["synthetic"])) if c.control == "exchange"]


def test_each_workload_has_its_own_input(tmp_path: Path):
    both = {"workloads": ["hep_cnn", "cosmogan"], "preset": "tiny"}
    names = {c.workload: c.data for c in cells(plan(**both))}
    assert names["hep_cnn"].startswith("sample_64.h5:")
    assert names["cosmogan"].startswith("sample_256.npy:")
    assert {c.data for c in cells(plan(data="synthetic", **both))} == {"synthetic"}
    given = plan(data="hep_cnn=synthetic,cosmogan=models/cosmogan/sample_256.npy", **both)
    assert {c.data for c in cells(given) if c.workload == "hep_cnn"} == {"synthetic"}
    with pytest.raises(UsageError, match=r"several workloads.*--data hep_cnn=some.h5"):
        plan(data="some.h5", **both)


def test_channels_first_is_torchs_alone():
    assert {c.memory_format for c in cells(plan(memory_format="channels_first"))} == {"channels_first"}


def test_how_it_runs_is_part_of_the_cell():
    digests = {plan(**change).digest for change in ({}, {"compiled": True}, {"precision": "bf16"})}
    assert len(digests) == 3


def test_slow_networks_are_planned_slower():
    quick, slow = (plan(preset=preset, data="synthetic") for preset in ("tiny", "paper"))
    assert slow.seconds(slow.launches) > 10 * quick.seconds(quick.launches)


def test_ranks_without_1_get_the_base_case_unless_another_base_is_named():
    assert {c.num_ranks for c in cells(plan(ranks=[2]))} == {1, 2}
    assert {c.num_ranks for c in cells(plan(ranks=[2], base="smallest", reference_launches=0))} == {2}
    assert {c.num_ranks for c in cells(plan(ranks=[2], base="node", reference_launches=0))} == {2}
