"""How many comparisons of backends a study is told to need blocks for."""

import itertools

import pytest

from dlscale.benchmarks.cli.request import request_of, study_of
from dlscale.benchmarks.cli.run import run
from dlscale.benchmarks.study.expand import plan_on
from dlscale.benchmarks.study.plan import num_comparisons
from dlscale.benchmarks.systems.system import load_system
from tests.made_records import make_record


def cells(backends, ranks, frameworks=("torch",), **fields):
    return [
        make_record(backend=backend, num_ranks=num_ranks, framework=framework, **fields).case.cell
        for backend, num_ranks, framework in itertools.product(backends, ranks, frameworks)
    ]


def test_each_backend_against_the_first_on_every_number_of_ranks_above_1():
    assert num_comparisons(cells(["none", "mpi", "ring", "gloo"], [1, 2, 4, 8])) == 6
    assert num_comparisons(cells(["none", "mpi", "ring"], [2], ["torch", "tensorflow"])) == 2
    assert num_comparisons(cells(["none", "mpi"], [1, 2, 4])) == 0
    assert num_comparisons(cells(["mpi", "ring"], [1])) == 0
    assert num_comparisons(cells(["none", "ring", "mpi"], [2], control="loader")) == 0
    assert num_comparisons(cells(["mpi", "ring"], [2]) * 6) == 1  # launches of a cell count once


@pytest.mark.parametrize(
    ("words", "launches"),
    [
        ("--ranks 1,2", 7),  # 2 comparisons
        ("--ranks 1,2,4", 8),  # 4
        ("--ranks 1,2 --backends none,mpi,ring", 6),  # 1
        ("--ranks 1,2 --backends none", 6),  # none, but intervals
        ("--ranks 1,2 --launches 2", 2),
    ],
)
def test_a_study_without_a_number_of_launches_gets_what_its_comparisons_need(words, launches):
    with run.make_context("dlscale run", ["weak-scaling", *words.split()]) as context:
        system = load_system("local")
        study = study_of("weak-scaling", system, request_of(context.params))
    assert plan_on(study, system, environment="", data=None).study.launches == launches
