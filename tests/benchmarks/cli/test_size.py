"""The command line stays small: 14 verbs, few flags, and help that fits on a screen."""

import click
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
    said = CliRunner().invoke(cli, ["run", "--help"]).output
    assert len(said.splitlines()) <= 60
    assert all(f" --{name} " in said for name in ("workloads", "ranks", "budget", "set", "dry-run"))
