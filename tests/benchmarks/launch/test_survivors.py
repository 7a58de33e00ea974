"""Nothing that a launch started outlives it, or the dlscale that started it, even if what stands between is stopped."""

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from dlscale.benchmarks.launch import signals, supervisor
from dlscale.benchmarks.launch.supervisor import PreparedLaunch, running, supervise
from dlscale.benchmarks.records.store import Store
from tests.benchmarks.spools import launch_spec, metadata_of

# A launcher as MPICH's is: its helper and the rank are in sessions of their own, and the helper ends without it.
LAUNCHER = """
import subprocess, sys, time
from dlscale.benchmarks.rank.process import end_with_parent
level = int(sys.argv[1])
if level < 2:
    end_with_parent()
if level:
    subprocess.Popen([sys.executable, "-c", sys.argv[2], str(level - 1), *sys.argv[2:]], start_new_session=True)
with open(f"{sys.argv[3]}/pid-{level}", "x") as file:
    import os
    file.write(f"{os.getpid()}\\n")
time.sleep(60)
"""
SUPERVISOR = """
import sys
from pathlib import Path
import os
from dlscale.benchmarks.launch.supervisor import running
folder = Path(sys.argv[1])
with (folder / "log").open("wb") as log:
    with running(sys.argv[2:], environment=os.environ, output=log) as process:
        process.wait()
"""
LEVELS = {"mpiexec": 2, "proxy": 1, "rank": 0}


def pid_of(folder, who):
    path = folder / f"pid-{LEVELS[who]}"
    end = time.monotonic() + 20
    while time.monotonic() < end:
        if path.exists() and (text := path.read_text()).endswith("\n"):
            return int(text)
        time.sleep(0.01)
    raise AssertionError(f"{who} did not start: {(folder / 'log').read_text()}")


def state(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return "X"


def ended(pid, seconds=10.0):
    end = time.monotonic() + seconds
    while (found := state(pid)) not in "XZ" and time.monotonic() < end:
        time.sleep(0.01)
    return found in "XZ"


def command(folder):
    return [sys.executable, "-c", LAUNCHER, str(LEVELS["mpiexec"]), LAUNCHER, str(folder)]


@pytest.fixture
def cleared():
    """Process ids that are killed at the end, whatever became of them."""
    pids = []
    yield pids
    for pid in pids:
        if state(pid) not in "XZ":
            os.kill(pid, signal.SIGKILL)


@pytest.mark.parametrize("stopped", LEVELS)
def test_a_killed_dlscale_takes_its_ranks_along_though_something_is_stopped(tmp_path, stopped, cleared):
    dlscale = subprocess.Popen([sys.executable, "-c", SUPERVISOR, str(tmp_path), *command(tmp_path)])
    cleared += [pid_of(tmp_path, who) for who in LEVELS]
    os.kill(pid_of(tmp_path, stopped), signal.SIGSTOP)
    dlscale.kill()
    dlscale.wait()
    assert all(ended(pid_of(tmp_path, who)) for who in LEVELS)


@pytest.mark.parametrize("stopped", LEVELS)
def test_the_end_of_a_launch_reaches_its_helpers_though_one_is_stopped(tmp_path, stopped, cleared):
    with (
        (tmp_path / "log").open("wb") as log,
        running(command(tmp_path), environment=os.environ, output=log),
    ):
        cleared += [pid_of(tmp_path, who) for who in LEVELS]
        os.kill(pid_of(tmp_path, stopped), signal.SIGSTOP)
    assert all(ended(pid) for pid in cleared)


@pytest.fixture
def interruptible():
    """Tests in the background of a shell are born deaf to interrupts."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    with signals.handled("test"):
        yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interruptible")
def test_a_second_interrupt_does_not_stop_the_clearing_up(tmp_path, cleared, monkeypatch):
    """A launcher's helper was left, and took half of a core: make had passed on a signal that dlscale had got, too."""
    monkeypatch.setattr(supervisor, "GRACE_SECONDS", 1.0)
    deaf = ["bash", "-c", "trap '' TERM; exec \"$@\"", "mpiexec"]
    second = threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT))

    def run():
        with running([*deaf, *command(tmp_path)], environment=os.environ, output=log):
            cleared.extend(pid_of(tmp_path, who) for who in LEVELS)
            second.start()

    with (tmp_path / "log").open("wb") as log, pytest.raises(KeyboardInterrupt):
        run()
    assert all(ended(pid) for pid in cleared)


ASKING = """
import sys
from pathlib import Path
from dlscale.base.definitions import Frozen
from dlscale.benchmarks.launch.environment import ask
ask(Path(sys.argv[1]), "module", "", answer=Frozen)
"""


def test_a_killed_dlscale_takes_the_python_that_it_asks_along(tmp_path, cleared):
    python = tmp_path / "python"
    python.write_text(f"#!/bin/sh\necho $$ > {tmp_path}/pid-0\nexec sleep 60\n")
    python.chmod(0o755)
    asking = subprocess.Popen([sys.executable, "-c", ASKING, str(python)])
    cleared.append(pid_of(tmp_path, "rank"))
    time.sleep(0.5)
    asking.kill()
    asking.wait()
    assert ended(cleared[0])


# Writes what a rank writes, and ends; its launcher never notices.
DEAF = """
import os, subprocess, sys, time
from pathlib import Path
from dlscale.benchmarks.records.spool import boot_id
from dlscale.benchmarks.records.spool import *
if sys.argv[1] == "rank":
    folder, rank, how = Path(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
    spool = SpoolWriter(folder, rank)
    own = {"local_rank": rank, "pid": os.getpid(), "node": "n", "boot_id": boot_id(), "affinity": []}
    spool.write(RankInfo(rank=rank, **own))
    if how == "dies" and rank == 1:
        time.sleep(0.4)
        os.kill(os.getpid(), 9)
    if how == "stops":
        for number in range(4):
            spool.write(MeasuredWindow(phase="steady", num_steps=1, start=0.01 * number, seconds=0.01), case=0)
        if rank == 1:
            os.kill(os.getpid(), 19)
    time.sleep(0.4)
    if how != "ends":
        time.sleep(60)
    spool.write(MeasuredWindow(phase="steady", num_steps=1, start=0.0, seconds=1.0), case=0)
    spool.write(CaseResult(steady=True, settings={}), case=0)
    spool.write(CaseEnd(peak_rss_bytes=1, load=None), case=0)
    spool.write(RankEnd(status=0))
else:
    print("output.log has mode", oct(os.fstat(1).st_mode & 0o777), flush=True)
    for rank in range(2):
        subprocess.Popen([sys.executable, "-c", sys.argv[2], "rank", sys.argv[3], str(rank), sys.argv[4]])
    time.sleep(60)
"""


@pytest.fixture
def supervised(tmp_path, make_record):
    """supervised(how): the record of such a launch."""
    record = make_record()
    store = Store(tmp_path / "study")
    store.open({"launches": []})
    folder = store.spool_folder / record.case.id

    def run(how):
        spec, metadata = launch_spec(record.case), metadata_of(record)
        command = [sys.executable, "-c", DEAF, "launcher", DEAF, str(folder), how]
        begin = time.monotonic()
        (found,) = supervise(
            PreparedLaunch(
                spec=spec, command=command, spool=folder, metadata=metadata, environment=os.environ
            ),
            store,
        )
        assert time.monotonic() - begin < 50, "its ranks would sleep for 60"
        return found

    return run


@pytest.mark.parametrize(("how", "failure"), [("ends", None), ("dies", "killed")])
def test_a_launcher_that_does_not_notice_the_end_is_not_waited_for(supervised, monkeypatch, how, failure):
    monkeypatch.setattr(supervisor, "UNNOTICED_SECONDS", 0.2)
    found = supervised(how)
    assert (found.failure and found.failure.kind) == failure
    if found.failure:
        assert found.failure.rank == 1
        assert "output.log has mode 0o600" in found.failure.log_tail


def test_a_stopped_rank_is_named_once_nothing_moves_for_long(supervised, monkeypatch):
    monkeypatch.setattr(supervisor, "STALL_SECONDS", 8.0)
    found = supervised("stops")
    assert (found.failure.kind, found.failure.rank) == ("hang", 1)
    assert "no rank wrote for " in found.failure.message
    assert len(found.windows) >= 4
