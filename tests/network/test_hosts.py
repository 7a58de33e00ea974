"""Hosts made of network namespaces: apart, joined by slow links, and gone afterwards."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from .hosts import run_on_hosts

HOSTS = [sys.executable, str(Path(__file__).with_name("hosts.py"))]

pytestmark = [
    pytest.mark.requires("mpiexec", "hydra", "namespaces"),
    pytest.mark.timeout(120),
    pytest.mark.nightly,
]

ABOUT_A_RANK = """
import socket, time
from mpi4py import MPI
import numpy as np
world = MPI.COMM_WORLD
values = np.ones(2**21, np.float32)
world.Barrier()
begin = time.perf_counter()
world.Allreduce(MPI.IN_PLACE, values)
seconds = world.allreduce(time.perf_counter() - begin, MPI.MAX)
node = world.Split_type(MPI.COMM_TYPE_SHARED)
told = world.gather((socket.gethostname(), node.Get_size(), float(values.max())))
if world.Get_rank() == 0:
    print(repr((told, seconds)))
"""


def on_hosts(*arguments, limit_seconds=100):
    return subprocess.run(
        [*HOSTS, *arguments], capture_output=True, text=True, timeout=limit_seconds, check=False
    )


def named(marker):
    """Processes with this word in their command line."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if marker.encode() in (folder / "cmdline").read_bytes().split(b"\0"):
                found.append(int(folder.name))
        except OSError:
            continue  # ended meanwhile
    return found


def gone(marker, seconds=10):
    deadline = time.monotonic() + seconds
    while named(marker) and time.monotonic() < deadline:
        time.sleep(0.05)
    return not named(marker)


def test_ranks_are_apart_and_talk_over_the_links():
    done = run_on_hosts(
        [sys.executable, "-c", ABOUT_A_RANK], num_hosts=4, ranks_per_host=2, slow_links={3: 0.5}
    )
    assert done.returncode == 0, done.stdout
    told, seconds = eval(done.stdout)  # noqa: S307  our own words
    assert told == [(f"h{host}", 2, 8.0) for host in (1, 1, 2, 2, 3, 3, 4, 4)]
    # Every host has to send 3/4 of 8 MiB twice, at 0.125 GB/s, and one of them at half of it.
    assert seconds > 0.16, "the links are not slow, or carry nothing"


def test_a_failure_is_passed_on():
    done = on_hosts("--hosts", "2", sys.executable, "-c", "import os; os.write(1, b'said\\n'); os._exit(3)")
    assert (done.returncode, done.stdout.split()) == (3, ["said", "said"])


def test_ranks_that_take_too_long_are_ended():
    marker = f"77{os.getpid()}"  # seconds to sleep, and recognised by
    done = on_hosts("--hosts", "2", "--limit-seconds", "1", "sleep", marker)
    assert done.returncode == 124
    assert gone(marker)


def test_nothing_outlives_a_killed_test_bed():
    marker = f"78{os.getpid()}"
    process = subprocess.Popen([*HOSTS, "--hosts", "2", "sleep", marker], start_new_session=True)
    deadline = time.monotonic() + 30
    while len(named(marker)) < 4 and time.monotonic() < deadline:  # the test bed, mpiexec and two ranks
        time.sleep(0.05)
    assert len(named(marker)) >= 4
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert gone(marker)
