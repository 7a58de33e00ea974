"""Shared memory that is private, leaves nothing behind, and does not run out later.

/dev/shm is the whole machine's, so these tests have one of their own.
"""

import os
import random
import shutil
import signal
import stat
import subprocess
import time
from functools import partial
from pathlib import Path

import pytest

pytestmark = [pytest.mark.requires("mpiexec", "ring"), pytest.mark.timeout(180), pytest.mark.slow]

HERE = Path(__file__).parent
SHM = Path("/dev/shm")  # noqa: S108
JOIN_SECONDS = 60


@pytest.fixture(scope="session")
def slow_calls(tmp_path_factory):
    """slow_calls(STOP_AT=..., LOCK_DELAY=...): the environment of ranks with such calls; see slow_calls.c."""
    library = tmp_path_factory.mktemp("library") / "slow_calls.so"
    compiler = os.environ.get("CC", "cc")
    subprocess.run(
        [compiler, "-shared", "-fPIC", "-O1", str(HERE / "slow_calls.c"), "-o", str(library), "-ldl"],
        check=True,
    )

    def environment(**settings):
        return {"LD_PRELOAD": str(library)} | {f"SLOW_CALLS_{k}": str(v) for k, v in settings.items()}

    return environment


def wait_until(condition, seconds=JOIN_SECONDS):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "nothing happened"
        time.sleep(0.01)


@pytest.fixture
def shm():
    """A /dev/shm that no other test's ranks put files into or sweep: (what is put before launchers, its folder).

    Only root can make one; others look at the machine's.
    """
    if os.geteuid() or shutil.which("unshare") is None:
        yield (), SHM
        return
    mount = "mount -t tmpfs tmpfs /dev/shm && echo ready && exec sleep 600"
    command = ["unshare", "--mount", "--propagation", "private", "sh", "-c", mount]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as holder:
        try:
            assert holder.stdout.readline() == "ready\n"
            yield (("nsenter", f"--mount=/proc/{holder.pid}/ns/mnt"), Path(f"/proc/{holder.pid}/root{SHM}"))
        finally:
            holder.kill()


@pytest.fixture
def launch(launch, shm):
    """The same with that /dev/shm, unless a test puts something else before the launcher."""
    return partial(launch, before=shm[0])


@pytest.fixture
def own_files(shm):
    """own_files(): names of the ring's files in /dev/shm."""
    return lambda: sorted(path.name for path in shm[1].glob("dlscale-ring-*"))


@pytest.mark.parametrize("path", ["staged", "push"])
def test_a_killed_rank_is_named_dead_and_leaves_no_files(launch, path, own_files):
    ranks = launch("reduce_for_ever", num_ranks=3, path=path, shared_memory="shm")
    ranks.wait_for("ready")
    time.sleep(random.Random(path).uniform(0, 0.1))  # noqa: S311
    ranks.signal(1, signal.SIGKILL)
    for error in ranks.wait_for("error", [0, 2]):
        assert f"rank 1 (process {ranks.pid(1)}) is dead" in error["text"], error
    assert not own_files()


def test_all_ranks_killed_leave_nothing_behind(launch, own_files):
    for shared_memory in ("memfd", "shm"):
        ranks = launch("reduce_for_ever", path="push", shared_memory=shared_memory)
        ranks.wait_for("ready")
        for rank in (0, 1):
            ranks.signal(rank, signal.SIGKILL)
        assert not own_files()


@pytest.mark.requires("compiler")
def test_files_are_private_and_swept_once_their_program_was_killed(launch, slow_calls, shm, own_files):
    paused = launch("join", shared_memory="shm", environment=slow_calls(STOP_AT="posix_fallocate"))
    wait_until(lambda: len(own_files()) == 2)
    for name in own_files():
        status = (shm[1] / name).stat()
        assert stat.S_IMODE(status.st_mode) == 0o600
        assert status.st_uid == os.geteuid()
    left = own_files()

    other = launch("join", shared_memory="shm")  # what belongs to a living program stays
    other.wait_for("joined")
    assert own_files() == left

    for rank in (0, 1):
        paused.signal(rank, signal.SIGKILL)
    wait_until(lambda: paused.is_gone(0) and paused.is_gone(1))
    assert own_files() == left
    launch("join", shared_memory="shm").wait_for("joined")
    assert not own_files()


@pytest.mark.requires("compiler")
def test_a_sweep_spares_files_that_are_not_locked_yet(launch, slow_calls, own_files):
    slowly = slow_calls(LOCK_DELAY=20_000)
    both = [launch("join_often", num_ranks=3, environment=slowly, shared_memory="shm") for _ in range(2)]
    for ranks in both:
        ranks.wait_for("joined")
    assert not own_files()


def in_a_small_shm(size):
    """A prefix for commands: they see a /dev/shm of their own, of that size."""
    script = f'mount -t tmpfs -o size={size} tmpfs /dev/shm && exec "$@"'
    return ["unshare", "--mount", "--propagation", "private", "sh", "-c", script, "small"]


@pytest.mark.requires("root")
@pytest.mark.skipif(shutil.which("unshare") is None, reason="no unshare")
@pytest.mark.parametrize("what", ["join", "empty"])
def test_a_small_dev_shm_is_an_error_and_no_crash(launch, what):
    ranks = launch("in_little_room", what=what, shared_memory="shm", before=in_a_small_shm("200m"))
    errors = ranks.wait_for("refused")
    for error in errors:
        assert error["kind"] == {"join": "RuntimeError", "empty": "MemoryError"}[what]
        assert f"{SHM} cannot give" in error["text"]
        assert "--shm-size" in error["text"]
    ranks.wait_for("end")


def test_more_than_there_is_memory_is_refused_before_it_is_taken(launch):
    for shared_memory in ("memfd", "shm"):
        ranks = launch("too_much", shared_memory=shared_memory)
        for error in ranks.wait_for("refused"):
            assert error["kind"] == "MemoryError"
            assert "KiB" in error["text"]
        ranks.wait_for("end")


def test_where_memory_files_cannot_be_opened_named_ones_serve(launch, own_files):
    ranks = launch("closed_to_others", shared_memory="auto")
    for event in ranks.wait_for("joined"):
        assert event["kind"] == "shm"
        assert event["single_copy"] == "process_vm_readv: Operation not permitted"
    ranks.wait_for("end")
    assert not own_files()


def test_where_memory_files_were_asked_for_and_cannot_be_opened_it_says_so(launch):
    ranks = launch("closed_to_others", shared_memory="memfd")
    for error in ranks.wait_for("refused"):
        assert "opening another rank's memory through /proc: Permission denied" in error["text"]


@pytest.mark.requires("root")
@pytest.mark.skipif(shutil.which("unshare") is None, reason="no unshare")
def test_ranks_in_process_namespaces_of_their_own_find_each_other(launch, open_mpi):
    if open_mpi:
        pytest.skip("Open MPI 5 itself crashes there")
    ranks = launch(
        "join_and_reduce",
        shared_memory="auto",
        around=["unshare", "--pid", "--fork", "--mount", "--mount-proc"],
        timeout_seconds=10,
    )
    for event in ranks.wait_for("reduced"):
        assert event["kind"] == "shm"
        assert event["single_copy"] == "ranks are in different process namespaces"
