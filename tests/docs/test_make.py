"""Variables of make: what the Makefile does not know is refused before anything runs."""

import os
import shlex
import subprocess
from pathlib import Path

import pytest

from docs import reference

TOP = Path(__file__).parents[2]


def make(*words, dry=True):
    # As a user types it, also where a make runs the tests.
    variables = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS"))}
    command = ["make", *(["-n"] if dry else []), *words]
    return subprocess.run(command, cwd=TOP, env=variables, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("BACKEND=ring", "no variable BACKEND; did you mean: BACKENDS"),
        ("ranks=2", "no variable ranks; did you mean: RANKS"),
        ("COLOUR=red", "no variable COLOUR; choose one of: WORKLOADS "),
    ],
)
def test_an_unknown_variable_is_an_error(word, said):
    done = make("weak-scaling", word)
    assert done.returncode == 2
    assert said in done.stderr
    assert not done.stdout


@pytest.mark.parametrize(
    "word", ["BACKENDS=none,ring", "RANKS=1,2", "RESULTS=/tmp/elsewhere", "PYTHON=python3"]
)
def test_a_known_variable_is_passed_on(word):
    done = make("weak-scaling", word)
    assert done.returncode == 0, done.stderr
    name, _, value = word.partition("=")
    assert name == "PYTHON" or f"--set '{name.lower()}={value}'" in done.stdout


def test_a_value_is_one_word_of_the_shell():
    """Else `ACCOUNT=it's` ends in a shell's complaint, and more after a quotation mark is run."""
    done = make("weak-scaling", "ACCOUNT=it's; touch x")
    (line,) = [line for line in done.stdout.splitlines() if "dlscale run" in line]
    assert shlex.split(line)[-2:] == ["--set", "account=it's; touch x"]
    line = make("verify-figures", "FIGURE=goyal-7 a;b").stdout.splitlines()[-1]
    assert shlex.split(line)[-2:] == ["goyal-7", "a;b"]


MADE = ("-o", ".venv", "-o", ".venv/.installed")


def test_what_is_generated_is_up_to_date():
    assert reference.MAKE.read_text() == reference.make_variables(), reference.REGENERATE
    assert reference.COLUMNS.read_text() == reference.columns(), reference.REGENERATE
    assert reference.DOCUMENT.read_text() == reference.document(), reference.REGENERATE


def test_seconds_of_fuzzing_are_a_number():
    made = [
        word
        for name in (".venv-openmpi", ".venv-oldest", "horovod", "build/ccl/horovod.json")
        for word in ("-o", name)
    ]
    done = make("test-nightly", "SECONDS=soon", *MADE, *made, dry=False)
    assert done.returncode == 2
    assert done.stderr.startswith("make test-nightly: SECONDS is no whole number")


@pytest.mark.parametrize(
    ("target", "word", "option"),
    [
        ("test-nightly", "SECONDS=60", "--seconds '60'"),
        ("fuzz", "INPUTS=100", "--inputs '100'"),
        ("fuzz", "NAME=record", "--target 'record'"),
        ("report", "PREDICTED=latest", "--predicted 'latest'"),
        ("proposal", "PREDICTED=latest", "--predicted 'latest'"),
        ("compare-algorithms", "LEARNING_RATE=0.1|0.2", "run algorithms --set 'learning_rate=0.1|0.2'"),
    ],
)
def test_a_variable_of_a_target_is_its_option_on_demand(target, word, option):
    assert option in make(target, word).stdout
    assert option not in make(target).stdout
