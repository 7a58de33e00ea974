"""Each scheduler's directives, and what they refuse."""

from dataclasses import replace

import pytest

from dlscale.base.errors import UsageError
from dlscale.base.quantities import Count
from dlscale.benchmarks.jobs.scheduler import NAMES, JobRequest, scheduler
from dlscale.benchmarks.systems.system import Partition

PARTITION = Partition(num_nodes=Count(value=100, source="docs"))
REQUEST = JobRequest(
    name="weak-job-000",
    num_nodes=4,
    ranks_per_node=2,
    seconds=7201,
    partition=PARTITION,
    account="abc123",
    output="jobs/job-000.log",
    folder="/scratch/study",
    after="4711",
    cores_per_node=28,
    cpus_per_rank=14,
)


@pytest.mark.parametrize(
    ("name", "lines"),
    [
        (
            "slurm",
            [
                "--job-name=weak-job-000", "--nodes=4", "--ntasks-per-node=2", "--cpus-per-task=14", "--exclusive",
                "--time=02:01:00", "--chdir=/scratch/study", "--output=/scratch/study/jobs/job-000.log",
                "--open-mode=append", "--requeue", "--signal=B:TERM@120", "--account=abc123",
                "--dependency=afterany:4711",
            ],
        ),
        (
            "pbs",
            [
                "-N weak-job-000", "-l select=4:ncpus=28:mpiprocs=2", "-l place=scatter:excl",
                "-l walltime=02:01:00", "-j oe", "-o /scratch/study/jobs/job-000.log", "-r y", "-A abc123",
                "-W depend=afterany:4711",
            ],
        ),
        (
            "torque",
            [
                "-N weak-job-000", "-l nodes=4:ppn=28", "-l walltime=02:01:00", "-j oe",
                "-o /scratch/study/jobs/job-000.log", "-r y", "-A abc123", "-W depend=afterany:4711",
            ],
        ),
        (
            "cobalt",
            [
                "--jobname weak-job-000", "-n 4", "-t 121", "--cwd /scratch/study",
                "-o /scratch/study/jobs/job-000.log", "-e /scratch/study/jobs/job-000.log", "-A abc123",
                "--dependencies 4711",
            ],
        ),
        (
            "lsf",
            [
                "-J weak-job-000", "-nnodes 4", "-W 2:01", "-cwd /scratch/study",
                "-o /scratch/study/jobs/job-000.log", "-r", "-wa TERM -wt 2", "-P abc123", "-w 'ended(4711)'",
            ],
        ),
        (
            "flux",
            [
                "--job-name=weak-job-000", "--nodes=4", "--exclusive", "--time-limit=121m", "--cwd=/scratch/study",
                "--output=/scratch/study/jobs/job-000.log", "--setopt=output.mode=append", "--bank=abc123",
                "--dependency=afterany:4711",
            ],
        ),
    ],
)  # fmt: skip
def test_directives(name: str, lines: list[str]):
    markers = {"slurm": "#SBATCH", "cobalt": "#COBALT", "lsf": "#BSUB", "flux": "# flux:"}
    marker = markers.get(name, "#PBS")
    assert scheduler(name).directives(REQUEST) == [f"{marker} {line}" for line in lines]


@pytest.mark.parametrize("name", NAMES)
def test_what_was_not_asked_for_is_not_said(name: str):
    text = "\n".join(scheduler(name).directives(replace(REQUEST, account=None, after=None)))
    assert "abc123" not in text
    assert "4711" not in text
    assert "depend" not in text


@pytest.mark.parametrize("name", NAMES)
def test_own_directives_of_the_partition_come_last(name: str):
    partition = Partition(num_nodes=PARTITION.num_nodes, directives=["--first", "-q second"])
    lines = scheduler(name).directives(replace(REQUEST, partition=partition))
    assert [line.partition(" -")[2] for line in lines[-2:]] == ["-first", "q second"]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    "change", [{"account": "a\nb"}, {"folder": "/x\r"}, {"output": "a\nb"}, {"after": "1\n"}]
)
def test_a_line_break_is_refused(name: str, change: dict[str, str]):
    with pytest.raises(UsageError, match="line break"):
        scheduler(name).directives(replace(REQUEST, **change))  # type: ignore[arg-type]


@pytest.mark.parametrize("name", NAMES)
def test_a_line_break_in_the_system_file_is_refused(name: str):
    partition = Partition(num_nodes=PARTITION.num_nodes, directives=["-q a\n#PBS -l evil"])
    with pytest.raises(UsageError, match="line break"):
        scheduler(name).directives(replace(REQUEST, partition=partition))


@pytest.mark.parametrize("name", NAMES)
def test_odd_values_stay_one_word(name: str):
    request = replace(REQUEST, account="a b; rm -rf $HOME", name="1 odd/name ü", folder="/s/my study")
    text = "\n".join(scheduler(name).directives(request))
    assert "'a b; rm -rf $HOME'" in text
    assert "odd/" not in text
    assert "ü" not in text
    assert "'/s/my study/jobs/job-000.log'" in text


@pytest.mark.parametrize(
    ("name", "folder"), [("pbs", "/a:b"), ("torque", "/a:b"), ("lsf", "/a%J"), ("flux", "/{{id}}")]
)
def test_paths_that_a_scheduler_would_read_otherwise_are_refused(name: str, folder: str):
    with pytest.raises(UsageError, match="take another folder"):
        scheduler(name).directives(replace(REQUEST, folder=folder))


def test_slurm_takes_percent_signs_as_they_are():
    lines = scheduler("slurm").directives(replace(REQUEST, folder="/a%j"))
    assert "#SBATCH --output=/a%%j/jobs/job-000.log" in lines
    assert "#SBATCH --chdir=/a%j" in lines


def test_a_long_name_keeps_what_tells_jobs_apart():
    lines = scheduler("pbs").directives(replace(REQUEST, name="strong-scaling-job-007"))
    assert lines[0] == "#PBS -N strong--job-007"


@pytest.mark.parametrize(
    ("seconds", "clock"), [(1, "00:01:00"), (60, "00:01:00"), (60.5, "00:02:00"), (172800, "48:00:00")]
)
def test_wall_time_is_rounded_up_to_minutes(seconds: float, clock: str):
    assert f"#SBATCH --time={clock}" in scheduler("slurm").directives(replace(REQUEST, seconds=seconds))
