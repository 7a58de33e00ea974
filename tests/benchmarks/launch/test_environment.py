"""What an environment's Python answers, and the reason if it does not."""

import sys
from pathlib import Path

import pytest

from dlscale.base.definitions import Frozen
from dlscale.base.errors import UsageError
from dlscale.benchmarks.launch import environment
from dlscale.benchmarks.launch.environment import NoAnswerError, ask
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
    assert ask(program, "module", "", answer=Answer) == Answer(number=2)


def test_what_it_leaves_goes_with_it(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    program = tmp_path / "python"
    program.write_text('#!/bin/sh\ntouch "${TMPDIR:?}/left" && echo "{\\"number\\": 1}"\n')
    program.chmod(0o755)
    assert ask(program, "module", "", answer=Answer) == Answer(number=1)
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
        ask(python(**said), "module", "", answer=Answer)
    assert reason in str(caught.value)
    assert "\n" not in str(caught.value)


def test_an_environment_that_does_not_answer_is_a_mistake_in_one_line(python, tmp_path):
    program = python(complaint="Traceback\nImportError: libcudart.so.11.0: no such file\n", status=1)
    own = {"prefix": tmp_path, "python": program, "mpiexec": tmp_path, "mpi": "mpich", "variables": {}}
    with pytest.raises(UsageError, match=r"environment x: .*libcudart.*reinstall dlscale there"):
        environment.probe(Installation(name="x", **own))


def test_a_file_of_the_working_folder_is_no_module(tmp_path, monkeypatch):
    (tmp_path / "random.py").write_text("open('executed', 'w')\nraise ImportError('not this one')\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", ":.")
    probe = ask(Path(sys.executable), "benchmarks.launch.probe", "{}", answer=Probe)
    assert probe.versions["dlscale"]
    assert not (tmp_path / "executed").exists()


def test_an_answer_that_never_comes_is_not_waited_for(tmp_path, monkeypatch):
    monkeypatch.setattr(environment, "LIMIT_SECONDS", 0.1)
    program = tmp_path / "python"
    program.write_text("#!/bin/sh\nexec sleep 60\n")
    program.chmod(0o755)
    with pytest.raises(NoAnswerError, match=r"no answer within 0 s"):
        ask(program, "module", "", answer=Answer)
