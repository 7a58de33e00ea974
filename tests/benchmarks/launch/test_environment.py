"""What an environment's Python answers, and the reason if it does not."""

import re
import sys
from pathlib import Path

import pytest

from dlscale.base.definitions import Frozen
from dlscale.base.errors import UsageError
from dlscale.benchmarks.launch import environment
from dlscale.benchmarks.launch.environment import NoAnswerError, TooLateError, ask
from dlscale.benchmarks.launch.probe import Probe
from dlscale.benchmarks.systems.start import Installation


class Answer(Frozen):
    number: int


@pytest.fixture
def python(tmp_path):
    """python(...): a program that prints so, complains so and ends so."""

    def make(output="", complaint="", status=0):
        path = tmp_path / "python"
        (tmp_path / "out").write_text(output)
        (tmp_path / "err").write_text(complaint)
        path.write_text(f"#!/bin/sh\ncat {tmp_path}/out; cat {tmp_path}/err >&2; exit {status}\n")
        path.chmod(0o755)
        return path

    return make


def test_the_last_line_is_the_answer(python):
    program = python('a library\'s banner\n{"number": 1}\n{"number": 2}\n', "a warning\n")
    assert ask(program, "module", answer=Answer) == Answer(number=2)


def test_what_it_leaves_goes_with_it(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    program = tmp_path / "python"
    program.write_text('#!/bin/sh\ntouch "${TMPDIR:?}/left" && echo "{\\"number\\": 1}"\n')
    program.chmod(0o755)
    assert ask(program, "module", answer=Answer) == Answer(number=1)
    assert list(tmp_path.iterdir()) == [program]


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        (
            {"complaint": "Traceback\nOSError: libcudart.so.13: no such file\n", "status": 1},
            "OSError: libcudart",
        ),
        ({"output": "no JSON\n"}, "no answer, exit status 0"),
        ({"status": 4}, "exit status 4"),
        ({"output": '{"number": "one"}', "complaint": "bad\n"}, "bad"),
        ({"output": '{"number": 1}', "complaint": "then it died\n", "status": 1}, "then it died"),
    ],
)
def test_the_reason_for_no_answer_is_one_line(python, said, reason):
    with pytest.raises(NoAnswerError) as caught:
        ask(python(**said), "module", answer=Answer)
    assert reason in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("lies_in", "remedy"), [("", "PYTHONPATH puts {file} first"), ("own", "reinstall dlscale")]
)
def test_a_package_that_pythonpath_puts_first_is_named(python, tmp_path, monkeypatch, lies_in, remedy):
    file = tmp_path / "fake" / "torch" / "__init__.py"
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path / 'fake' / lies_in}")
    said = f'Traceback\n  File "{file}", line 1, in <module>\nImportError: libcudart.so.11.0: no such file\n'
    where = Installation(
        name="x",
        prefix=tmp_path,
        python=python(complaint=said, status=1),
        mpiexec=tmp_path,
        mpi="mpich",
        variables={},
    )
    with pytest.raises(UsageError, match="libcudart") as caught:
        environment.probe(where)
    assert remedy.format(file=file) in str(caught.value)


@pytest.mark.parametrize("versioned", [False, True])
def test_a_framework_that_pythonpath_puts_first_needs_a_version(tmp_path, monkeypatch, versioned):
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "__init__.py").write_text("raise ImportError('libcudart.so.11.0')\n")
    if versioned:
        (tmp_path / "torch-1.0.dist-info").mkdir()
        (tmp_path / "torch-1.0.dist-info" / "METADATA").write_text("Name: torch\nVersion: 1.0\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    probe = ask(Path(sys.executable), "benchmarks.launch.probe", "{}", answer=Probe)
    assert probe.misplaced == ({} if versioned else {"torch": str(tmp_path / "torch" / "__init__.py")})
    assert (probe.versions["torch"] == "1.0") == versioned


def test_a_file_of_the_working_folder_is_no_module(tmp_path, monkeypatch):
    (tmp_path / "random.py").write_text("open('executed', 'w')\nraise ImportError('not this one')\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", ":.")
    probe = ask(Path(sys.executable), "benchmarks.launch.probe", "{}", answer=Probe)
    assert probe.versions["dlscale"]
    assert not (tmp_path / "executed").exists()


def test_an_answer_that_never_comes_is_not_waited_for(tmp_path):
    program = tmp_path / "python"
    program.write_text("#!/bin/sh\nexec sleep 60\n")
    program.chmod(0o755)
    with pytest.raises(TooLateError, match=r"no answer within 0 s"):
        ask(program, "module", answer=Answer, limit_seconds=0.1)


def test_a_reading_of_other_programs(monkeypatch):
    monkeypatch.setattr(environment, "READING_SECONDS", 0.05)
    assert re.fullmatch(r"(other programs use \d+\.\d of \d+ cores)?", environment.other_load())
