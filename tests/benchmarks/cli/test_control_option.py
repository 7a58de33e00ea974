"""The option --controls."""

import click
import pytest

from dlscale.base.errors import UsageError
from dlscale.benchmarks.cli.control_option import Controls
from dlscale.benchmarks.cli.options import study_of, study_options
from dlscale.benchmarks.systems.system import load_system


def study(name, *words):
    @click.command()
    @study_options
    def verb(**_):
        pass

    return study_of(name, load_system("local"), verb.make_context("verb", list(words)).params)


@pytest.mark.parametrize(
    ("value", "names"),
    [("profile,exchange", ["profile", "exchange"]), ("alone alone", ["alone"]), ("none", [])],
)
def test_controls_are_names_or_none(value, names):
    assert Controls().convert(value, None, None) == names


def test_a_control_that_does_not_exist_is_one_line_with_those_that_do():
    with pytest.raises(UsageError, match=r"no control 'profil'; choose one of: .*profile"):
        Controls().convert("profil", None, None)


def test_a_study_has_its_own_controls_unless_others_are_asked_for():
    own = study("weak-scaling", "--launches", "1").controls
    assert own == ["synthetic", "loader", "exchange"]
    assert study("weak-scaling", "--launches", "1", "--controls", "profile").controls == ["profile"]
    assert study("weak-scaling", "--launches", "1", "--controls", "none").controls == []


def test_trainings_to_a_target_have_no_controls():
    with pytest.raises(UsageError, match="--controls loader in time-to-solution"):
        study("time-to-solution", "--controls", "loader")
