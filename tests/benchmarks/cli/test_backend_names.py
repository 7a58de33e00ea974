"""Backends and frameworks have the same names in every verb, and one that does not exist is the same mistake."""

import shutil
from pathlib import Path

import click
import pytest

from dlscale.analysis.published.catalogue import load_published
from dlscale.benchmarks.cli import cli
from dlscale.benchmarks.message_sizes.peers import MPI_PEERS, load_peers
from dlscale.collectives import NAMES

STUDY = "weak-scaling-2c2a4218"
GOLDEN = Path(__file__).parents[2] / "golden" / "records" / STUDY
OF_A_STUDY = ("figures", "proposal")
# Every command with an option for backends, and what it needs besides.
COMMANDS = {
    "run": "run weak-scaling --dry-run",
    "predict": "predict weak-scaling",
    **{verb: f"{verb} {STUDY}" for verb in OF_A_STUDY},
    "collectives": "collectives",
    "collectives setup": "collectives setup",
}


@pytest.fixture
def told(mistake, tmp_path):
    """Run a command with a mistake and give back what it said."""
    shutil.copytree(GOLDEN, tmp_path / "local" / STUDY)

    def run(command, *more):
        own = ["--results", tmp_path] if command.startswith((*OF_A_STUDY, "compare", "export")) else []
        return mistake(*command.split(), *more, *own)

    return run


def with_backends(command=cli, words=()):
    """Names of the commands that take --backends."""
    context = click.Context(command)
    if any("--backends" in option.opts for option in command.params):
        yield " ".join(words)
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            yield from with_backends(command.get_command(context, name), (*words, name))


def test_every_command_with_backends_is_looked_at():
    assert set(with_backends()) == set(COMMANDS)


@pytest.mark.parametrize("command", COMMANDS.values())
def test_a_backend_that_does_not_exist_is_one_line_with_those_that_do(command, told):
    line = told(command, "--backends", "rnig")
    assert "no backend 'rnig'" in line
    known = line.partition("choose one of: ")[2].split(", ")
    peers = command.startswith("collectives")
    assert known == ([peer.name for peer in load_peers()] if peers else list(NAMES))


def test_what_is_timed_alone_has_the_same_names_or_those_of_its_mpi():
    assert {peer.name for peer in load_peers()} - set(MPI_PEERS) < set(NAMES)


@pytest.mark.parametrize("verb", ["doctor --require", "compare --reference"])
def test_other_options_of_backends_name_those_that_there_are(verb, told):
    word, option = verb.split()
    said = told(f"{word} {STUDY}" if word == "compare" else word, option, "rnig")
    assert "'rnig'" in said
    assert "ring" in said.partition("choose")[2]


def test_options_of_backends_have_their_names(told):
    said = told("run weak-scaling --dry-run", "--set", "backend_options=rnig.teams=1")
    assert "no backend 'rnig'" in said


def test_published_series_name_backends_of_ours():
    asked = {
        own.backend
        for figure in load_published().figures.values()
        for own in [figure.own, *(part.own for part in (*figure.panels, *figure.series.values()))]
        if own and own.backend
    }
    assert asked
    assert asked <= set(NAMES)


@pytest.mark.parametrize("verb", ["figures", "proposal", "export tidy"])
def test_a_folder_that_cannot_be_written_names_the_option_of_its_verb(told, verb):
    line = told(f"{verb} {STUDY}", "--out", "/proc/nothing")
    assert "folder /proc/nothing is not writable" in line
    assert "with --out" in line
