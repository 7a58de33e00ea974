"""Whatever is written, and wherever it goes: one line, the right status, and a terminal that does what it did."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from dlscale.benchmarks.cli import VERBS, say

DLSCALE = str(Path(sys.prefix) / "bin" / "dlscale")


def program(code, **options):
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, **options)


@pytest.mark.parametrize(
    ("redirection", "words", "status", "told"),
    [
        (">/dev/full", "system list --json", 1, "No space left on device"),
        (">&-", "system list --json", 0, ""),
        (">&- 2>&-", "system list --json", 0, ""),
        ("2>&-", "system list --json", 0, ""),
        ("2>/dev/full", "system list --json", 0, ""),
        ("2>/dev/full", "fly", 1, ""),
        ("| true", "system list --json", 0, ""),
    ],
)
def test_output_that_goes_nowhere_is_no_traceback(redirection, words, status, told):
    done = subprocess.run(
        ["bash", "-c", f'"{DLSCALE}" {words} {redirection}'], capture_output=True, text=True, check=False
    )
    assert done.returncode == status, done.stderr
    assert len(done.stderr.splitlines()) == bool(told)
    assert told in done.stderr


@pytest.mark.parametrize("words", [("system", "list", "--json"), ("run", "--help")])
def test_a_reader_that_has_gone_ends_it_as_sigpipe_would(words):
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run([DLSCALE, *words], stdout=writing, stderr=subprocess.PIPE, check=False)
    os.close(writing)
    assert (done.returncode, done.stderr) == (128 + signal.SIGPIPE, b"")


@pytest.mark.parametrize("name", ["\x1b]0;pwned\x07", "\x1b[2J", "\udcff"])
def test_a_name_with_escape_sequences_is_told_without_them(name, mistake):
    assert not set(mistake("system", "show", name)) & {"\x1b", "\x07"}


@pytest.mark.parametrize(
    ("variable", "value", "words", "complaint"),
    [
        ("MPLBACKEND", "module://matplotlib_inline.backend_inline", ("figures", "--help"), ""),
        ("PYTHONPATH", ":", ("figures", "--help"), ""),
        ("HDF5_DRIVER", "none", ("run", "weak-scaling", "--dry-run"), ""),
    ],
)
def test_what_a_shell_set_for_others_does_no_harm_or_is_named(tmp_path, variable, value, words, complaint):
    (tmp_path / "secrets.py").write_text("raise ImportError('not this one')")
    variables = os.environ | {variable: value}
    done = subprocess.run([DLSCALE, *words], cwd=tmp_path, env=variables, capture_output=True, text=True)
    assert done.returncode == (1 if complaint else 0), done.stderr
    assert "Traceback" not in done.stderr
    assert complaint in done.stderr


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_does_not_wait_for_what_libraries_do_at_the_end(number):
    """Taking them down takes seconds on a busy machine; here it would take longer than the test may."""
    done = program(
        "import atexit, click, signal, time\n"
        "from dlscale.benchmarks import cli\n"
        "atexit.register(time.sleep, 60)\n"
        "extra = {'allow_extra_args': True}\n"
        f"cli.cli = click.command(context_settings=extra)(lambda: signal.raise_signal({int(number)}))\n"
        "cli.main(['run'])\n"
    )
    said = done.stderr.strip()
    assert (done.returncode, said) == (128 + number, "dlscale: interrupted; what has finished is kept")


def test_a_signal_while_the_command_line_is_loaded_ends_it_without_a_traceback():
    done = program(
        "import signal, sys\n"
        "from dlscale.benchmarks import __main__ as program\n"
        "class Interrupting:\n"
        "    def find_spec(self, name, *_):\n"
        "        if name == 'click':\n"
        "            signal.raise_signal(signal.SIGINT)\n"
        "sys.meta_path.insert(0, Interrupting())\n"
        "program.main()\n"
    )
    assert (done.returncode, done.stderr) == (-signal.SIGINT, "")


def test_a_terminal_breaks_sentences_between_words(monkeypatch, capsys):
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    monkeypatch.setenv("COLUMNS", "30")
    say("records: results/local/weak-scaling-2443b11f of a study that has none")
    assert max(capsys.readouterr().out.splitlines(), key=len) == "results/local/weak-scaling-2443b11f"


def test_verbs_and_options_are_completed_without_loading_other_verbs():
    code = (
        "import sys, dlscale.benchmarks.cli as c; import click;"
        "context = click.Context(c.cli, resilient_parsing=True);"
        "print([one.value for one in c.cli.shell_complete(context, '')]);"
        "print([name for name in sys.modules if name.startswith('dlscale.benchmarks.cli.')])"
    )
    verbs, loaded = program(code).stdout.splitlines()
    assert verbs == str(list(VERBS))
    assert loaded == "[]", "no verb"
    for line, expected in (("dlscale system sh", "show"), ("dlscale fly --o", "")):
        variables = {
            "COMP_WORDS": line,
            "COMP_CWORD": str(line.count(" ")),
            "_DLSCALE_COMPLETE": "bash_complete",
        }
        done = subprocess.run(
            [DLSCALE], env=os.environ | variables, capture_output=True, text=True, check=True
        )
        assert (done.stdout.strip().rpartition(",")[2], done.stderr) == (expected, "")
