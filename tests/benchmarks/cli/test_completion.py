"""Completion of verbs and options in a shell."""

import os
import subprocess
import sys
from pathlib import Path

from dlscale.benchmarks.cli import VERBS

DLSCALE = str(Path(sys.prefix) / "bin" / "dlscale")


def completed(line: str) -> list[str]:
    """The words that bash is offered for the last word of the line."""
    variables = os.environ | {
        "COMP_WORDS": line,
        "COMP_CWORD": str(len(line.split(" ")) - 1),
        "_DLSCALE_COMPLETE": "bash_complete",
    }
    done = subprocess.run([DLSCALE], env=variables, capture_output=True, text=True, check=True, timeout=60)
    assert done.stderr == ""
    return [word.partition(",")[2] for word in done.stdout.splitlines()]


def test_verbs_and_their_options_are_completed():
    assert completed("dlscale re") == ["resume", "report"]
    assert completed("dlscale figures --on") == ["--only", "--on"]
    assert completed("dlscale system sh") == ["show"]
    assert completed("dlscale --ver") == ["--version"]


def test_studies_and_values_are_completed():
    assert completed("dlscale run we") == ["weak-scaling"]
    assert completed("dlscale run weak-scaling --backends none,ri") == ["none,ring"]
    assert completed("dlscale run weak-scaling --system pe") == ["perlmutter"]
    assert completed("dlscale run weak-scaling --precision bf") == ["bf16"]


def test_names_of_results_are_completed(tmp_path, monkeypatch):
    folder = tmp_path / "results" / "local" / "weak-scaling-1a2b3c4d"
    folder.mkdir(parents=True)
    (folder / "study.json").touch()
    monkeypatch.chdir(tmp_path)
    assert completed("dlscale resume we") == ["weak-scaling-1a2b3c4d"]
    assert completed("dlscale report we") == ["weak-scaling-1a2b3c4d"]


def test_completion_after_a_verb_that_is_not_there_is_no_traceback():
    assert "".join(completed("dlscale fly --o")) == ""


def test_verbs_are_completed_without_loading_them():
    code = (
        "import sys, dlscale.benchmarks.cli as c; import click;"
        "context = click.Context(c.cli, resilient_parsing=True);"
        "print([one.value for one in c.cli.shell_complete(context, '')]);"
        "print([name for name in sys.modules if name.startswith('dlscale.benchmarks.cli.')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    verbs, loaded = done.stdout.splitlines()
    assert verbs == str(list(VERBS))
    assert loaded == "['dlscale.benchmarks.cli.streams']", "what every call has, and no verb"
