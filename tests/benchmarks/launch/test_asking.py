"""What an environment's Python answers, and the reason if it does not."""

import pytest

from dlscale.base.definitions import Frozen
from dlscale.benchmarks.launch.asking import NoAnswerError, ask


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


def test_the_last_lines_are_the_answers(python):
    program = python('a library\'s banner\n{"number": 1}\n{"number": 2}\n', "a warning\n")
    assert ask(program, "module", answer=Answer, num_answers=2) == [Answer(number=1), Answer(number=2)]
    assert ask(program, "module", answer=Answer) == [Answer(number=2)]


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
