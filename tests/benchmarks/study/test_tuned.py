"""Tuned learning rates: what a file says, which trainings it is for, and those that it is refused for."""

from collections import Counter

import pytest

from dlscale.base.errors import UsageError
from dlscale.benchmarks.records.tuning import configuration_of
from dlscale.benchmarks.study.expand import expand
from dlscale.benchmarks.study.sizes import Shape, Size
from dlscale.benchmarks.study.study import Study, load_study
from dlscale.benchmarks.study.tuned import ClosestRate, Tuned, TunedRate, read_tuned, write_tuned
from dlscale.benchmarks.systems.system import Policy
from tests.benchmarks.study.test_study import cells, plan

RATES = {1: 5e-4, 2: 2e-3}  # by ranks


def study(**changes):
    return cells(plan("time-to-solution", **{"ranks": [1, 2], "launches": 1} | changes))


@pytest.fixture
def tuned():
    found = {cell.num_ranks: configuration_of(cell) for cell in study()}
    return tuned_with((RATES[ranks], found[ranks]) for ranks in RATES)


def tuned_of(cells):
    """A file with the rate 0.001 for each cell alone."""
    configurations = [configuration_of(cell, by_cell=True) for cell in cells]
    unique = [each for place, each in enumerate(configurations) if each not in configurations[:place]]
    return tuned_with((1e-3, each) for each in unique)


def tuned_with(configurations):
    """Pairs of a rate and its configuration as the file of a search."""
    rates = [
        TunedRate(learning_rate=rate, expected_samples=9000, num_reached=3, configuration=configuration)
        for rate, configuration in configurations
    ]
    return Tuned(
        study="tuning-1a2b3c4d",
        learning_rates=[5e-4, 1e-3, 2e-3],
        num_seeds=3,
        first_seed=1_000_001,
        last_seed=1_000_003,
        max_samples=54_000,
        max_seconds=60.0,
        num_trainings=18,
        seconds=123.4,
        rates=rates,
    )


def test_a_file_is_read_as_it_was_written(tuned, tmp_path):
    write_tuned(tuned, path := tmp_path / "tuned.toml")
    assert read_tuned(path) == tuned
    assert [entry.name for entry in tmp_path.iterdir()] == ["tuned.toml"]


def test_every_cell_has_the_rate_of_its_configuration_and_says_how_it_was_found(tuned):
    found = study(target={"tuned": tuned})
    assert {cell.backend for cell in found} == {"none", "gloo", "ring"}
    for cell in found:
        assert cell.target.learning_rate == RATES[cell.num_ranks]
        assert (cell.target.tuning.study, cell.target.tuning.text) == ("tuning-1a2b3c4d", "3 rates x 3 seeds")
        assert configuration_of(cell) in [rate.configuration for rate in tuned.rates]


def test_a_rate_that_only_came_close_is_taken_and_the_plan_warns(tuned):
    first, second = tuned.rates
    missed = ClosestRate(learning_rate=4e-3, closest=0.9876, configuration=second.configuration)
    known = tuned.model_copy(update={"rates": [first], "missed": [missed]})
    assert Tuned.model_validate(known.model_dump()) == known
    made = plan("time-to-solution", ranks=[1, 2], launches=1, target={"tuned": known})
    rates = {cell.num_ranks: cell.target.learning_rate for cell in cells(made)}
    assert rates == {1: RATES[1], 2: 4e-3}
    (warning,) = (text for text in made.warnings if "closest" in text)
    assert "on 2 ranks with global batch 32: trained at 0.004, which came closest with 0.9876" in warning


def test_scaling_of_the_search_holds_for_the_study():
    """The file has rates of 1 rank, from which that of a larger batch follows as it did in the search."""
    found = {cell.num_ranks: cell for cell in study(target={"learning_rate_scaling": "linear"})}
    assert found[2].target.learning_rate == 2e-3
    tuned = tuned_with((5e-3, configuration_of(found[ranks])) for ranks in (1, 2))
    used = study(target={"learning_rate_scaling": "linear", "tuned": tuned})
    assert {(cell.num_ranks, cell.target.learning_rate) for cell in used} == {(1, 5e-3), (2, 1e-2)}


def test_backends_share_a_configuration_and_ranks_batches_and_targets_make_another():
    assert len({configuration_of(cell).model_dump_json() for cell in study()}) == 2
    first = configuration_of(study()[0])
    for changes in (
        {"batch": 8},
        {"precision": "bf16"},
        {"frameworks": ["tensorflow"], "backends": ["none", "ring"]},
        {"target": {"threshold": 0.9}},
        {"target": {"learning_rate_scaling": "linear"}},
    ):
        assert first not in [configuration_of(cell) for cell in study(**changes)]
    for changes in ({"target": {"max_seconds": 5.0, "learning_rate": 0.1}}, {"compiled": True}):
        assert first in [configuration_of(cell) for cell in study(**changes)]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (
            {"ranks": [1, 4]},
            "no learning rate for hep_cnn tiny in torch on 4 ranks with global batch 64; the nea",
        ),
        (
            {"target": {"threshold": 0.9}},
            "the nearest that it has is for threshold .*; give dlscale run tuning",
        ),
        ({"seed": 1_000_000, "launches": 2}, "seeds 1000000 to 1000001 are among .* --seed, e.g. 1000004"),
        ({"seed": 1_000_003}, "seeds 1000003 to 1000010 are among those"),
        ({"target": {"learning_rate": 0.1}}, "leave out learning_rate"),
        ({"axes": {"learning_rate": [0.1, 0.2]}}, "leave out"),
    ],
)
def test_what_was_not_tuned_is_refused(tuned, changes, words):
    target = {"tuned": tuned} | changes.pop("target", {})
    with pytest.raises(UsageError, match=words) as caught:
        plan("time-to-solution", **{"ranks": [1, 2], "num_cores": 4} | changes, target=target)
    assert "\n" not in str(caught.value)


def test_seeds_beside_those_of_the_search_are_allowed(tuned):
    plan("time-to-solution", seed=1_000_004, launches=2, target={"tuned": tuned})
    plan("time-to-solution", seed=999_999, launches=2, target={"tuned": tuned})


def test_a_study_keeps_its_rates_without_the_file(tuned):
    asked = load_study("time-to-solution", target={"tuned": tuned})
    assert Study.model_validate_json(asked.model_dump_json()) == asked
    plain = load_study("time-to-solution").model_dump()["target"]
    assert not {"tuned", "max_samples"} & set(plain), "studies without any keep their folders"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda text: text.replace("learning_rate = 0.002", "learning_rate = 0"), "more than 0"),
        (lambda text: text.replace("learning_rate = 0.002", "learning_rate = inf"), "finite"),
        (lambda text: text.replace('data = "', 'colour = "red"\ndata = "', 1), "colour"),
        (
            lambda text: text.replace("num_ranks = 2", "num_ranks = 1").replace("= 32", "= 16"),
            "is there twice",
        ),
        (lambda text: text.partition("[[rates]]")[0], "rates: it is missing"),
        (lambda text: text.replace("= 3", "= = 3", 1), "is not valid TOML"),
    ],
)
def test_a_damaged_file_is_one_line(tuned, tmp_path, change, words):
    write_tuned(tuned, path := tmp_path / "tuned.toml")
    path.write_text(change(path.read_text()))
    with pytest.raises(UsageError, match=words) as caught:
        read_tuned(path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_no_file_and_a_folder_are_one_line(tmp_path):
    for path in (tmp_path / "no.toml", tmp_path):
        with pytest.raises(
            UsageError, match=r"cannot be read .*; give the tuned.toml that dlscale run tuning wrote"
        ):
            read_tuned(path)


def test_a_size_that_two_jobs_share_has_as_many_trainings_as_the_others():
    sizes = tuple(Size(count, count) for count in (1, 2, 4, 8, 16))
    shape = Shape(sizes=sizes, ranks_per_node=1, num_cores=2, cores_per_rank=2, threads_per_rank=2)
    policy = Policy(max_sizes=2)

    def launches(**changes):
        asked = load_study(
            "time-to-solution", backends=["none", "ring"], launches=3, nodes=[1, 2, 4, 8, 16], **changes
        )
        found = expand(asked, environment="x", shape=shape, data=None, policy=policy).launches
        return Counter((launch.cell.num_ranks, launch.cell.target.learning_rate) for launch in found)

    assert set(launches().values()) == {3, 6}, "to compare times between jobs"
    search = launches(axes={"learning_rate": [1e-3, 2e-3]})
    assert (len(search), set(search.values())) == (10, {3})
