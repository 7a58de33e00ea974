"""A study on a machine on which other programs run."""

import os
import subprocess
import sys
from pathlib import Path

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
def test_a_busy_machine_is_told(bench, hog):
    bench.study.write_text(bench.study.read_text().replace("0.01", "0.1"))
    done = bench.run("--backends", "none", "--ranks", "1")
    assert done.returncode == 0, done.stderr
    assert "The machine was busy: other programs took" in done.stdout
    trained = [record for record in bench.records() if record.case.cell.control == "train"]
    assert all(record.windows.foreign_share > 0.1 for record in trained)


@pytest.fixture
def quota():
    """A control group of a quarter of a core, with this process and all that it starts."""
    parent, files = Path("/sys/fs/cgroup"), {"cpu.max": "25000 100000"}
    if (parent / "cpu/cpu.cfs_quota_us").exists():
        parent, files = parent / "cpu", {"cpu.cfs_period_us": "100000", "cpu.cfs_quota_us": "25000"}
    group = parent / f"dlscale-test-{os.getpid()}"
    try:
        group.mkdir()
        for name, text in files.items():
            (group / name).write_text(text)
        (group / "cgroup.procs").write_text(str(os.getpid()))
    except OSError as error:
        pytest.skip(f"no control group can be made here: {error}")
    yield
    (parent / "cgroup.procs").write_text(str(os.getpid()))
    group.rmdir()


@pytest.mark.nightly
@pytest.mark.timeout(300)
def test_a_quota_of_cpu_time_is_told(bench, quota):
    bench.study.write_text(bench.study.read_text().replace("0.01", "0.1"))
    done = bench.run("--backends", "none", "--ranks", "1")
    assert done.returncode == 0, done.stderr
    assert "The kernel stopped" in done.stdout
    assert "so nothing is claimed" in done.stdout
    for record in bench.records():
        assert record.fingerprint.node["quota_cores"] == 0.25
        assert sum(node.num_throttled for node in record.nodes) > 0
