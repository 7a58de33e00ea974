"""`dlscale tune` is a study of time to solution with an equal budget for every rate; a mistake is one line."""

import pytest

from dlscale.benchmarks.cli import main, tune
from dlscale.benchmarks.cli.options import study_of
from dlscale.benchmarks.cli.run import run
from dlscale.benchmarks.study.study import load_study
from dlscale.benchmarks.study.tuned import SEED_DISTANCE
from dlscale.benchmarks.systems.system import load_system


@pytest.fixture
def planned(monkeypatch):
    """The study that `dlscale tune` would run."""
    asked = {}

    def keep(name, options, *, fields, **_):
        with run.make_context("dlscale run", [name]) as context:
            asked["study"] = study_of(name, load_system("local"), context.params | options, **fields)
        return 0

    monkeypatch.setattr(tune, "plan_and_run", keep)

    def study(*words):
        with pytest.raises(SystemExit) as ended:
            main(["tune", *words])
        assert not ended.value.code
        return asked["study"]

    return study


def test_the_grid_is_an_axis_over_one_backend_with_as_many_seeds_and_samples_for_every_rate(planned):
    study = planned()
    assert study.axes == {"learning_rate": [0.00025, 0.0005, 0.001, 0.002, 0.004]}
    assert (study.name, study.backends, study.launches) == ("tuning", ["none", "gloo"], 3)
    assert (study.target.max_samples, study.target.max_seconds) == (54_000, 60.0)
    assert study.repeats == 0, "a busy machine changes no number of samples"


def test_its_seeds_are_not_those_of_the_study_that_it_is_for(planned):
    assert planned("--seed", "7").seed == 7 + SEED_DISTANCE
    assert planned().seed == load_study("time-to-solution").seed + SEED_DISTANCE


def test_what_the_user_says_holds(planned):
    grid = ("--learning-rates", "0.01|0.001|0.1")
    study = planned(
        *grid, "--launches", "5", "--max-samples", "8000", "--backends", "none,ring", "--batch", "8|16"
    )
    assert study.axes == {"batch": [8, 16], "learning_rate": [0.001, 0.01, 0.1]}
    assert (study.backends, study.launches, study.target.max_samples) == (["none", "ring"], 5, 8000)
    assert planned("--learning-rate", "4").axes == {"learning_rate": [1.0, 2.0, 4.0, 8.0, 16.0]}
    both = planned("--frameworks", "torch,tensorflow")
    assert both.backends == ["none", "ring"], "gloo does not train in TensorFlow"


def test_cells_whose_updates_differ_are_searched_one_by_one_each_on_the_grid_of_its_rule(planned):
    study = planned("algorithms")
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


def test_fewer_rates_are_those_in_the_middle_and_the_users_own_are_for_all(planned):
    study = planned("algorithms", "--num-rates", "2", "--backends", "mpi_ps", "--algorithms", "downpour")
    assert study.axes["learning_rate"] == [1e-3, 2e-3]
    assert {len(grid.rates) for grid in study.target.grids} == {2}
    assert "ring.pipelined" not in study.axes, "an axis of a backend that the user left out"
    study = planned("algorithms", "--learning-rates", "0.1|0.2|0.4")
    assert (study.axes["learning_rate"], study.target.grids) == ([0.1, 0.2, 0.4], [])


def test_one_backend_is_enough_for_algorithms_that_all_of_it_carry(planned):
    assert planned("--algorithms", "sync,local_sgd").backends == ["none", "gloo"]
    named = planned("--backends", "ring,mpi_ps", "--algorithms", "sync,easgd")
    assert named.backends == ["ring", "mpi_ps"]
    named = planned("--backends", "ring,mpi", "--backend-options", "ring.pipelined=true")
    assert named.backends == ["ring", "mpi"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--num-rates", "6"], "--num-rates 6 of a grid of 5 rates; give 5 at most"),
        (["--learning-rates", "0|1"], "'0|1' has 0, which no training can use"),
        (["--learning-rates", "1|-1"], "has -1"),
        (["--learning-rates", "1|inf"], "has inf"),
        (["--learning-rates", "1|nan"], "has nan"),
        (["--learning-rates", "0.1|1e-1"], "has 0.1 twice"),
        (["--learning-rates", "0.1"], "is one rate"),
        (["--learning-rates", "0.1|"], "is not a grid of numbers"),
        (["--learning-rates", "1|2", "--learning-rate", "1"], "leave out one"),
        (["--learning-rate", "inf"], "finite"),
        (["--backends", "none,gloo,ring"], "give --backends none,gloo"),
        (["--backends", "gloo", "--frameworks", "tensorflow"], "no backend of gloo supports tensorflow"),
        (["--backend-options", "gloo.bucket_cap_mb=1|2"], "gloo.bucket_cap_mb with several values"),
        (["--compiled", "no|yes"], "compiled with several values"),
        (["--tuned", "tuned.toml"], "--tuned"),
        (["--evaluate-seconds", "5s"], "give --evaluate-samples"),
        (["--max-samples", "100"], "ends trainings before their first evaluation"),
        (["--max-samples", "0"], "max_samples"),
        (["--target", "auc=0.9", "--preset", "paper"], "give --max-samples"),
        (["--seed", str(2**32 - 1)], "leaves no seeds above it"),
        (["weak-scaling"], "study weak-scaling has no target"),
        (["no.toml"], "no file no.toml"),
    ],
)
def test_a_mistake_is_one_line(capsys, words, message):
    with pytest.raises(SystemExit) as ended:
        main(["tune", *words])
    assert ended.value.code == 1
    said = capsys.readouterr().err
    assert message in said
    assert said.count("\n") == 1


def test_workloads_with_rates_of_their_own_need_a_grid(capsys):
    with pytest.raises(SystemExit):
        main(["tune", "--workloads", "hep_cnn,cosmogan", "--target", "auc=0.9", "--max-samples", "9000"])
    assert "have no grid in common; give --learning-rates" in capsys.readouterr().err
