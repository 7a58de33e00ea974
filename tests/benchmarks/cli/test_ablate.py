"""A ladder is a study: its steps are the cases, compared pair by pair, and a mistake in it is one line."""

import pytest

from dlscale.benchmarks.cli import ablate, main
from dlscale.benchmarks.cli.options import study_of
from dlscale.benchmarks.cli.run import run
from dlscale.benchmarks.systems.system import load_system


@pytest.fixture
def planned(monkeypatch):
    """The study that `dlscale ablate` would run."""
    asked = {}

    def keep(name, options, *, fields, **_):
        with run.make_context("dlscale run", [name]) as context:
            asked["study"] = study_of(name, load_system("local"), context.params | options, **fields)
        return 0

    monkeypatch.setattr(ablate, "plan_and_run", keep)

    def study(*words):
        with pytest.raises(SystemExit) as ended:
            main(["ablate", *words])
        assert not ended.value.code
        return asked["study"]

    return study


def test_the_steps_are_the_cells_of_one_backend_with_equal_launches(planned):
    study = planned(
        "gloo", "--ranks", "2,4", "--preset", "tiny", "--steps", "plain > bucket_cap_mb=5 > compiled"
    )
    assert (study.name, study.backends, study.ranks, study.base) == (
        "ablation-gloo",
        ["gloo"],
        [2, 4],
        "smallest",
    )
    assert study.ladder == [{}, {"gloo.bucket_cap_mb": 5}, {"compiled": True}]
    assert (study.controls, study.reference_launches) == ([], 0)
    assert study.launches == 8  # for 2 steps on 2 numbers of ranks, 4 comparisons


def test_without_ranks_a_ladder_uses_all_cores(planned):
    study = planned("ring", "--steps", "plain > precision=bf16", "--launches", "3")
    assert (study.ranks, study.launches) == ([load_system("local").num_cores()], 3)


def test_a_ladder_has_the_controls_that_are_asked_for(planned):
    steps = ("--ranks", "2", "--preset", "tiny", "--steps", "plain > compiled")
    assert planned("gloo", *steps, "--controls", "exchange").controls == ["exchange"]


def test_a_ladder_in_a_file_is_a_study(planned, tmp_path):
    path = tmp_path / "mine.toml"
    text = 'name = "mine"\ntitle = "Mine"\nscaling_mode = "weak"\nworkloads = ["hep_cnn"]\nframeworks = ["torch"]\n'
    text += 'backends = ["gloo"]\nprecision = "fp32"\nranks = [2]\n'
    path.write_text(f'{text}ladder = ["plain", "bucket_cap_mb=5"]\n')
    assert planned(str(path)).ladder == [{}, {"gloo.bucket_cap_mb": 5}]
    assert planned(str(path), "--steps", "bucket_cap_mb=1 > compiled").ladder == [
        {"gloo.bucket_cap_mb": 1},
        {"compiled": True},
    ]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["gloo"], "needs --steps"),
        (["nix", "--steps", "plain > compiled"], "no backend 'nix'"),
        (["none", "--steps", "plain > compiled"], "no backend 'none'"),
        (["gloo", "--steps", "compiled"], "is no ladder"),
        (["gloo", "--ranks", "2", "--steps", "plain > plain"], "step 1 of the ladder changes nothing"),
        (["gloo", "--ranks", "2", "--steps", "plain > nix=1"], "no option 'nix'"),
        (["gloo", "--ranks", "2", "--steps", "plain > bucket_cap_mb=a"], "give a int"),
        (["gloo", "--ranks", "1", "--steps", "plain > compiled"], "on 1 rank"),
        (["gloo", "--backends", "ring", "--steps", "plain > compiled"], "--backends with ablate"),
        (["gloo", "--ranks", "2", "--batch", "2|4", "--steps", "plain > compiled"], "no axis beside it"),
        (["no.toml"], "no file no.toml"),
    ],
)
def test_a_mistake_is_one_line(capsys, words, message):
    with pytest.raises(SystemExit) as ended:
        main(["ablate", *words])
    assert ended.value.code == 1
    said = capsys.readouterr().err
    assert message in said
    assert said.count("\n") == 1
