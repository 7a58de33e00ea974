"""`dlscale open`, `help`, `version`, and completion in a shell."""

import os
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

from dlscale.benchmarks.cli import VERBS, main

DLSCALE = str(Path(sys.prefix) / "bin" / "dlscale")


@pytest.fixture
def told(capsys):
    """Run the command line and give back (exit status, stdout, stderr)."""

    def run(*words: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as caught:
            main(list(words))
        said = capsys.readouterr()
        return int(caught.value.code or 0), said.out, said.err

    return run


@pytest.fixture
def page(tmp_path):
    folder = tmp_path / "results/local/study 1"
    folder.mkdir(parents=True)
    (folder / "study.json").write_text("{}")
    (folder / "report.html").write_text("<p>")
    return folder / "report.html"


@pytest.fixture
def opened(monkeypatch):
    links = []
    monkeypatch.setattr("webbrowser.open", lambda link: links.append(link) or True)
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER"):
        monkeypatch.delenv(name, raising=False)
    return links


def test_the_latest_page_is_opened_in_the_browser(told, page, opened, monkeypatch):
    monkeypatch.setenv("DISPLAY", ":0")
    status, said, _ = told("open", "--results", str(page.parents[2]))
    assert (status, said) == (0, f"{page.as_uri()}\n")
    assert opened == [page.as_uri()]
    assert "study%201" in said  # a link that terminals recognise as a whole


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="other systems always have windows")
def test_without_a_browser_the_link_is_printed(told, page, opened):
    status, said, _ = told("open", "study", "--results", str(page.parents[2]))
    assert status == 0
    assert said.splitlines()[0] == page.as_uri()
    assert "no browser here" in said
    assert opened == []


def test_a_study_without_a_page_says_how_to_write_one(told, page, opened):
    page.unlink()
    status, _, error = told("open", "--results", str(page.parents[2]))
    assert status == 1
    assert len(error.splitlines()) == 1
    assert "write it with: dlscale report study 1" in error
    assert opened == []


def test_help_is_that_of_the_option(told):
    assert told("help") == told("--help")
    assert told("help", "run") == told("run", "--help")
    assert told("help", "system", "show") == told("system", "show", "--help")


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["fly"], "no verb 'fly'; choose one of: plan, run"),
        (["system", "fly"], "no verb 'fly' in dlscale system; choose one of: "),
        (["run", "fly"], "dlscale run has no verbs such as 'fly'"),
    ],
)
def test_help_of_what_is_not_there(told, words, error):
    status, _, text = told("help", *words)
    assert status == 1
    assert len(text.splitlines()) == 1
    assert error in text


def test_version(told):
    assert told("version")[:2] == (0, f"dlscale, version {version('dlscale')}\n")


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


def test_bash_takes_the_completion():
    source = 'eval "$(_DLSCALE_COMPLETE=bash_source dlscale)"; complete -p dlscale'
    variables = os.environ | {"PATH": f"{Path(DLSCALE).parent}:{os.environ['PATH']}"}
    done = subprocess.run(["bash", "-c", source], env=variables, capture_output=True, text=True, check=True)
    assert "-F _dlscale_completion" in done.stdout
