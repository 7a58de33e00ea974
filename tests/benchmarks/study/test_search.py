"""`dlscale run tuning` is a study of time to solution with an equal budget for every rate; a mistake is one line."""

import pytest

from dlscale.benchmarks.cli.request import request_of, study_of
from dlscale.benchmarks.cli.run import run
from dlscale.benchmarks.study.search import search_of
from dlscale.benchmarks.study.study import load_study
from dlscale.benchmarks.study.tuned import SEED_DISTANCE
from dlscale.benchmarks.systems.system import load_system

TWO_WORKLOADS = "--workloads hep_cnn,cosmogan --target auc=0.9 --set target.max_samples=9000"


def planned(*words, study="tuning"):
    """The search that `dlscale run tuning` would run."""
    with run.make_context("dlscale run", [study, *words]) as context:
        return search_of(study_of(study, load_system("local"), request_of(context.params)))


def test_it_is_the_study_of_time_to_solution():
    search, study = load_study("tuning"), load_study("time-to-solution")
    assert (search.target.goals, search.target.evaluate_samples) == (
        study.target.goals,
        study.target.evaluate_samples,
    )
    assert (search.backends, search.batch, search.preset) == (study.backends, study.batch, study.preset)


def test_the_grid_is_an_axis_over_one_backend_with_as_many_seeds_and_samples_for_every_rate():
    study = planned()
    assert study.axes == {"learning_rate": [0.00025, 0.0005, 0.001, 0.002, 0.004]}
    assert (study.name, study.backends, study.launches) == ("tuning", ["none", "gloo"], 3)
    assert (study.target.max_samples, study.target.max_seconds) == (54_000, 60.0)
    assert study.repeats == 0, "a busy machine changes no number of samples"


def test_its_seeds_are_not_those_of_the_study_that_it_is_for():
    assert planned("--seed", "7").seed == 7 + SEED_DISTANCE
    assert planned().seed == load_study("time-to-solution").seed + SEED_DISTANCE


def test_what_the_user_says_holds():
    asked = "--launches 5 --set target.max_samples=8000 --backends none,ring --batch 8|16"
    study = planned("--set", "learning_rates=0.01|0.001|0.1", *asked.split())
    assert study.axes == {"batch": [8, 16], "learning_rate": [0.001, 0.01, 0.1]}
    assert (study.backends, study.launches, study.target.max_samples) == (["none", "ring"], 5, 8000)
    assert planned("--set", "target.learning_rate=4").axes == {"learning_rate": [1.0, 2.0, 4.0, 8.0, 16.0]}
    both = planned("--frameworks", "torch,tensorflow")
    assert both.backends == ["none", "ring"], "gloo does not train in TensorFlow"


def test_cells_whose_updates_differ_are_searched_one_by_one_each_on_the_grid_of_its_rule():
    study = planned(study="algorithms")
    assert study.backends == ["ring", "grpc_ps", "mpi_ps"]
    rates = {}
    for backend in study.backends:
        for variant in study.variants(backend):
            options = (
                variant.algorithm_options.get("downpour", {}) if variant.algorithms == ["downpour"] else {}
            )
            key = (backend, *variant.algorithms, *options.values())
            rates.setdefault(key, set()).add(variant.target.learning_rate)
    assert rates["ring", "sync"] == rates["grpc_ps", "sync"] == {5e-4, 1e-3, 2e-3, 4e-3}
    assert rates["mpi_ps", "downpour", "sgd"] == set(study.target.grids[0].rates)
    assert rates["mpi_ps", "downpour", "adagrad"] == set(study.target.grids[1].rates)
    assert rates["mpi_ps", "downpour", "adam"] == rates["ring", "sync"]
    assert {len(grid) for grid in rates.values()} == {4}, "an equal budget"


def test_fewer_rates_are_those_in_the_middle_and_the_users_own_are_for_all():
    study = planned(
        "--set", "num_rates=2", "--backends", "mpi_ps", "--set", "algorithms=downpour", study="algorithms"
    )
    assert study.axes["learning_rate"] == [1e-3, 2e-3]
    assert {len(grid.rates) for grid in study.target.grids} == {2}
    assert "ring.pipelined" not in study.axes, "an axis of a backend that the user left out"
    study = planned("--set", "learning_rates=0.1|0.2|0.4", study="algorithms")
    assert (study.axes["learning_rate"], study.target.grids) == ([0.1, 0.2, 0.4], [])


def test_one_backend_is_enough_for_algorithms_that_all_of_it_carry():
    assert planned("--set", "algorithms=sync,easgd").backends == ["none", "gloo"]
    named = planned("--backends", "ring,mpi_ps", "--set", "algorithms=sync,easgd")
    assert named.backends == ["ring", "mpi_ps"]
    named = planned("--backends", "ring,mpi", "--set", "backend_options=ring.pipelined=true")
    assert named.backends == ["ring", "mpi"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--set", "num_rates=6"], "num_rates = 6 of a grid of 5 rates; give 5 at most"),
        (["--set", "learning_rates=0|1"], "'0|1' has 0, which no training can use"),
        (["--set", "learning_rates=1|-1"], "has -1"),
        (["--set", "learning_rates=1|nan"], "has nan"),
        (["--set", "learning_rates=0.1|1e-1"], "has 0.1 twice"),
        (["--set", "learning_rates=0.1"], "is one rate"),
        (["--set", "learning_rates=0.1|"], "is not a grid of numbers"),
        (["--set", "learning_rates=1|2", "--set", "target.learning_rate=1"], "leave out one"),
        (["--set", "target.learning_rate=inf"], "finite"),
        (["--backends", "none,gloo,ring"], "give --backends none,gloo"),
        (["--backends", "gloo", "--frameworks", "tensorflow"], "no backend of gloo supports tensorflow"),
        (["--set", "backend_options=gloo.bucket_cap_mb=1|2"], "gloo.bucket_cap_mb with several values"),
        (["--set", "compiled=no|yes"], "compiled with several values"),
        (["--set", "target.tuned=tuned.toml"], "tuned=tuned.toml cannot be read"),
        (["--set", "target.evaluate_seconds=5s"], "set evaluate_samples"),
        (["--set", "target.max_samples=100"], "ends trainings before their first evaluation"),
        (["--set", "target.max_samples=0"], "max_samples"),
        (["--target", "auc=0.9", "--preset", "paper"], "set max_samples"),
        (["--seed", str(2**32 - 1)], "leaves no seeds above it"),
        (["weak-scaling", "--set", "num_rates=2"], "tuning belongs to studies with a target"),
        (["no.toml"], "no file no.toml"),
        (TWO_WORKLOADS.split(), "have no grid in common; set learning_rates"),
    ],
)
def test_a_mistake_is_one_line(mistake, words, message):
    study = [] if words[0][0] != "-" else ["tuning"]
    assert message in mistake("run", *study, *words, "--dry-run")
