"""What a study's file and its defaults are, and how many launches it has."""

import re
from pathlib import Path

import pytest

from dlscale.base import definitions
from dlscale.base.errors import UsageError
from dlscale.benchmarks.study.plan import shape
from dlscale.benchmarks.study.study import load_study
from tests.benchmarks.study.plans import cells, plan, with_cores

WEAK_SCALING = definitions.names("study/studies")["weak-scaling"].read_text()


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
    found = cells(plan(**changes), "train")
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
    found = cells(plan(study, ranks=list(local_batches), num_cores=8, batch=batch), "train")
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
        *(
            (f'name = "{name}"\n', "cannot name a folder")
            for name in ("../../../escaped/x", "", ".hidden", "a/b")
        ),
    ],
)
def test_a_broken_study_file(text: str, words: str, tmp_path: Path):
    path = tmp_path / "mine.toml"
    path.write_text(WEAK_SCALING.replace('name = "weak-scaling"\n', text) if "folder" in words else text)
    with pytest.raises(UsageError, match=re.escape(str(path))) as caught:
        load_study(str(path))
    assert words in str(caught.value)


def test_resources_per_rank_are_a_constant_of_the_study():
    found = [c for c in cells(plan(ranks=[1, 2], num_cores=8)) if c.control != "whole_machine"]
    assert {(c.cores_per_rank, c.threads_per_rank) for c in found} == {(4, 4)}
    assert {c.cores_per_rank for c in cells(plan(ranks=[1, 2, 4], num_cores=2), "train")} == {1}


@pytest.mark.parametrize(
    ("num_cores", "ranks"),
    [(1, (1,)), (2, (1, 2)), (4, (1, 2, 3, 4)), (6, (1, 2, 3, 4, 6)), (8, (1, 2, 3, 4, 8))],
)
def test_default_ranks(num_cores: int, ranks: tuple[int, ...]):
    assert shape(load_study("weak-scaling"), with_cores(num_cores)).ranks == ranks


def test_ranks_without_1_get_the_base_case_unless_another_base_is_named():
    assert {c.num_ranks for c in cells(plan(ranks=[2]))} == {1, 2}
    assert {c.num_ranks for c in cells(plan(ranks=[2], base="smallest", reference_launches=0))} == {2}
    assert {c.num_ranks for c in cells(plan(ranks=[2], base="node", reference_launches=0))} == {2}
