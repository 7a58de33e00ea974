"""A study on a machine on which other programs run."""

import os
import subprocess
import sys
import time

import pytest

HOG = "import os, sys\nos.sched_setaffinity(0, [int(sys.argv[1])])\nwhile True: pass"


@pytest.fixture
def hogs():
    """A program on every core that never pauses."""
    started = [
        subprocess.Popen([sys.executable, "-c", HOG, str(core)]) for core in sorted(os.sched_getaffinity(0))
    ]
    yield
    for hog in started:
        hog.kill()
        hog.wait()


@pytest.mark.timeout(180)
def test_a_busy_machine_is_told_before_during_and_after(bench, hogs):
    bench.study.write_text(
        bench.study.read_text().replace("repeats = 0", "repeats = 1").replace("0.01", "0.1")
    )
    begin = time.monotonic()
    refused = bench.run("--backends", "none", "--ranks", "1", "--wait-quiet", "1s")
    assert refused.returncode == 1
    assert "the machine was not quiet within 1 s: other programs use" in refused.stderr
    assert time.monotonic() - begin < 60
    done = bench.run("--backends", "none", "--ranks", "1")
    assert done.returncode == 0, done.stderr
    assert "warning: other programs use" in done.stdout
    assert "again, other programs disturbed it" in done.stdout
    assert "The machine was busy: other programs took" in done.stdout
    trained = [record for record in bench.records() if record.case.cell.control == "train"]
    assert [record.attempt for record in trained] == [1, 2]
    assert all(record.foreign_cpu > 0.2 for record in trained)
