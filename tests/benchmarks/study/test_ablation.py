"""A ladder is a study: its steps are the cases, compared pair by pair, and a mistake in it is one line."""

import pytest

from dlscale.benchmarks.cli.request import request_of, study_of
from dlscale.benchmarks.cli.run import run
from dlscale.benchmarks.study.sizes import shape
from dlscale.benchmarks.systems.system import load_system
from tests.benchmarks.study.test_study import with_cores

PLAIN_AND_COMPILED = ("--set", "ladder=plain > compiled")


def planned(*words, study="ablation"):
    with run.make_context("dlscale run", [study, *words]) as context:
        return study_of(study, load_system("local"), request_of(context.params))


def test_the_steps_are_the_cells_of_one_backend_with_equal_launches():
    ladder = "ladder=plain > bucket_cap_mb=5 > compiled"
    study = planned("--backends", "gloo", "--ranks", "2,4", "--preset", "tiny", "--set", ladder)
    assert (study.backends, study.ranks, study.base) == (["gloo"], [2, 4], "smallest")
    assert study.ladder == [{}, {"gloo.bucket_cap_mb": 5}, {"compiled": True}]
    assert (study.controls, study.reference_launches) == ([], 0)
    assert study.launches == 8  # for 2 steps on 2 numbers of ranks, 4 comparisons


def test_without_ranks_a_ladder_uses_all_cores():
    study = planned("--launches", "3")
    assert shape(study, with_cores(8)).ranks == [8]
    assert study.ladder == [{}, {"precision": "bf16"}, {"compiled": True}]


def test_a_ladder_has_the_controls_that_are_asked_for():
    assert planned("--ranks", "2", "--set", "controls=exchange").controls == ["exchange"]


def test_a_ladder_in_a_file_is_a_study(tmp_path):
    path = tmp_path / "mine.toml"
    text = 'name = "mine"\ntitle = "Mine"\nscaling_mode = "weak"\nworkloads = ["hep_cnn"]\nframeworks = ["torch"]\n'
    text += 'backends = ["gloo"]\nprecision = "fp32"\nranks = [2]\n'
    path.write_text(f'{text}ladder = ["plain", "bucket_cap_mb=5"]\n')
    assert planned(study=str(path)).ladder == [{}, {"gloo.bucket_cap_mb": 5}]
    own = planned("--set", "ladder=bucket_cap_mb=1 > compiled", study=str(path)).ladder
    assert own == [{"gloo.bucket_cap_mb": 1}, {"compiled": True}]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--ranks", "2", "--set", "ladder=plain > plain"], "step 1 of the ladder changes nothing"),
        (["--ranks", "2", "--set", "ladder=plain > nix=1"], "no option 'nix'"),
        (["--ranks", "1", *PLAIN_AND_COMPILED], "on 1 rank"),
    ],
)
def test_a_mistake_is_one_line(mistake, words, message):
    assert message in mistake("run", "ablation", *words, "--dry-run")
