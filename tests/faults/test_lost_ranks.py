"""A rank dies, is stopped, or does not come: the others say so, name it, and do not wait for ever."""

import random
import re
import signal
import time

import pytest

pytestmark = [pytest.mark.requires("mpiexec", "ring"), pytest.mark.timeout(180), pytest.mark.slow]

PATHS = ["inline", "one_shot", "staged", "single_copy", "push"]
# What waits is shown by one path inside a node and one between nodes.
WAITING = [
    *("single_copy", "network"),
    *(pytest.param(path, marks=pytest.mark.nightly) for path in PATHS if path != "single_copy"),
]
SOON_SECONDS = 25.0  # far below the timeout of 300 s, and enough on a very busy machine


@pytest.mark.parametrize("path", PATHS)
def test_a_killed_rank_is_named_dead_at_once(launch, path):
    ranks = launch("reduce_for_ever", num_ranks=3, path=path)
    ranks.wait_for("ready")
    time.sleep(random.Random(path).uniform(0, 0.1))  # noqa: S311
    ranks.signal(1, signal.SIGKILL)
    for error in ranks.wait_for("error", [0, 2], seconds=SOON_SECONDS):
        assert error["kind"] == "RuntimeError", error
        assert re.search(rf"rank 1 \(process {ranks.pid(1)}\) is dead", error["text"]), error


@pytest.mark.parametrize("killed", [0, 3])
def test_a_killed_rank_is_named_on_the_other_node_too(launch, killed):
    ranks = launch("reduce_for_ever", num_ranks=4, path="nodes")
    ranks.wait_for("ready")
    ranks.signal(killed, signal.SIGKILL)
    for error in ranks.wait_for("error", [rank for rank in range(4) if rank != killed], seconds=SOON_SECONDS):
        assert re.search(rf"rank {killed} \(process \d+\) is dead", error["text"]), error


def test_a_killed_rank_is_named_while_arguments_are_compared(launch):
    ranks = launch("reduce_for_ever", path="one_shot", debug=True)
    ranks.wait_for("ready")
    ranks.signal(1, signal.SIGKILL)
    (error,) = ranks.wait_for("error", [0], seconds=SOON_SECONDS)
    assert "rank 1" in error["text"], error
    assert "is dead" in error["text"], error


@pytest.mark.parametrize("path", WAITING)
def test_a_stopped_rank_is_late_at_the_timeout(launch, path):
    ranks = launch("reduce_for_ever", path=path, timeout_seconds=1.5)
    ranks.wait_for("ready")
    stopped = ranks.signal(1, signal.SIGSTOP)
    (error,) = ranks.wait_for("error", [0], seconds=1.5 + SOON_SECONDS)
    assert error["kind"] == "RuntimeError", error
    assert re.search(r"\brank 1\b.* late", error["text"]), error
    if path != "network":  # processes of other nodes cannot be looked at
        assert "alive but stopped" in error["text"]
    assert 1.4 < error["time"] - stopped < 1.5 + SOON_SECONDS


def goes_on(ranks, those=None):
    """Every rank, or those, beats again, later than now."""
    now = time.monotonic()
    while time.monotonic() < now + SOON_SECONDS:
        beats = ranks.wait_for("beat", those)
        if all(beat["time"] > now for beat in beats):
            return True
        time.sleep(0.02)
    return False


@pytest.mark.parametrize("path", WAITING)
def test_a_rank_that_is_stopped_for_a_while_is_waited_for(launch, path):
    ranks = launch("reduce_for_ever", path=path, timeout_seconds=30)
    ranks.wait_for("ready")
    for rank in (0, 1):
        ranks.signal(rank, signal.SIGSTOP)
        time.sleep(0.7)  # longer than every stage of waiting
        ranks.signal(rank, signal.SIGCONT)
        assert goes_on(ranks), ranks.story()


@pytest.mark.parametrize("path", ["staged", pytest.param("network", marks=pytest.mark.nightly)])
def test_a_job_that_is_suspended_as_a_whole_goes_on(launch, path):
    ranks = launch("reduce_for_ever", path=path, timeout_seconds=3)
    ranks.wait_for("ready")
    for rank in (1, 0):
        ranks.signal(rank, signal.SIGSTOP)
        time.sleep(0.2)  # rank 0 begins to wait for rank 1
    time.sleep(3.2)  # longer than the timeout
    for rank in (0, 1):
        ranks.signal(rank, signal.SIGCONT)
        time.sleep(0.2)  # longer than two ranks of one job are apart when they are continued
    assert goes_on(ranks), ranks.story()


def test_a_rank_that_ends_early_is_named_dead(launch):
    ranks = launch("leave_early", num_ranks=3, how="exit")
    for error in ranks.wait_for("error", [0, 1]):
        assert re.search(r"rank 2 \(process \d+\) is dead", error["text"]), error


def test_a_rank_that_raised_and_lives_is_late(launch):
    ranks = launch("leave_early", num_ranks=3, how="refuse", timeout_seconds=1)
    for error in ranks.wait_for("error", [0, 1]):
        assert re.search(r"rank 2 \(process \d+\) is late: it is alive but did not join", error["text"]), (
            error
        )
    assert ranks.events(2, "refused")


def says(ranks, text, seconds=10):
    end = time.monotonic() + seconds
    while text not in ranks.story():
        assert time.monotonic() < end, ranks.story()
        time.sleep(0.05)


def test_a_killed_worker_is_dropped_by_its_server_and_a_killed_server_is_named(launch):
    ranks = launch("train_over_server", num_ranks=3)
    ranks.wait_for("beat", [0, 1])
    ranks.signal(1, signal.SIGKILL)
    says(ranks, f"mpi_ps: worker 1 (process {ranks.pid(1)}) died and was dropped; 1 goes on")
    assert goes_on(ranks, [0]), ranks.story()
    ranks.signal(2, signal.SIGKILL)
    (error,) = ranks.wait_for("error", [0], seconds=SOON_SECONDS)
    expected = f"mpi_ps: server 0 (process {ranks.pid(2)}) died"
    assert error["text"] == expected, error


def test_a_worker_under_a_master_is_dropped_by_it_and_a_killed_master_is_named(launch):
    """Ranks 0 and 1 train, 2 is the super-master and 3 the master. Before, its gates and a comparison pass."""
    ranks = launch("train_over_server", num_ranks=4, masters=1)
    ranks.wait_for("beat", [0, 1])
    assert [event["passed"] for event in ranks.wait_for("gates", [0, 1])] == [[True, True]] * 2
    assert all(event["equal"] for event in ranks.wait_for("compared", [0, 1]))
    ranks.signal(1, signal.SIGKILL)
    says(ranks, f"mpi_ps: worker 1 (process {ranks.pid(1)}) died and was dropped; 1 goes on")
    ranks.signal(3, signal.SIGKILL)
    (error,) = ranks.wait_for("error", [0], seconds=SOON_SECONDS)
    expected = f"mpi_ps: master 0 (process {ranks.pid(3)}) died"
    assert error["text"] == expected, error
    dropped = f"mpi_ps: master 0 (process {ranks.pid(3)}) died and was dropped; 0 go on"
    says(ranks, dropped, SOON_SECONDS)
