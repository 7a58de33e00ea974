"""What a study that is gone left on emulated hosts is found by its owner, and ended; what a living one runs is not."""

import os
import subprocess
import sys
import time

import pytest

from dlscale.benchmarks.cli import main
from dlscale.benchmarks.launch.hosts import OWNER, leftovers, owner

SLEEP = [sys.executable, "-c", "import time; time.sleep(60)"]


@pytest.fixture
def of_the_gone_and_the_living():
    """A process whose owner is gone and whose number went to another process, and one whose owner is this test."""
    here = owner(os.getpid())
    marks = (f"{os.getpid()}:{int(here.partition(':')[2]) - 1}", here)
    both = [subprocess.Popen(SLEEP, env={**os.environ, OWNER: mark}) for mark in marks]
    deadline = time.monotonic() + 10
    while both[0].pid not in {found.pid for found in leftovers()} and time.monotonic() < deadline:
        time.sleep(0.05)  # until the child has become Python
    yield both
    for process in both:
        process.kill()
        process.wait()


def test_only_what_outlived_its_study_is_named_and_ended(capsys, of_the_gone_and_the_living):
    gone, living = of_the_gone_and_the_living
    with pytest.raises(SystemExit):
        main(["system", "emulate"])
    said = capsys.readouterr().out
    assert f"({gone.pid})" in said
    assert f"({living.pid})" not in said

    with pytest.raises(SystemExit) as caught:
        main(["system", "emulate", "--clean"])
    assert caught.value.code in (0, None)
    assert f"({gone.pid})" in capsys.readouterr().out
    assert living.poll() is None
    assert gone.pid not in {found.pid for found in leftovers()}
