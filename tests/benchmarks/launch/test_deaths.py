"""What launchers' last words say."""

import pytest

from dlscale.benchmarks.launch.causes import Death, who_died

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
        (TORCHRUN_DEATH, Death(rank=1, how="Signal 9 (SIGKILL)")),
        (TORCHRUN_EXIT, Death(rank=1, how="exitcode : 7")),
        (SRUN_DEATH, Death(rank=3, how="Killed")),
        (SRUN_EXIT, Death(rank=2, how="Exited with exit code 255")),
        (SRUN_MEMORY, Death(rank=12, how="Out Of Memory")),
        (SRUN_NOBODY, None),
        (APRUN_DEATH, Death(rank=342, how="exit signal Killed")),
        (FLUX_DEATH, Death(rank=3, how="Segmentation fault")),
        (FLUX_EXIT, Death(rank=0, how="Exit 2")),
        (FLUX_OLD, Death(rank=5, how="failed")),
        (PALS_DEATH, Death(rank=0, how="signal 6")),
        (PALS_EXIT, Death(rank=0, how="exited with code 134")),
        (MPICH_DEATH, Death(pid=4826, how="Killed (signal 9)")),
        (OPENMPI_DEATH, Death(rank=1, how="signal 9")),
        (OPENMPI_EXIT, Death(rank=1, how="Exit code: 3")),
        ("all went well", None),
    ],
)
def test_who_died(text: str, death: Death | None):
    assert who_died(text) == death
