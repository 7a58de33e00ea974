"""Why a launch ended: the rank that died first, not the one that a launcher finds dead first."""

import pytest

from dlscale.benchmarks.launch.causes import Death, who_died, why_it_ended
from dlscale.benchmarks.records.spool import Abort, RankEnd, RankError, RankSpool
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


def cause(status, ends, ranks, blamed=None, stopped=()):
    output = HYDRA_BLAMES.format(pid=blamed) if blamed else ""
    return why_it_ended(output, spools(*ranks), status=status, ends=ends, stopped=stopped)


@pytest.mark.parametrize("blamed", [None, 100, 101, 102])
def test_the_first_to_end_without_a_word_is_named_whomever_the_launcher_blames(blamed):
    failure = cause(9, {2: 10.0, 0: 10.0, 1: 10.1}, [[], [error(10.0)], []], blamed)
    assert (failure.kind, failure.rank) == ("killed", 2)
    assert failure.message == "rank 2 died" + " (Killed (signal 9))" * (blamed == 102)


ECHOED = [[], [error(8.0, "ValueError: x"), Abort(time=10.0)]]


@pytest.mark.parametrize(
    ("status", "ends", "ranks", "blamed", "expected"),
    [
        pytest.param(
            *(1, {0: 10.1, 1: 10.2}, ECHOED, 100, ("error", 1, "ValueError: x")),
            id="deaths after an abort are its echo",
        ),
        pytest.param(
            *(9, {1: 10.0, 0: 12.1}, [[error(10.0), Abort(time=12.0)], []], 100),
            ("killed", 1, "rank 1 died"),
            id="the abort after a death is the echo",
        ),
        pytest.param(
            *(9, {}, [[], []], 101, ("killed", 1, "rank 1 died (Killed (signal 9))")),
            id="without ends seen here the launcher is believed",
        ),
        pytest.param(
            *(9, {}, [None, None], 101),
            ("killed", None, "a process that never said its rank died (Killed (signal 9)); it printed: "),
            id="a death before the first line has no rank",
        ),
        pytest.param(
            *(1, {}, [[error(9.0, "B")], [error(8.0, "A")]], None, ("error", 1, "A")),
            id="of several errors the first is the cause",
        ),
        pytest.param(
            *(7, {0: 10.0}, [[END], None], None),
            ("error", None, "the launcher ended with exit status 7"),
            id="a status alone",
        ),
    ],
)
def test_what_came_first_is_the_cause(status, ends, ranks, blamed, expected):
    failure = cause(status, ends, ranks, blamed)
    assert (failure.kind, failure.rank) == expected[:2]
    assert failure.message.startswith(expected[2])


def test_ranks_that_ended_well_are_not_dead():
    assert cause(0, {0: 10.0, 1: 10.0}, [[END], [END]]) is None
    assert cause(0, {0: 10.0, 1: 10.0}, [[END], [END]], blamed=100) is None


@pytest.mark.parametrize("dies", [True, False])
def test_a_rank_that_others_gave_up_on_is_named_and_not_the_healthy_one_that_ended(dies):
    failure = cause(1, {0: 5.1}, [[] if dies else [error(5.0)], []], stopped=[1])
    assert (failure.kind, failure.rank) == ("hang", 1)
    assert ("rank 0 died" if dies else "the server went away") in failure.message
    killed = cause(9, {1: 5.1}, [[], []], stopped=[1])
    assert (killed.kind, killed.rank) == ("killed", 1)


@pytest.mark.parametrize(
    ("ranks", "stopped", "rank"), [([[], []], [1], 1), ([[], None], [], 1), ([[], []], [], None)]
)
def test_a_silence_is_a_hang_of_the_rank_that_is_stopped_or_missing(ranks, stopped, rank):
    failure = why_it_ended("", spools(*ranks), silence=300.0, ends={}, stopped=stopped)
    assert (failure.kind, failure.rank) == ("hang", rank)
    assert "no rank wrote for 300 s" in failure.message


def test_a_launch_that_ends_before_a_rank_starts_has_the_launchers_last_words():
    output = "x" * 300 + "\nsrun: error: Unknown host\nsrun: fatal: No source\n"
    failure = why_it_ended(output, spools(None, None), status=255, ends={})
    assert failure.message.startswith("the launcher ended with exit status 255; it printed: x")
    assert failure.message.endswith("x srun: error: Unknown host srun: fatal: No source")
    assert len(failure.message) < 300
    wrote = why_it_ended(output, spools([], None), status=255, ends={})
    assert "it printed" not in wrote.message


MPICH_DEATH = """
===================================================================================
=   BAD TERMINATION OF ONE OF YOUR APPLICATION PROCESSES
=   PID 4826 RUNNING AT node7
=   EXIT CODE: 9
=   CLEANING UP REMAINING PROCESSES
=   YOU CAN IGNORE THE BELOW CLEANUP MESSAGES
===================================================================================
YOUR APPLICATION TERMINATED WITH THE EXIT STRING: Killed (signal 9)
"""
OPENMPI_DEATH = """
prterun noticed that process rank 1 with PID 4852 on node node7 exited on
signal 9 (Killed).
"""
OPENMPI_EXIT = """
thus causing the job to be terminated. The first process to do so was:

   Process name: [prterun-node7-4882@1,1]
   Exit code:    3
"""

# The words of Slurm are those of src/srun/launch.c: hosts, tasks, strsignal.
SRUN_DEATH = """
slurmstepd: error: *** STEP 17.3 ON nid00001 CANCELLED AT 2026-01-01T00:00:00 ***
srun: error: nid00001: task 3: Killed
srun: Terminating StepId=17.3
srun: error: nid00002: tasks 4-7: Terminated
"""
SRUN_EXIT = "srun: error: nid[00001-00002]: tasks 2,4-7: Exited with exit code 255\n"
SRUN_MEMORY = "srun: error: nid00002: task 12: Out Of Memory\n"
SRUN_NOBODY = (
    "srun: error: Node failure on nid00002\nsrun: error: task 0 launch failed: Slurmd could not execve job\n"
)
# As in logs of Cray XC machines that their users published.
APRUN_DEATH = """
_pmiu_daemon(SIGCHLD): [NID 06768] [c7-2c0s12n0] [Mon Jun  5 15:41:51 2023] PE RANK 342 exit signal Killed
[NID 06768] 2023-06-05 15:41:51 Apid 196964917: initiated application termination
"""
# flux-core, src/shell/doom.c.
FLUX_DEATH = (
    "1.2s: flux-shell[0]: FATAL: doom: python: task rank 3 on host fluke2 failed (Segmentation fault) "
    "and exit-on-error is set"
)
FLUX_EXIT = "python: task rank 0 on host fluke2 failed (Exit 2) and exit-on-error is set"
FLUX_OLD = "python: task rank 5 on host fluke2 failed and exit-on-error is set"

# argonne-lcf/user-guides, docs/aurora/applications-and-libraries/libraries/mpi.md, and a log of that centre's.
PALS_DEATH = "x4117c3s3b0n0.hsn.cm.aurora.alcf.anl.gov: rank 0 died from signal 6 and dumped core\n"
PALS_EXIT = "x3200c0s1b1n0: rank 1 died from signal 15\nx3200c0s19b1n0: rank 0 exited with code 134\n"

# torch 2.13, torch/distributed/elastic/multiprocessing/errors: what it ended itself comes first.
TORCHRUN = """
Failures:
[1]:
  time      : 2026-01-01_00:00:00
  host      : localhost
  rank      : 0 (local_rank: 0)
  exitcode  : -15 (pid: 3696)  (SIGTERM)
  error_file: <N/A>
  traceback : Signal 15 (SIGTERM) received by PID 3696
------------------------------------------------------
Root Cause (first observed failure):
[0]:
  time      : 2026-01-01_00:00:00
  host      : localhost
  rank      : 1 (local_rank: 1)
  exitcode  : {}
  error_file: <N/A>
  traceback : {}
======================================================
"""
TORCHRUN_DEATH = TORCHRUN.format("-9 (pid: 3698)  (SIGKILL)", "Signal 9 (SIGKILL) received by PID 3698")
TORCHRUN_EXIT = TORCHRUN.format("7 (pid: 3821)", "To enable traceback see: https://pytorch.org/docs")


@pytest.mark.parametrize(
    ("text", "death"),
    [
        (TORCHRUN_DEATH, Death("Signal 9 (SIGKILL)", rank=1)),
        (TORCHRUN_EXIT, Death("exitcode : 7", rank=1)),
        (SRUN_DEATH, Death("Killed", rank=3)),
        (SRUN_EXIT, Death("Exited with exit code 255", rank=2)),
        (SRUN_MEMORY, Death("Out Of Memory", rank=12)),
        (SRUN_NOBODY, None),
        (APRUN_DEATH, Death("exit signal Killed", rank=342)),
        (FLUX_DEATH, Death("Segmentation fault", rank=3)),
        (FLUX_EXIT, Death("Exit 2", rank=0)),
        (FLUX_OLD, Death("failed", rank=5)),
        (PALS_DEATH, Death("signal 6", rank=0)),
        (PALS_EXIT, Death("exited with code 134", rank=0)),
        (MPICH_DEATH, Death("Killed (signal 9)", pid=4826)),
        (OPENMPI_DEATH, Death("signal 9", rank=1)),
        (OPENMPI_EXIT, Death("Exit code: 3", rank=1)),
        ("all went well", None),
    ],
)
def test_who_died(text: str, death: Death | None):
    assert who_died(text) == death
