"""What a study expands to, and what it refuses."""

import re
from pathlib import Path

import pytest

from dlscale.base import definitions
from dlscale.base.errors import UsageError
from dlscale.base.quantities import Count
from dlscale.benchmarks.study.expand import expand
from dlscale.benchmarks.study.sizes import shape
from dlscale.benchmarks.study.study import load_study
from dlscale.benchmarks.systems.system import Node, load_system
from dlscale.models import NAMES as WORKLOADS

WEAK_SCALING = definitions.path_of("weak-scaling", folder="study/studies").read_text()


def with_cores(number):
    node = Node(cores=Count(value=number, source="lscpu"))
    return load_system("local").model_copy(update={"node": node})


def plan(name: str = "weak-scaling", num_cores: int = 2, data: str | None = None, **changes: object):
    study, system = load_study(name, **changes), with_cores(num_cores)
    return expand(study, environment=".venv", shape=shape(study, system), data=data, policy=system.policy)


def cells(plan):
    return [case.cell for launch in plan.launches for case in launch.cases]


@pytest.mark.parametrize(
    ("changes", "on_one_rank"),
    [
        ({}, {"none"}),
        ({"base": "own"}, {"none", "mpi", "gloo", "ring"}),
        ({"backends": ["mpi", "ring"]}, {"mpi", "ring"}),
        ({"ranks": [1]}, {"none", "mpi", "gloo", "ring"}),
        ({"name": "time-to-solution"}, {"none"}),
    ],
)
def test_backends_are_measured_on_several_ranks_and_on_1_where_they_are_their_own_base(changes, on_one_rank):
    found = [c for c in cells(plan(**changes)) if c.control == "train"]
    assert {c.backend for c in found if c.num_ranks == 1} == on_one_rank
    exchanging = {"mpi", "gloo", "ring"} & {*changes.get("backends", ["mpi", "gloo", "ring"])}
    if changes.get("ranks") != [1] and "name" not in changes:
        assert {c.backend for c in found if c.num_ranks == 2} >= exchanging


def test_the_default_study_has_as_many_launches_as_promised():
    planned = plan()
    assert (len(planned.launches), planned.num_launches) == (36, 7)


@pytest.mark.parametrize(
    ("study", "batch", "local_batches"),
    [
        ("weak-scaling", None, {1: 2, 2: 2, 3: 2, 4: 2}),
        ("weak-scaling", 1, {1: 1, 2: 1, 4: 1}),
        ("strong-scaling", None, {1: 8, 2: 4, 8: 1}),
        ("strong-scaling", 12, {1: 12, 3: 4, 4: 3}),
    ],
)
def test_a_batch_is_per_rank_in_weak_and_in_total_in_strong_scaling(study, batch, local_batches):
    own = {} if batch is None else {"batch": batch}
    planned = plan(study, ranks=list(local_batches), num_cores=8, **own)
    found = [cell for cell in cells(planned) if cell.control == "train"]
    assert {cell.num_ranks: cell.local_batch for cell in found} == local_batches
    assert all(cell.global_batch == cell.num_ranks * cell.local_batch for cell in found)


def test_other_questions_are_other_studies():
    changes = [
        *({}, {"launches": 9}, {"budget": "5min"}, {"ranks": [1]}, {"batch": 1}, {"batch": 200}),
        *({"compiled": True}, {"precision": "bf16"}),
    ]
    assert len({plan(**change).digest for change in changes}) == len(changes)
    # The preset's own batch, asked for by its number, is the same cells.
    assert {c.id for c in cells(plan(batch=2))} == {c.id for c in cells(plan())}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("name = ", "not valid TOML"),
        ("name = 'x'", "title: field required"),
        ("nmae = 'x'\n" + WEAK_SCALING, "nmae: extra inputs are not permitted"),
    ],
)
def test_a_broken_study_file(text: str, words: str, tmp_path: Path):
    path = tmp_path / "mine.toml"
    path.write_text(text)
    with pytest.raises(UsageError, match=re.escape(str(path))) as caught:
        load_study(str(path))
    assert words in str(caught.value)


@pytest.mark.parametrize("name", ["../../../escaped/x", "<script>", "", ".hidden", "a/b", "x" * 121, "a\\nb"])
def test_a_study_has_a_name_that_stays_in_its_folder(tmp_path: Path, name: str):
    path = tmp_path / "mine.toml"
    path.write_text(WEAK_SCALING.replace('name = "weak-scaling"', f'name = "{name}"'))
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
    both = plan(num_cores=2, axes={"compiled": [False, True]})
    programs = sorted(c.compiled for c in cells(both) if c.control == "whole_machine")
    assert programs == [False, True]


@pytest.mark.parametrize(
    ("num_cores", "ranks"),
    [(1, [1]), (2, [1, 2]), (4, [1, 2, 3, 4]), (6, [1, 2, 3, 4, 6]), (8, [1, 2, 3, 4, 8])],
)
def test_default_ranks(num_cores: int, ranks: list[int]):
    assert shape(load_study("weak-scaling"), with_cores(num_cores)).ranks == ranks


def test_more_ranks_than_cores_is_allowed_and_told():
    found = plan(ranks=[1, 2, 4], num_cores=2)
    assert {c.cores_per_rank for c in cells(found) if c.control == "train"} == {1}
    assert len(found.warnings) == 1
    assert "4 ranks share 2 cores" in found.warnings[0]


def test_usual_sizes_that_do_not_divide_a_global_batch_are_left_out_of_that_workload():
    found = plan("strong-scaling", num_cores=4, workloads=["hep_cnn", "cosmogan"], batch=None)
    sizes = {
        name: {c.num_ranks for c in cells(found) if c.workload == name} for name in ("hep_cnn", "cosmogan")
    }
    assert sizes["hep_cnn"] == {1, 2, 4}
    (warning,) = [text for text in found.warnings if "hep_cnn" in text]
    assert warning.startswith(
        "hep_cnn on 3 ranks is left out: strong scaling of hep_cnn (small): global batch 8 is"
    )


def test_all_stands_for_everything_that_can_train():
    found = plan(workloads=["all"], frameworks=["all"], preset="tiny")
    trained = {(c.workload, c.framework, c.backend) for c in cells(found)}
    assert {workload for workload, _, _ in trained} == set(WORKLOADS)
    for workload in WORKLOADS:
        assert (workload, "torch", "gloo") in trained
        assert (workload, "tensorflow", "ring") in trained
        assert (workload, "tensorflow", "gloo") not in trained
    assert "gloo in tensorflow is left out: backend gloo does not support tensorflow" in found.warnings


def test_a_backend_that_nobody_named_is_left_out_of_the_frameworks_it_has_not():
    found = plan(frameworks=["tensorflow"])
    assert {cell.backend for cell in cells(found)} == {"none", "mpi", "ring"}
    assert "gloo in tensorflow is left out: backend gloo does not support tensorflow" in found.warnings


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


def test_ranks_without_1_get_the_base_case_unless_another_base_is_named():
    assert {c.num_ranks for c in cells(plan(ranks=[2]))} == {1, 2}
    assert {c.num_ranks for c in cells(plan(ranks=[2], base="smallest", reference_launches=0))} == {2}
    assert {c.num_ranks for c in cells(plan(ranks=[2], base="node", reference_launches=0))} == {2}
