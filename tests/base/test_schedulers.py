"""Each scheduler's directives and commands, and what its answers mean."""

import re
import subprocess
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from dlscale.base.batch import END_TIME_VARIABLE, NODES_VARIABLE, JobRequest
from dlscale.base.errors import UsageError
from dlscale.base.launchers import LAUNCHERS
from dlscale.base.schedulers import SCHEDULERS

REQUEST = JobRequest(
    name="weak-job-000",
    num_nodes=4,
    ranks_per_node=2,
    seconds=7201,
    account="abc123",
    output="jobs/job-000.log",
    folder="/scratch/study",
    cores_per_node=28,
    cpus_per_rank=14,
)
PBS_STATES = "Job Id: 1.server.org\n    job_state = Q\n    Variable_List = A=1,\n\tjob_state=no\n" + (
    "Job Id: 2.server.org\n    job_state = R\n\nJob Id: 3.server.org\n    job_state = %s\n"
)


@dataclass(frozen=True, kw_only=True)
class Case:
    """One scheduler: its directives, what it prints, and the commands that it is given."""

    marker: str
    directives: str  # of REQUEST
    submit: str
    accepted: dict[str, str]  # what a submission prints -> the id
    query: str
    states: list[str]  # in which jobs 1, 2 and 3 are pending, running and ended
    forgotten: str
    nodes: list[tuple[str, str, list[str]]]  # variable, its value or its file's lines, nodes
    ids: str = "1 2 3 4"
    end_time: str = ""  # its own variable
    refused: str = ""  # a folder that it would read otherwise


LOG = "/scratch/study/jobs/job-000.log"
PBS = Case(
    marker="#PBS",
    directives="-N weak-job-000|-l select=4:ncpus=28:mpiprocs=2|-l place=scatter:excl|-l walltime=02:01:00|-j oe|"
    f"-o {LOG}|-r y|-A abc123",
    submit="qsub",
    accepted={"4711.pbs-server\n": "4711.pbs-server"},
    query="qstat -x -f 1 2",
    ids="1.server 2.server 3.server 4.server",
    states=[PBS_STATES % "F"],
    forgotten="qstat: Unknown Job Id 4711.server\n",
    nodes=[("PBS_NODEFILE", "n2\nn2\nn10\nn10\n", ["n2", "n10"])],
    refused="/a:b",
)
CASES = {
    "slurm": Case(
        marker="#SBATCH",
        directives="--job-name=weak-job-000|--nodes=4|--ntasks-per-node=2|--cpus-per-task=14|--exclusive|"
        f"--time=02:01:00|--chdir=/scratch/study|--output={LOG}|--open-mode=append|--requeue|--signal=B:TERM@120|"
        "--account=abc123",
        submit="sbatch --parsable",
        accepted={"4711\n": "4711", "4711;cluster\n": "4711", "sbatch: your budget is low\n4711\n": "4711"},
        query="squeue --noheader --states=all --format=%i %T --jobs=1,2",
        states=[
            "1 PENDING\n2 CONFIGURING\n3 NODE_FAIL\n",
            "3 CANCELLED\n2 COMPLETING\n1 REQUEUED\n99 RUNNING\n",
        ],
        forgotten="slurm_load_jobs error: Invalid job id specified\n",
        nodes=[("SLURM_JOB_NODELIST", "nid0000[1-2]", ["nid00001", "nid00002"])],
        end_time="SLURM_JOB_END_TIME",
        refused="/a%j",
    ),
    "pbs": PBS,
    "torque": replace(
        PBS,
        directives=f"-N weak-job-000|-l nodes=4:ppn=28|-l walltime=02:01:00|-j oe|-o {LOG}|-r y|-A abc123",
        accepted={"4711.sn-mgmt.seawulf.edu\n": "4711.sn-mgmt.seawulf.edu"},
        query="qstat -f 1 2",
        states=[PBS_STATES % "C"],
        forgotten="qstat: Unknown Job Id Error 4711.server\n",
    ),
    "cobalt": Case(
        marker="#COBALT",
        directives=f"--jobname weak-job-000|-n 4|-t 121|--cwd /scratch/study|-o {LOG}|-e {LOG}|-A abc123",
        submit="qsub --mode script",
        accepted={'Job routed to queue "default".\nMemory mode set to cache quad\n4711\n': "4711"},
        query="qstat --header JobID:State 1 2",
        states=["JobID  State\n===============\n1      dep_hold\n2      starting\n3      dep_fail\n"],
        forgotten="",
        nodes=[
            ("COBALT_NODEFILE", "cc001\ncc002\n", ["cc001", "cc002"]),
            ("COBALT_PARTNAME", "3829-3830,40", ["3829", "3830", "40"]),
        ],
        end_time="COBALT_ENDTIME",
    ),
    "lsf": Case(
        marker="#BSUB",
        directives=f"-J weak-job-000|-nnodes 4|-W 2:01|-cwd /scratch/study|-o {LOG}|-r|-wa TERM -wt 2|-P abc123",
        submit='sh -c exec bsub < "$0"',
        accepted={"Job <4711> is submitted to queue <batch>.\n": "4711"},
        query="bjobs -noheader -o jobid stat 1 2",
        states=["1 PEND\n2 SSUSP\n3 EXIT\n"],
        forgotten="Job <4711> is not found\n",
        nodes=[
            ("LSB_DJOB_HOSTFILE", "batch5\n" + "a01\n" * 42 + "a02\n" * 42, ["a01", "a02"]),
            ("LSB_DJOB_HOSTFILE", "login1.summit\na01n01\n", ["a01n01"]),
            ("LSB_DJOB_HOSTFILE", "n1\nn1\n", ["n1"]),
        ],
        refused="/a%J",
    ),
    "flux": Case(
        marker="# flux:",
        directives="--job-name=weak-job-000|--nodes=4|--exclusive|--time-limit=121m|--cwd=/scratch/study|"
        f"--output={LOG}|--setopt=output.mode=append|--bank=abc123",
        submit="flux batch",
        accepted={"ƒM7Zq9AKHno\n": "fM7Zq9AKHno", "fM7Zq9AKHno\n": "fM7Zq9AKHno"},
        query="flux jobs --no-header --format={id} {state} 1 2",
        ids="fM7 fN8 fP9 fQ1",
        states=["ƒM7 SCHED\nfN8 CLEANUP\nƒP9 INACTIVE\n"],
        forgotten="flux-jobs: ERROR: JobID fM7 unknown\n",
        nodes=[(NODES_VARIABLE, "corona[7-8]", ["corona7", "corona8"])],
        refused="/{{id}}",
    ),
}
every = pytest.mark.parametrize("name", SCHEDULERS)


def directives(name: str, /, **changes: object) -> list[str]:
    return SCHEDULERS[name].directives(replace(REQUEST, **changes))  # type: ignore[arg-type]


def test_every_scheduler_has_a_case_and_launchers_name_known_ones():
    assert set(CASES) == set(SCHEDULERS)
    assert {name for launcher in LAUNCHERS.values() for name in launcher.schedulers} <= set(SCHEDULERS)


@every
def test_directives(name: str):
    case = CASES[name]
    assert directives(name) == [f"{case.marker} {line}" for line in case.directives.split("|")]
    assert not [line for line in directives(name, account=None) if "abc123" in line]
    own = directives(name, directives=("--first", "-q second"))
    assert own[-2:] == [f"{case.marker} --first", f"{case.marker} -q second"]


@every
@pytest.mark.parametrize(
    "change",
    [
        {"account": "a\nb"},
        {"folder": "/x\r"},
        {"output": "a\nb"},
        {"directives": ("-q a\nb",)},
    ],
)
def test_a_line_break_is_refused(name: str, change: dict[str, object]):
    with pytest.raises(UsageError, match="line break"):
        directives(name, **change)


@every
def test_odd_values_stay_one_word(name: str):
    text = "\n".join(directives(name, account="a b; rm -rf $HOME", name="1 odd/name ü", folder="/s/my study"))
    assert "'a b; rm -rf $HOME'" in text
    assert "odd/" not in text
    assert "ü" not in text
    assert "'/s/my study/jobs/job-000.log'" in text
    if folder := CASES[name].refused:
        with pytest.raises(UsageError, match="take another folder"):
            directives(name, folder=folder)


def test_a_long_name_keeps_its_end_and_wall_time_is_rounded_up_to_minutes():
    assert directives("pbs", name="strong-scaling-job-007")[0] == "#PBS -N strong--job-007"
    for seconds, clock in ((1, "00:01:00"), (60.5, "00:02:00"), (172800, "48:00:00")):
        assert f"#SBATCH --time={clock}" in directives("slurm", seconds=seconds)


@every
def test_commands(name: str):
    case, commands = CASES[name], SCHEDULERS[name]
    assert " ".join(commands.submit) == case.submit
    assert " ".join(commands.query(["1", "2"])) == case.query


def test_bsub_reads_the_script_on_stdin(tmp_path: Path):
    script = tmp_path / "a job.sh"
    script.write_text("#BSUB -J x\n")
    fake = tmp_path / "bsub"
    fake.write_text("#!/bin/sh\ncat\n")
    fake.chmod(0o755)
    command = [*SCHEDULERS["lsf"].submit, str(script)]
    done = subprocess.run(command, env={"PATH": f"{tmp_path}:/usr/bin:/bin"}, capture_output=True, check=True)
    assert done.stdout == b"#BSUB -J x\n"


@every
def test_answers(name: str):
    case, commands = CASES[name], SCHEDULERS[name]
    assert {text: commands.job_id(text) for text in case.accepted} == case.accepted
    for text in ("", "error: no such queue\n"):
        with pytest.raises(ValueError, match="printed no job id"):
            commands.job_id(text)
    for text in case.states:
        found = commands.states(text, case.ids.split())
        assert list(found.values()) == ["pending", "running", "ended", "unknown"]
    assert re.search(commands.forgotten, case.forgotten)
    assert not re.search(commands.forgotten, "error: Unable to contact the controller (connect failure)\n")


@every
def test_inside_a_job(name: str, tmp_path: Path):
    case, commands = CASES[name], SCHEDULERS[name]
    for variable, value, nodes in case.nodes:
        file = tmp_path / "nodes"
        file.write_text(value)
        assert commands.nodes({variable: str(file) if "FILE" in variable else value}) == nodes
    with pytest.raises(ValueError, match="not inside a job"):
        commands.nodes({})
    assert commands.end_time({END_TIME_VARIABLE: "1700000000"}) == 1.7e9
    assert commands.end_time({}) is None
    if case.end_time:  # which knows better than the script
        assert commands.end_time({case.end_time: "1700000000", END_TIME_VARIABLE: "1"}) == 1.7e9
