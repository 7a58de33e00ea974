"""What other programs print, variables of the environment, and messages of other processes."""

import contextlib
import io
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from unittest import mock

import numpy as np

from dlscale.base.launchers import flavour_of
from dlscale.base.schedulers import SCHEDULERS
from dlscale.base.strings import redact, visible
from dlscale.base.variables import HELPER, JOB, LAUNCH, passed_on
from dlscale.benchmarks.cli import main
from dlscale.benchmarks.launch.causes import last_words, who_died
from dlscale.benchmarks.records.spool import node_facts
from dlscale.benchmarks.systems.limits import cpu_quota
from dlscale.benchmarks.systems.probe import draft, read_machine
from dlscale.benchmarks.systems.system import load_system
from dlscale.collectives.servers.messages import Kind, Message, RefusedError, Rules
from dlscale.collectives.servers.over_grpc import Sizes
from tests.fuzz.damage import damage_contents
from tests.fuzz.target import Target, file_target, text_target


def in_a_job(text: str) -> None:
    """What schedulers tell a job by its variables."""
    for commands in SCHEDULERS.values():
        for variable in VARIABLES_OF_JOBS:
            with suppress(ValueError, OSError):
                commands.nodes({variable: text})
            commands.end_time({variable: text})


def about_jobs(text: str) -> None:
    """What schedulers print about jobs."""
    for commands in SCHEDULERS.values():
        commands.states(text, ["12", "f12"])
        with suppress(ValueError):
            commands.job_id(text)


def probed(folder: Path) -> None:
    """The draft of a system's file from what Slurm or PBS printed, each command into a file of its name."""

    def ask(*words: str) -> str:
        try:
            return visible((folder / "_".join(words)).read_text(errors="replace"))
        except OSError:
            return ""

    draft(read_machine(ask), ["scontrol: no answer"])


def print_of_slurm(folder: Path) -> None:
    """What its commands print, as the probe gets it."""
    for name, text in SLURM.items():
        (folder / name).write_text(text)


def kernel_files(folder: Path) -> None:
    """Some of /sys and /proc."""
    for name, text in KERNEL.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


def read_kernel(folder: Path) -> None:
    """What is read there."""
    node_facts(top=folder)
    cpu_quota(folder)


def environment(path: Path) -> None:
    """Commands in an environment of these variables."""
    lines = path.read_bytes().replace(b"\0", b"").splitlines()
    pairs = [line.partition(b"=") for line in lines]
    variables = {os.fsdecode(name): os.fsdecode(value) for name, equals, value in pairs if name and equals}
    with mock.patch.dict(os.environ, variables), _silence():
        for groups in (JOB, LAUNCH, HELPER):
            passed_on(groups)
        redact(f"{variables}")
        for name in ("local", "cori", "template"):
            load_system(name).is_here()
        for words in (["system", "list"], ["doctor", "--help"], ["status", "--results", str(path.parent)]):
            with suppress(SystemExit):
                main(words)


@contextmanager
def _silence() -> Iterator[None]:
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        yield


def message(path: Path) -> None:
    """What a parameter server reads of a worker."""
    content = path.read_bytes()
    pieces = (content[start : start + PIECE] for start in range(0, len(content), PIECE))
    sizes = Sizes()
    while sizes.read(pieces):
        pass


SLURM = {
    "scontrol_show_config": "ClusterName             = Aurochs 2\nMpiDefault     = none\nSLURM_VERSION = 23.11\n",
    "scontrol_show_partition_-o": (
        "PartitionName=gpu AllocNodes=ALL Default=YES DefaultTime=00:30:00 MaxNodes=4 MaxTime=1-12:00:00 State=UP "
        "TotalNodes=1\nPartitionName=big Default=NO MaxTime=UNLIMITED OverSubscribe=NO State=UP TotalNodes=1\n"
    ),
    "scontrol_show_node_-o": (
        "NodeName=g1 CoresPerSocket=32 Gres=gpu:a100:4(S:0-3) RealMemory=256000 Sockets=2 CoreSpecCount=2 "
        "ThreadsPerCore=1 Partitions=gpu\nNodeName=b1 CoresPerSocket=48 Gres=(null) RealMemory=1 Sockets=2 "
        "ThreadsPerCore=1 Partitions=big\n"
    ),
    "pbsnodes_-a": (
        "x1\n     state = free\n     resources_available.ncpus = 64\n     resources_available.mem = 527672488kb\n"
    ),
    "qstat_-Q_-f": (
        "Queue: prod\n    queue_type = Execution\n    resources_max.walltime = 24:00:00\n    enabled = True\n"
        "    started = True\n"
    ),
    "srun_--mpi=list": "MPI plugin types are...\n\tnone\n\tpmi2\n\tcray_shasta\n",
}
KERNEL = {
    "sys/devices/system/cpu/cpu0/cache/index2/size": "1024K\n",
    "sys/devices/system/cpu/cpu0/cache/index2/level": "2\n",
    "sys/devices/system/cpu/cpu0/cache/index2/shared_cpu_list": "0-1\n",
    "sys/devices/system/cpu/cpu0/cpufreq/scaling_governor": "performance\n",
    "sys/devices/system/cpu/cpufreq/boost": "1\n",
    "sys/devices/system/clocksource/clocksource0/current_clocksource": "tsc\n",
    "sys/fs/cgroup/cpu.max": "60000 100000\n",
    "sys/fs/cgroup/cpu.stat": "nr_periods 9\nnr_throttled 3\n",
    "sys/fs/cgroup/memory.max": "max\n",
    "proc/self/cgroup": "0::/\n",
    "sys/kernel/mm/transparent_hugepage/enabled": "always [madvise] never\n",
    "proc/loadavg": "0.08 0.03 0.05 1/389 1234\n",
    "proc/driver/nvidia/version": "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15\n",
    "proc/driver/nvidia/gpus/0000/information": "Model: \t\t NVIDIA A100-SXM4-80GB\n",
}
VARIABLES_OF_JOBS = (
    "SLURM_JOB_NODELIST", "SLURM_JOB_END_TIME", "SLURM_RESTART_COUNT", "PBS_NODEFILE", "PBS_JOBID", "COBALT_NODEFILE",
    "COBALT_PARTNAME", "COBALT_ENDTIME", "LSB_DJOB_HOSTFILE", "LSB_RESTART", "_DLSCALE_NODES", "_DLSCALE_END_TIME",
)  # fmt: skip
ENVIRONMENT = "".join(
    f"{name}={value}\n"
    for known in SCHEDULERS.values()
    for name, value in {
        known.id_variable: "4711",
        known.list_variable: "nid[1-2]",
        known.file_variable: "/etc/hosts",
    }.items()
    if name
) + (
    "USER=ted\nLOGNAME=ted\nHOME=/home/ted\nCOLUMNS=80\nLINES=40\nTERM=xterm-256color\nNO_COLOR=1\nFORCE_COLOR=1\n"
    "LANG=C\nLC_ALL=C\nTZ=UTC\nTMPDIR=/tmp\nXDG_CACHE_HOME=/tmp/x\nPYTHONPATH=/a:b\nLOADEDMODULES=a/1:b\nDISPLAY=:0\n"
    "SCRATCH=/scratch\nNERSC_HOST=cori\nLMOD_SYSTEM_NAME=x\nOMP_NUM_THREADS=2\nDLSCALE_CONTAINER=sha256:0\n"
)  # fmt: skip
OPENED = Message.of(Kind.OPEN, 0, body=Rules(algorithm="downpour", num_elements=4).model_dump_json())
PIECE = OPENED.memory.size  # the bytes of one, so that a second message begins with the next
TALK = b"".join(
    each.memory.tobytes() for each in (OPENED, Message.of(Kind.PUSH, 0, count=1, body=np.ones(4, np.float32)))
)
TEXTS: dict[str, tuple[Callable[[str], object], str]] = {
    "variables of jobs": (in_a_job, "nid00[001-004,7]"),
    "output of schedulers": (
        about_jobs, "12 RUNNING\n12.server  x  R\nJob <12> is submitted\nSubmitted batch job 12\n"
    ),
    "output of a launcher": (
        lambda text: (who_died(text), last_words(text, [])), "PID 12 RUNNING AT x\nEXIT STRING: Killed (signal 9)\n"
    ),
    "version of an MPI": (flavour_of, "HYDRA build details:\n    Version:   4.1.2\nmpiexec (OpenRTE) 4.1.4\n"),
}  # fmt: skip
TARGETS: dict[str, Target] = {
    **{name: text_target(read, text, share=0.4) for name, (read, text) in TEXTS.items()},
    "output of Slurm": Target(make=print_of_slurm, read=probed, damage=damage_contents),
    "files of the kernel": Target(make=kernel_files, read=read_kernel, damage=damage_contents),
    "environment": file_target("variables", ENVIRONMENT.encode, environment),
    "message of a worker": file_target("message", lambda: TALK, message, refusals=(RefusedError,), share=0.5),
}
