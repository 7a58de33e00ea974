"""The command line stays small: 14 verbs, few flags, and help that fits on a screen."""

import click
import pytest
from click.testing import CliRunner

from dlscale.benchmarks.cli import VERBS, cli


def flags(command, context):
    """The distinct flags of a command and of those below it."""
    found = {word for option in command.params for word in option.opts if word.startswith("--")}
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            found |= flags(command.get_command(context, name), context)
    return found


def test_there_are_few_verbs_and_flags():
    assert len(VERBS) == 14
    assert len(flags(cli, click.Context(cli))) <= 75


def test_help_of_run_fits_on_a_screen():
    shown = CliRunner().invoke(cli, ["run", "--help"], env={"COLUMNS": "130"}).output
    assert len(shown.splitlines()) <= 60
    assert max(map(len, shown.splitlines())) == 110
    assert all(f" --{name} " in shown for name in ("workloads", "ranks", "budget", "set", "dry-run"))


@pytest.mark.parametrize("verb", ["run", "predict"])
def test_help_is_as_wide_as_the_terminal(verb):
    shown = CliRunner().invoke(cli, [verb, "--help"], env={"COLUMNS": "60"}).output
    assert max(map(len, shown.partition("Examples")[0].splitlines())) <= 60
