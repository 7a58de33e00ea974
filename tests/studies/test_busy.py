"""A study on a machine on which other programs run."""

import os
import subprocess
import sys

import pytest

HOG = f"import os\nos.sched_setaffinity(0, [{min(os.sched_getaffinity(0))}])\nwhile True: pass"


@pytest.fixture
def hog():
    """A program that never pauses, on one core: other tests need the others."""
    started = subprocess.Popen([sys.executable, "-c", HOG])
    yield
    started.kill()
    started.wait()


@pytest.mark.nightly
@pytest.mark.timeout(180)
def test_a_busy_machine_is_told_before_during_and_after(bench, hog):
    bench.study.write_text(bench.study.read_text().replace("0.01", "0.1"))
    done = bench.run("--backends", "none", "--ranks", "1")
    assert done.returncode == 0, done.stderr
    assert "the machine is busy (other programs use" in done.stdout
    assert "The machine was busy: other programs took" in done.stdout
    trained = [record for record in bench.records() if record.case.cell.control == "train"]
    assert all(record.windows.foreign_share > 0.1 for record in trained)
