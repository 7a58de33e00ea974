"""Each scheduler's commands, and what its answers mean."""

import subprocess
from pathlib import Path

import pytest

from dlscale.base import schedulers
from dlscale.benchmarks.jobs.scheduler import END_TIME_VARIABLE, NAMES, NODES_VARIABLE, Scheduler, scheduler
from dlscale.benchmarks.launch.launchers import LAUNCHERS


@pytest.mark.parametrize(
    ("name", "command"),
    [
        ("slurm", "sbatch --parsable /s/job.sh"),
        ("pbs", "qsub /s/job.sh"),
        ("torque", "qsub /s/job.sh"),
        ("cobalt", "qsub --mode script /s/job.sh"),
        ("flux", "flux batch /s/job.sh"),
    ],
)
def test_submission(name: str, command: str):
    assert " ".join(scheduler(name).submit(Path("/s/job.sh"))) == command


def test_bsub_reads_the_script_on_stdin(tmp_path: Path):
    script = tmp_path / "a job.sh"
    script.write_text("#BSUB -J x\n")
    fake = tmp_path / "bsub"
    fake.write_text("#!/bin/sh\ncat\n")
    fake.chmod(0o755)
    command = scheduler("lsf").submit(script)
    done = subprocess.run(command, env={"PATH": f"{tmp_path}:/usr/bin:/bin"}, capture_output=True, check=True)
    assert done.stdout == b"#BSUB -J x\n"


@pytest.mark.parametrize(
    ("name", "text", "job"),
    [
        ("slurm", "4711\n", "4711"),
        ("slurm", "4711;perlmutter\n", "4711"),
        ("slurm", "sbatch: your budget is low\n4711\n", "4711"),
        ("pbs", "4711.pbs-server\n", "4711.pbs-server"),
        ("torque", "4711.sn-mgmt.seawulf.edu\n", "4711.sn-mgmt.seawulf.edu"),
        ("cobalt", 'Job routed to queue "default".\nMemory mode set to cache quad\n4711\n', "4711"),
        ("lsf", "Job <4711> is submitted to queue <batch>.\n", "4711"),
        ("flux", "ƒM7Zq9AKHno\n", "fM7Zq9AKHno"),
        ("flux", "fM7Zq9AKHno\n", "fM7Zq9AKHno"),
    ],
)
def test_job_ids(name: str, text: str, job: str):
    assert scheduler(name).job_id(text) == job


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("text", ["", "error: no such queue\n"])
def test_no_job_id(name: str, text: str):
    with pytest.raises(ValueError, match="printed no job id"):
        scheduler(name).job_id(text)


@pytest.mark.parametrize(
    ("name", "command"),
    [
        ("slurm", "squeue --noheader --states=all --format=%i %T --jobs=1,2"),
        ("pbs", "qstat -x -f 1 2"),
        ("torque", "qstat -f 1 2"),
        ("cobalt", "qstat --header JobID:State 1 2"),
        ("lsf", "bjobs -noheader -o jobid stat 1 2"),
        ("flux", "flux jobs --no-header --format={id} {state} 1 2"),
    ],
)
def test_queries(name: str, command: str):
    assert " ".join(scheduler(name).query(["1", "2"])) == command


PBS_TEXT = """Job Id: 1.server.example.org
    Job_Name = weak-job-000
    job_state = Q
    queue = workq
    Variable_List = PBS_O_HOME=/home/x,PBS_O_PATH=/bin:/usr/bin,
\tjob_state=no
Job Id: 2.server.example.org
    job_state = R

Job Id: 3.server.example.org
    job_state = {ended}
"""


@pytest.mark.parametrize(
    ("name", "ids", "text"),
    [
        ("slurm", "1234", "1 PENDING\n2 CONFIGURING\n3 NODE_FAIL\n"),
        ("slurm", "1234", "3 CANCELLED\n2 COMPLETING\n1 REQUEUED\n99 RUNNING\n"),
        (
            "cobalt",
            "1234",
            "JobID  State\n===============\n1      dep_hold\n2      starting\n3      dep_fail\n",
        ),
        ("lsf", "1234", "1 PEND\n2 SSUSP\n3 EXIT\n"),
    ],
)
def test_states(name: str, ids: str, text: str):
    found = scheduler(name).states(text, list(ids))
    assert found == {"1": "pending", "2": "running", "3": "ended", "4": "unknown"}


@pytest.mark.parametrize(("name", "ended"), [("pbs", "F"), ("torque", "C")])
def test_states_of_pbs(name: str, ended: str):
    ids = ["1.server", "2.server", "3.server", "4.server"]
    found = scheduler(name).states(PBS_TEXT.format(ended=ended), ids)
    assert [found[one] for one in ids] == ["pending", "running", "ended", "unknown"]


def test_states_of_flux():
    found = scheduler("flux").states("ƒM7 SCHED\nfN8 CLEANUP\nƒP9 INACTIVE\n", ["fM7", "fN8", "fP9", "fQ1"])
    assert found == {"fM7": "pending", "fN8": "running", "fP9": "ended", "fQ1": "unknown"}


@pytest.mark.parametrize(
    ("name", "errors"),
    [
        ("slurm", "slurm_load_jobs error: Invalid job id specified\n"),
        ("pbs", "qstat: Unknown Job Id 4711.server\n"),
        ("torque", "qstat: Unknown Job Id Error 4711.server\n"),
        ("cobalt", ""),
        ("lsf", "Job <4711> is not found\n"),
        ("flux", "flux-jobs: ERROR: JobID fM7 unknown\n"),
    ],
)
def test_a_forgotten_job_is_told_from_a_scheduler_that_is_down(name: str, errors: str):
    assert scheduler(name).forgot(errors)
    assert not scheduler(name).forgot("error: Unable to contact the controller (connect failure)\n")


@pytest.mark.parametrize(
    ("name", "command"),
    [
        ("slurm", "scancel 1"), ("pbs", "qdel 1"), ("torque", "qdel 1"), ("cobalt", "qdel 1"), ("lsf", "bkill 1"),
        ("flux", "flux cancel 1"),
    ],
)  # fmt: skip
def test_cancelling(name: str, command: str):
    assert " ".join(scheduler(name).cancel("1")) == command


@pytest.mark.parametrize(
    ("name", "variable", "lines", "nodes"),
    [
        ("pbs", "PBS_NODEFILE", "n2\nn2\nn10\nn10\n", ["n2", "n10"]),
        ("torque", "PBS_NODEFILE", "n2\nn2\nn10\nn10\n", ["n2", "n10"]),
        ("cobalt", "COBALT_NODEFILE", "cc001\ncc002\n", ["cc001", "cc002"]),
        ("lsf", "LSB_DJOB_HOSTFILE", "batch5\n" + "a01n01\n" * 42 + "a01n02\n" * 42, ["a01n01", "a01n02"]),
        ("lsf", "LSB_DJOB_HOSTFILE", "login1.summit\na01n01\n", ["a01n01"]),
        ("lsf", "LSB_DJOB_HOSTFILE", "n1\nn1\n", ["n1"]),
    ],
)
def test_nodes_from_files(name: str, variable: str, lines: str, nodes: list[str], tmp_path: Path):
    file = tmp_path / "nodes"
    file.write_text(lines)
    assert scheduler(name).nodes({variable: str(file)}) == nodes


def test_nodes_from_variables():
    assert scheduler("slurm").nodes({"SLURM_JOB_NODELIST": "nid0000[1-2]"}) == ["nid00001", "nid00002"]
    assert scheduler("cobalt").nodes({"COBALT_PARTNAME": "3829-3830,40"}) == ["3829", "3830", "40"]
    assert scheduler("flux").nodes({NODES_VARIABLE: "corona[7-8]"}) == ["corona7", "corona8"]


@pytest.mark.parametrize("name", NAMES)
def test_outside_a_job_there_are_no_nodes(name: str):
    with pytest.raises(ValueError, match="not inside a job"):
        scheduler(name).nodes({})


@pytest.mark.parametrize(
    ("name", "variable"), [("slurm", "SLURM_JOB_END_TIME"), ("cobalt", "COBALT_ENDTIME")]
)
def test_a_scheduler_knows_the_end_better_than_the_script(name: str, variable: str):
    assert scheduler(name).end_time({variable: "1700000000", END_TIME_VARIABLE: "1"}) == 1.7e9


@pytest.mark.parametrize("name", NAMES)
def test_the_script_says_when_the_scheduler_does_not(name: str):
    assert scheduler(name).end_time({END_TIME_VARIABLE: "1700000000"}) == 1.7e9
    assert scheduler(name).end_time({}) is None


def test_requeues():
    assert scheduler("slurm").requeues({"SLURM_RESTART_COUNT": "2"}) == 2
    assert scheduler("slurm").requeues({"SLURM_RESTART_COUNT": "inf"}) == 0
    assert scheduler("lsf").requeues({"LSB_RESTART": "Y"}) == 1
    assert [scheduler(name).requeues({}) for name in NAMES] == [0] * len(NAMES)


def test_a_system_without_a_scheduler_has_no_functions():
    with pytest.raises(ValueError, match="no scheduler 'none'"):
        scheduler("none")


def test_what_the_fact_sheets_name_can_be_used():
    names = [facts.name for facts in schedulers.SCHEDULERS]
    assert all(isinstance(scheduler(name), Scheduler) for name in names)
    assert {facts.name for facts in schedulers.LAUNCHERS} == {"mpiexec", *LAUNCHERS}
    assert {name for facts in schedulers.LAUNCHERS for name in facts.schedulers} <= set(names)
