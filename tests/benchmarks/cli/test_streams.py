"""Whatever is written, and wherever it goes: one line, the right status, and a terminal that does what it did."""

import io
import os
import pty
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from dlscale.base.redaction import home_folder, redact
from dlscale.benchmarks.cli.streams import CleanStream, say

DLSCALE = str(Path(sys.prefix) / "bin" / "dlscale")


def run(redirection, *words, **options):
    return subprocess.run(
        ["bash", "-c", f'exec "$0" "$@" {redirection}', DLSCALE, *words],
        capture_output=True, text=True, check=False, **options,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("redirection", "status", "told"),
    [
        (">/dev/full", 1, "standard output cannot be written: No space left on device"),
        (">&-", 1, "standard output is closed"),
        (">&- 2>&-", 1, ""),
        ("2>&-", 0, ""),
        ("2>/dev/full", 0, ""),
    ],
)
def test_output_that_goes_nowhere_is_one_line(redirection, status, told):
    done = run(redirection, "system", "list", "--json")
    assert done.returncode == status, done.stderr
    assert len(done.stderr.splitlines()) == bool(told)
    assert told in done.stderr


def test_a_mistake_that_cannot_be_told_keeps_its_status():
    done = run("2>/dev/full", "fly")
    assert done.returncode == 1
    assert done.stdout == ""


@pytest.mark.parametrize(
    "words",
    [("system", "list", "--json"), ("run", "--help"), ("system", "show", "cori")],
    ids=["verb", "help", "text"],
)
def test_a_reader_that_has_gone_ends_it_as_sigpipe_would(words):
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run([DLSCALE, *words], stdout=writing, stderr=subprocess.PIPE, check=False)
    os.close(writing)
    assert done.stderr == b""
    assert done.returncode == 128 + signal.SIGPIPE


def test_a_working_directory_that_is_gone_is_one_line(tmp_path):
    folder = tmp_path / "gone"
    folder.mkdir()
    script = f'rmdir "{folder}" && exec "{DLSCALE}" system list'
    done = subprocess.run(["bash", "-c", script], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert line.startswith("dlscale: the working directory cannot be used")


def test_a_user_without_an_entry_in_the_password_file_has_no_home(monkeypatch):
    def unknown():
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", unknown)
    monkeypatch.setenv("USER", "jane")
    assert home_folder() is None
    assert redact("/home/jane/x") == "/home/<user>/x"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[1mbold\x1b[0m\n\tx\r\n", "\x1b[1mbold\x1b[0m\n\tx\r\n"),
        ("\x1b]0;title\x07", "\\x1b]0;title\\x07"),
        ("\x1b[2K\x1b[1Aok", "\\x1b[2K\\x1b[1Aok"),
        ("failed\rpassed", "failed\\rpassed"),
        ("\x9b2J\x00", "\\x9b2J\\x00"),
        ("mr.\u202exe", "mr.\\u202exe"),
    ],
)
def test_nothing_but_colours_reaches_a_terminal(text, shown):
    stream = io.StringIO(newline="")
    CleanStream(stream).write(text)
    assert stream.getvalue() == shown


@pytest.mark.parametrize("name", ["\x1b]0;pwned\x07", "\x1b[2J", "\udcff"])
def test_a_name_with_escape_sequences_is_told_without_them(name, mistake):
    assert not set(mistake("system", "show", name)) & {"\x1b", "\x07"}


def test_on_a_terminal_too(tmp_path):
    """A failure that somebody else's record holds, shown by a verb that prints it on a terminal."""
    ours, theirs = pty.openpty()
    hostile = f"{tmp_path}/\x1b]0;pwned\x07"
    done = subprocess.run(
        [DLSCALE, "report", "--results", hostile], stdout=theirs, stderr=theirs, stdin=theirs, check=False
    )
    shown = os.read(ours, 65536)
    os.close(ours)
    os.close(theirs)
    assert done.returncode == 1
    assert b"no study in" in shown
    assert b"\x1b]" not in shown


@pytest.mark.parametrize(
    ("variable", "value", "words", "complaint"),
    [
        ("MPLBACKEND", "module://matplotlib_inline.backend_inline", ("figures", "--help"), ""),
        ("COLUMNS", "9" * 5000, ("system", "list"), ""),
        ("LINES", "\N{SUPERSCRIPT TWO}", ("system", "list"), ""),
        ("PYTHONPATH", ":", ("figures", "--help"), ""),
        ("HDF5_DRIVER", "none", ("run", "weak-scaling", "--dry-run"), "HDF5_DRIVER"),
    ],
)
def test_what_a_shell_set_for_others_does_no_harm_or_is_named(tmp_path, variable, value, words, complaint):
    (tmp_path / "secrets.py").write_text("raise ImportError('not this one')")
    done = subprocess.run(
        [DLSCALE, *words],
        cwd=tmp_path,
        env=os.environ | {variable: value},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == (1 if complaint else 0), done.stderr
    assert "Traceback" not in done.stderr
    assert complaint in done.stderr.rpartition("; unset ")[2]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_does_not_wait_for_what_libraries_do_at_the_end(number):
    """Taking them down takes seconds on a busy machine; here it would take longer than the test may."""
    program = (
        "import atexit, click, signal, time\n"
        "from dlscale.benchmarks import cli\n"
        "atexit.register(time.sleep, 60)\n"
        "extra = {'allow_extra_args': True}\n"
        f"cli.cli = click.command(context_settings=extra)(lambda: signal.raise_signal({int(number)}))\n"
        "cli.main(['run'])\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=30)
    assert done.returncode == 128 + number
    assert done.stderr.endswith("interrupted; what is finished is kept. Run the same command to resume\n")


def test_only_what_can_be_resumed_says_so():
    program = (
        "import click, signal\n"
        "from dlscale.benchmarks import cli\n"
        "extra = {'allow_extra_args': True}\n"
        "cli.cli = click.command(context_settings=extra)(lambda: signal.raise_signal(2))\n"
        "cli.main(['predict'])\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=30)
    assert done.stderr == "\ndlscale: interrupted\n"


def test_a_signal_while_the_command_line_is_loaded_ends_it_without_a_traceback():
    program = (
        "import signal, sys\n"
        "from dlscale.benchmarks import __main__ as program\n"
        "class Interrupting:\n"
        "    def find_spec(self, name, *_):\n"
        "        if name == 'click':\n"
        "            signal.raise_signal(signal.SIGINT)\n"
        "sys.meta_path.insert(0, Interrupting())\n"
        "program.main()\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=30)
    assert (done.returncode, done.stderr) == (-signal.SIGINT, "")


def test_a_terminal_breaks_sentences_between_words(monkeypatch, capsys):
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    monkeypatch.setenv("COLUMNS", "30")
    say("records: results/local/weak-scaling-2443b11f of a study that has none")
    assert capsys.readouterr().out.splitlines() == [
        "records:",
        "  results/local/weak-scaling-2443b11f",
        "  of a study that has none",
    ]
