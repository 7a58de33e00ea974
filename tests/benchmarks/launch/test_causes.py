"""Why a launch ended: the rank that died first, not the one that a launcher finds dead first."""

import math

import pytest

from dlscale.benchmarks.launch import causes
from dlscale.benchmarks.launch.causes import End
from dlscale.benchmarks.records.spool import (
    Abort,
    CaseResult,
    MeasuredWindow,
    Phase,
    RankEnd,
    RankError,
    RankSpool,
)
from tests.benchmarks.spools import rank_info

HYDRA_BLAMES = (
    "= BAD TERMINATION\n=   PID {pid} RUNNING AT here\n=   EXIT CODE: 9\nEXIT STRING: Killed (signal 9)\n"
)


def spools(*ranks):
    """One spool per rank, from its events besides the first; None for a rank that never wrote."""
    made = []
    for rank, events in enumerate(ranks):
        spool = RankSpool(rank)
        if events is not None:
            spool.events = [(None, event) for event in (rank_info(rank), *events)]
        made.append(spool)
    return made


def error(time, message="RuntimeError: the server went away"):
    return RankError(time=time, message=message, traceback="")


END = RankEnd(status=0)


def cause(status, ends, ranks, blamed=None):
    output = HYDRA_BLAMES.format(pid=blamed) if blamed else ""
    return causes.failure_of_an_end(status, output, [End(*end) for end in ends], spools(*ranks), num_ranks=2)


@pytest.mark.parametrize("blamed", [None, 100, 101, 102])
def test_the_first_to_end_without_a_word_is_named_whomever_the_launcher_blames(blamed):
    failure = cause(9, [(2, 10.0), (0, 10.0), (1, 10.1)], [[], [error(10.0)], []], blamed)
    assert (failure.kind, failure.rank) == ("killed", 2)
    how = " (Killed (signal 9))" if blamed == 102 else ""
    assert failure.message.startswith(f"server 0 (rank 2) died{how}; ")


@pytest.mark.parametrize(
    ("status", "ends", "ranks", "blamed", "kind", "rank", "message"),
    [
        pytest.param(
            *(1, [(0, 10.1), (1, 10.2)], [[], [error(8.0, "ValueError: x"), Abort(time=10.0)]], 100),
            *("error", 1, "ValueError: x"),
            id="deaths after an abort are its echo",
        ),
        pytest.param(
            *(
                9,
                [(1, 10.0), (0, 12.1)],
                [[error(10.0), Abort(time=12.0)], []],
                100,
                "killed",
                1,
                "rank 1 died",
            ),
            id="the abort after a death is the echo",
        ),
        pytest.param(
            *(9, [], [[], []], 101, "killed", 1, "rank 1 died (Killed (signal 9))"),
            id="without ends seen here the launcher is believed",
        ),
        pytest.param(
            *(9, [], [None, None], 101, "killed", None),
            "a process that never said its rank died (Killed (signal 9))",
            id="a death before the first line has no rank",
        ),
        pytest.param(
            *(1, [], [[error(9.0, "B")], [error(8.0, "A")]], None, "error", 1, "A"),
            id="of several errors the first is the cause",
        ),
    ],
)
def test_what_came_first_is_the_cause(status, ends, ranks, blamed, kind, rank, message):
    failure = cause(status, ends, ranks, blamed)
    assert (failure.kind, failure.rank) == (kind, rank)
    assert failure.message.startswith(message)


def test_ranks_that_ended_well_are_not_dead():
    assert cause(0, [(0, 10.0), (1, 10.0)], [[END], [END]]) is None
    assert cause(0, [(0, 10.0), (1, 10.0)], [[END], [END]], blamed=100) is None


def test_a_status_alone_is_reported_with_how_far_the_ranks_came():
    failure = cause(7, [(0, 10.0)], [[END], None])
    assert failure.message == (
        "the launcher ended with exit status 7; finished windows per rank, warm-up steps included: 0, 0"
    )


TENSORFLOW = (
    "UNAVAILABLE: The following tasks are unhealthy (stopped sending heartbeats):\n"
    "/job:worker/replica:0/task:1\nThe tasks have crashed. Check the task logs for an earlier error"
)


@pytest.mark.parametrize("dies", [True, False])
@pytest.mark.parametrize(("stopped", "output"), [([1], ""), ([], TENSORFLOW), ([1], TENSORFLOW)])
def test_a_rank_that_others_gave_up_on_is_named_and_not_the_healthy_one_that_ended(dies, stopped, output):
    ranks = spools([] if dies else [error(5.0)], [])
    failure = causes.failure_of_an_end(1, output, [End(0, 5.1)], ranks, num_ranks=2, stopped=stopped)
    assert (failure.kind, failure.rank) == ("hang", 1)
    assert failure.message.startswith("rank 1 is stopped, and so ended the launch; ")
    assert ("rank 0 died" if dies else "the server went away") in failure.message


def test_a_stopped_rank_that_was_killed_died():
    failure = causes.failure_of_an_end(9, "", [End(1, 5.1)], spools([], []), num_ranks=2, stopped=[1])
    assert (failure.kind, failure.rank) == ("killed", 1)


@pytest.mark.parametrize(
    ("text", "hinted"),
    [
        ("EXIT STRING: Bus error (signal 7)", True),
        ("shm_open(/ucx_shm_posix_1) failed: No space left on device", True),
        ("posix_fallocate on /dev/shm/x: Cannot allocate memory", True),
        ("EXIT STRING: Killed (signal 9)", False),
        ("write: No space left on device", False),
    ],
)
def test_a_full_dev_shm_is_named_where_it_may_be_the_cause(monkeypatch, tmp_path, text, hinted):
    monkeypatch.setattr(causes, "SHARED_MEMORY", str(tmp_path))
    output = f"= BAD TERMINATION\n=   PID 101 RUNNING AT here\n=   EXIT CODE: 9\n{text}\nEXIT STRING: x\n"
    failure = causes.failure_of_an_end(9, output, [End(1, 5.1)], spools([], []), num_ranks=2)
    assert (failure.kind, failure.rank) == ("killed", 1)
    assert (f"{tmp_path} has " in failure.message) == hinted
    assert ("--shm-size" in failure.message) == hinted


def windows(interval, count=5, phase="steady"):
    return [
        MeasuredWindow(phase=phase, num_steps=2, start=interval * number, seconds=0.9 * interval)
        for number in range(count)
    ]


@pytest.mark.parametrize(
    ("events", "seconds"),
    [
        ([windows(0.2), windows(0.2)], 60.0),  # never shorter
        ([windows(4.0), windows(3.0)], 120.0),  # of the slowest rank
        ([windows(0.2, count=2), windows(0.2)], math.inf),  # too few
        ([windows(0.2, phase="warmup"), windows(0.2)], math.inf),  # steady windows have more steps
        (
            [[*windows(0.2), CaseResult(steady=True, settings={})], windows(0.2)],
            math.inf,
        ),  # no window is next
        ([[*windows(0.2), Phase(name="gates", seconds=1.0)], windows(0.2)], math.inf),
        ([None, windows(0.2)], math.inf),
    ],
)
def test_how_long_a_silence_may_be_is_learnt_from_the_windows(events, seconds):
    assert causes.learnt_stall(spools(*events)) == pytest.approx(seconds)


def test_a_new_case_is_not_judged_by_the_one_before():
    spool = RankSpool(0, [(0, window) for window in windows(0.1)] + [(1, window) for window in windows(9.0)])
    assert causes.learnt_stall([spool]) == pytest.approx(270.0)


# What launchers print where no rank starts, and what a user is to read of it.
SRUN = "srun: error: Unknown host\nsrun: fatal: No source\n[mpiexec@a] main: process manager error\n"
NO_PROGRAM = (
    "[proxy:0@vm] HYDU_create_process (a.c:73): execvp error on file /x (No such file or directory)\n"
)
READ_ONLY = (
    "[17.6] [vm:1:0] uct.c:238  UCX  ERROR shm_open(file_name=/ucx_1) failed: Read-only file system\nAbort\n"
)
NO_HOST = "\nssh: Could not resolve hostname node01: Name or service not known\n"


@pytest.mark.parametrize(
    ("output", "words"),
    [
        (SRUN, "it printed: srun: error: Unknown host"),
        (
            NO_PROGRAM,
            "it printed: HYDU_create_process (a.c:73): execvp error on file /x (No such file or directory)",
        ),
        (
            READ_ONLY,
            "it printed: uct.c:238 UCX ERROR shm_open(file_name=/ucx_1) failed: Read-only file system; ranks exchange",
        ),
        (NO_HOST, "it printed: ssh: Could not resolve hostname node01: Name or service not known"),
        ("starting\nbye\n", "it printed: bye"),
    ],
)
def test_a_launch_that_ends_before_a_rank_starts_has_the_launchers_last_words(output, words):
    failure = causes.failure_of_an_end(255, output, [], spools(None, None), num_ranks=2)
    assert failure.message.startswith("the launcher ended with exit status 255; ")
    assert words in failure.message
    stalled = causes.failure_of_a_stall(spools(None, None), 300, output=output)
    assert words.removesuffix("; ranks exchange") in stalled.message
    wrote = causes.failure_of_an_end(255, output, [], spools([], None), num_ranks=2)
    assert "it printed" not in wrote.message
