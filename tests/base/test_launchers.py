"""Each launcher's whole command line."""

import os
import shlex
import subprocess
import sys
from dataclasses import replace

import pytest

from dlscale.base.launchers import LAUNCHERS, Flavour, Start, flavour_of

PROGRAM = ["python", "-m", "dlscale.benchmarks.rank.worker", "spool/x"]


def line(flavour: Flavour, *, num_ranks: int = 2, oversubscribed: bool = False) -> str:
    """The command line of mpiexec on this machine."""
    variables = {"OMP_NUM_THREADS": "1"}
    start = Start(num_ranks=num_ranks, ranks_per_node=num_ranks, variables=variables, program=PROGRAM)
    mpi = {"flavour": flavour, "mpiexec": "/env/bin/mpiexec", "oversubscribed": oversubscribed}
    return " ".join(LAUNCHERS["mpiexec"].command(replace(start, **mpi)))


WORKER = "python -m dlscale.benchmarks.rank.worker spool/x"


@pytest.mark.parametrize(
    ("flavour", "user", "changes", "options"),
    [
        ("mpich", 0, {}, "-launcher fork -rmk user -n 2 -bind-to none -genv OMP_NUM_THREADS 1"),
        ("intelmpi", 0, {}, "-n 2 -genv I_MPI_PIN 0 -genv OMP_NUM_THREADS 1"),
        ("openmpi", 1000, {}, "-n 2 --bind-to none -x OMP_NUM_THREADS=1"),
        ("openmpi", 0, {}, "-n 2 --bind-to none -x OMP_NUM_THREADS=1 --allow-run-as-root"),
        (
            "openmpi",
            1000,
            {"num_ranks": 4, "oversubscribed": True},
            "-n 4 --map-by slot:OVERSUBSCRIBE --bind-to none -x OMP_NUM_THREADS=1",
        ),
    ],
)
def test_mpiexec_on_this_machine(monkeypatch, flavour, user, changes, options):
    monkeypatch.setattr(os, "geteuid", lambda: user)
    assert line(flavour, **changes) == f"/env/bin/mpiexec {options} {WORKER}"


START = Start(
    nodes=("nid00012", "nid00013"),
    num_ranks=8,
    ranks_per_node=4,
    cpus_per_rank=68,
    devices_per_rank=1,
    launch_options=("-u", "--mpi=pmi2"),
    variables={"KMP_AFFINITY": "fine,compact,1,0", "ODD": "a $b {{c}}"},
    program=("python", "x.py"),
    folder="/s",
)
SET = "env KMP_AFFINITY=fine,compact,1,0 'ODD=a $b {{c}}' "


@pytest.mark.parametrize(
    ("launcher", "line"),
    [
        (
            "srun",
            SET
            + "srun --nodes=2 --ntasks=8 --ntasks-per-node=4 --cpus-per-task=68 '--nodelist=nid[00012-00013]' "
            "--kill-on-bad-exit=1 --export=ALL -u --mpi=pmi2 python x.py",
        ),
        (
            "aprun",
            "aprun -n 8 -N 4 -d 68 -cc depth -L 12,13 -e KMP_AFFINITY=fine,compact,1,0 -e 'ODD=a $b {{c}}' "
            "-u --mpi=pmi2 python x.py",
        ),
        (
            "jsrun",
            SET
            + "jsrun --nrs=2 --rs_per_host=1 --tasks_per_rs=4 --cpu_per_rs=ALL_CPUS --gpu_per_rs=ALL_GPUS "
            "--launch_distribution=packed --bind=none -u --mpi=pmi2 python x.py",
        ),
        (
            "pals",
            SET
            + "mpiexec -n 8 --ppn 4 --hosts nid00012,nid00013 --depth=68 --cpu-bind=depth --envall --no-transfer "
            "-u --mpi=pmi2 python x.py",
        ),
        (
            "torchrun",
            SET
            + "srun --nodes=2 --ntasks=2 --ntasks-per-node=1 --cpus-per-task=272 '--nodelist=nid[00012-00013]' "
            "--kill-on-bad-exit=1 --export=ALL -u --mpi=pmi2 --cpu-bind=none --gpu-bind=none "
            "bash -c 'PET_NODE_RANK=$SLURM_PROCID exec \"$@\"' agent python -P -m torch.distributed.run --nnodes=2 "
            "--nproc-per-node=4 --max-restarts=0 --log-dir=/s/torchrun --rdzv-backend static --master-addr nid00012 "
            "--master-port 29500 --no-python python x.py",
        ),
        (
            "flux",
            SET + "flux run --nodes=2 --ntasks=8 --exclusive '--requires=host:nid[00012-00013]' "
            "--setopt=cpu-affinity=off --setopt=gpu-affinity=off --setopt=exit-on-error -u --mpi=pmi2 python x.py",
        ),
    ],
)
def test_launchers_of_schedulers(launcher: str, line: str):
    assert shlex.join(LAUNCHERS[launcher].command(START)) == line


def test_torchrun_on_one_machine_meets_in_a_file_of_the_launch():
    start = replace(START, nodes=(), num_ranks=4, variables={"A": "1"})
    agent = (
        "python -P -m torch.distributed.run --nnodes=1 --nproc-per-node=4 --max-restarts=0 --log-dir=/s/torchrun "
        "--rdzv-backend c10d --rdzv-endpoint /s/rendezvous --rdzv-conf store_type=file --no-python python x.py"
    )
    own = "env A=1 TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1"
    assert shlex.join(LAUNCHERS["torchrun"].command(start)) == f"{own} {agent}"
    step = "--nodes=1 --ntasks=1 --ntasks-per-node=1 --cpus-per-task=272"
    in_job = shlex.join(LAUNCHERS["torchrun"].command(replace(start, unnamed_nodes=1)))
    assert in_job.startswith(f"{own} srun {step} ")
    assert in_job.endswith(f" agent {agent}")
    with pytest.raises(ValueError, match="torchrun cannot spread 7 ranks over 2 nodes by 4"):
        LAUNCHERS["torchrun"].command(replace(START, num_ranks=7))


@pytest.mark.parametrize(
    ("flavour", "line"),
    [
        (
            "mpich",
            "/m/mpiexec -n 8 -hosts nid00012,nid00013 -ppn 4 -bind-to none -genv KMP_AFFINITY fine,compact,1,0 "
            "-genv ODD 'a $b {{c}}' -u --mpi=pmi2 python x.py",
        ),
        (
            "intelmpi",
            "env I_MPI_JOB_RESPECT_PROCESS_PLACEMENT=0 /m/mpiexec -n 8 -hosts nid00012,nid00013 -ppn 4 "
            "-genv I_MPI_PIN 0 -genv KMP_AFFINITY fine,compact,1,0 -genv ODD 'a $b {{c}}' -u --mpi=pmi2 python x.py",
        ),
        (
            "openmpi",
            "/m/mpiexec -n 8 --host nid00012:4,nid00013:4 --map-by ppr:4:node --bind-to none "
            "-x KMP_AFFINITY=fine,compact,1,0 -x 'ODD=a $b {{c}}' -u --mpi=pmi2 python x.py",
        ),
    ],
)
def test_mpiexec_over_nodes(flavour: Flavour, line: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    command = LAUNCHERS["mpiexec"].command(replace(START, flavour=flavour, mpiexec="/m/mpiexec"))
    assert shlex.join(command) == line


def test_oversubscribed_open_mpi_over_nodes(monkeypatch: pytest.MonkeyPatch):
    command = LAUNCHERS["mpiexec"].command(replace(START, flavour="openmpi", oversubscribed=True))
    assert "--map-by ppr:4:node:OVERSUBSCRIBE" in " ".join(command)


def test_what_cannot_be_said_is_an_error():
    start = Start(
        nodes=("a", "b"), num_ranks=3, ranks_per_node=2, cpus_per_rank=1, variables={}, program=PROGRAM
    )
    with pytest.raises(ValueError, match="cannot spread 3 ranks over 2 nodes by 2"):
        LAUNCHERS["jsrun"].command(start)


def test_binding_imports_nothing_heavy():
    program = (
        "import sys, dlscale.benchmarks.rank.process; "
        "print([m for m in sys.modules if m in ('pydantic', 'numpy')])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


@pytest.mark.parametrize(
    ("text", "flavour"),
    [
        ("HYDRA build details:\n    Version: 5.0.2", "mpich"),
        ("Intel(R) MPI Library for Linux* OS, Version 2021.14", "intelmpi"),
        ("mpiexec (Open MPI) 5.0.11\n", "openmpi"),
        ("some other launcher 1.0", None),
    ],
)
def test_flavours(text: str, flavour: str | None):
    assert flavour_of(text) == flavour
