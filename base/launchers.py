"""Launchers: what each tells its ranks, and its exact command lines.

A launcher is a function and its row of `LAUNCHERS`; tests pin each command line as a whole. Every rank imports this
module, so it must stay light.

`env` in front of srun, jsrun and flux run sets variables, for they pass their environment on: their options for single
variables split values at commas (srun) or replace $ and {{ (flux), KMP_AFFINITY is full of commas, and some variables
(CRAY_CUDA_MPS) are for the launcher itself. aprun and mpiexec take a value as one word.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from dlscale.base.hostlist import compress_hostlist

Flavour = Literal["mpich", "intelmpi", "openmpi"]  # of mpiexec
_MPI_NAMES: dict[Flavour, str] = {"intelmpi": "Intel MPI", "mpich": "MPICH", "openmpi": "Open MPI"}


def flavour_of(version_text: str) -> Flavour | None:
    """The MPI whose launcher printed this for --version; None if unknown."""
    if "Intel(R) MPI" in version_text:
        return "intelmpi"
    if "HYDRA" in version_text or "MPICH" in version_text:
        return "mpich"
    if "Open MPI" in version_text or "OpenRTE" in version_text or "PRRTE" in version_text:
        return "openmpi"
    return None


def mpi_title(version_text: str) -> str | None:
    """Name and version of that MPI, as in "MPICH 5.0.2"; None if it is none that dlscale knows."""
    flavour = flavour_of(version_text)
    version = re.search(r"\d+\.\d+(\.\d+)*\S*", version_text)
    return f"{_MPI_NAMES[flavour]} {version[0] if version else ''}".strip() if flavour else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """A program on nodes of an allocation, with ranks in blocks: node i starts with rank i * ranks_per_node."""

    nodes: tuple[str, ...]  # the nodes to use, a nested subset of the job's; empty: this machine alone
    num_ranks: int
    ranks_per_node: int
    cpus_per_rank: int  # hardware threads that the launcher may give each rank
    unnamed_nodes: int = 0  # the number of nodes in a plan, where `nodes` is still unknown
    devices_per_rank: int = 0
    launch_options: tuple[str, ...] = ()
    variables: Mapping[str, str]
    program: Sequence[str]

    @property
    def num_nodes(self) -> int:
        """Number of nodes, at least one."""
        return max(1, self.unnamed_nodes, len(self.nodes))


def command_line(
    launcher: str,
    start: Start,
    *,
    mpiexec_path: Path = Path("mpiexec"),
    flavour: Flavour | None = None,
    oversubscribed: bool = False,
) -> list[str]:
    """The command line that starts a program; mpiexec also needs `flavour`."""
    if launcher == "mpiexec":
        if flavour is None:
            raise ValueError("mpiexec without the flavour of its MPI")
        return _mpiexec(flavour, mpiexec_path, start, oversubscribed=oversubscribed)
    return LAUNCHERS[launcher].command(start)


def _srun(start: Start) -> list[str]:
    """A step of a Slurm job, alone on its nodes.

    No --overlap: a step waits until its predecessor has left the nodes. It has all devices that its job requested (by
    the partition's directives), and each rank takes one of them.
    """
    options = [
        f"--nodes={start.num_nodes}",
        f"--ntasks={start.num_ranks}",
        f"--ntasks-per-node={start.ranks_per_node}",
        f"--cpus-per-task={start.cpus_per_rank}",
    ]
    if start.nodes:
        options.append(f"--nodelist={compress_hostlist(start.nodes)}")
    options += ["--kill-on-bad-exit=1", "--export=ALL", *start.launch_options]
    return [*_environment(start.variables), "srun", *options, *start.program]


def _aprun(start: Start) -> list[str]:
    """ALPS: nodes are numbers (nid00012 is 12); -j, threads used per core, is an option of the placement."""
    options = ["-n", str(start.num_ranks), "-N", str(start.ranks_per_node), "-d", str(start.cpus_per_rank)]
    if not _given(start, "-cc"):
        options += ["-cc", "depth"]
    if start.nodes:
        options += ["-L", ",".join(re.sub(r"^nid0*(?=\d)", "", node) for node in start.nodes)]
    sets = [word for name, value in start.variables.items() for word in ("-e", f"{name}={value}")]
    return ["aprun", *options, *sets, *start.launch_options, *start.program]


def _jsrun(start: Start) -> list[str]:
    """One resource set per node with all its cores and devices, which ranks take by local rank.

    jsrun can neither choose nodes (it takes the allocation's first free ones, in order) nor put fewer ranks on the last
    node.
    """
    if start.num_ranks != start.num_nodes * start.ranks_per_node:
        raise ValueError(
            f"jsrun cannot spread {start.num_ranks} ranks over {start.num_nodes} nodes by {start.ranks_per_node}"
        )
    options = [
        f"--nrs={start.num_nodes}",
        "--rs_per_host=1",
        f"--tasks_per_rs={start.ranks_per_node}",
        "--cpu_per_rs=ALL_CPUS",
        *(["--gpu_per_rs=ALL_GPUS"] if start.devices_per_rank else []),
        "--launch_distribution=packed",
        "--bind=none",
    ]
    return [*_environment(start.variables), "jsrun", *options, *start.launch_options, *start.program]


def _flux(start: Start) -> list[str]:
    """A job in the batch script's Flux instance: whole nodes, ended by the first failed rank."""
    options = [f"--nodes={start.num_nodes}", f"--ntasks={start.num_ranks}", "--exclusive"]
    if start.nodes:
        options.append(f"--requires=host:{compress_hostlist(start.nodes)}")
    options += ["--setopt=cpu-affinity=off", "--setopt=gpu-affinity=off", "--setopt=exit-on-error"]
    return [*_environment(start.variables), "flux", "run", *options, *start.launch_options, *start.program]


def _mpiexec(flavour: Flavour, path: Path, start: Start, *, oversubscribed: bool) -> list[str]:
    if not start.nodes:
        return mpiexec(
            flavour,
            path,
            num_ranks=start.num_ranks,
            oversubscribed=oversubscribed,
            variables=start.variables,
            program=[*start.launch_options, *start.program],
        )
    count = ["-n", str(start.num_ranks)]
    sets = variable_options(flavour, start.variables)
    if flavour == "openmpi":
        hosts = ",".join(f"{node}:{start.ranks_per_node}" for node in start.nodes)
        mapping = f"ppr:{start.ranks_per_node}:node" + (":OVERSUBSCRIBE" if oversubscribed else "")
        where = ["--host", hosts, "--map-by", mapping]
    else:
        where = ["-hosts", ",".join(start.nodes), "-ppn", str(start.ranks_per_node)]
    line = [
        str(path),
        *count,
        *where,
        *unbound_options(flavour),
        *sets,
        *start.launch_options,
        *start.program,
    ]
    # Inside a batch job Intel's launcher would follow the scheduler's placement and ignore -ppn.
    return ["env", "I_MPI_JOB_RESPECT_PROCESS_PLACEMENT=0", *line] if flavour == "intelmpi" else line


def one_per_node(
    launcher: str, num_nodes: int, *, mpi: Flavour | None = None, mpiexec: str = "mpiexec"
) -> list[str]:
    """The prefix that starts a program once on each node of a job, without MPI."""
    if launcher != "mpiexec":
        return LAUNCHERS[launcher].per_node(num_nodes)
    if mpi == "openmpi":
        return [mpiexec, "-n", str(num_nodes), "--map-by", "ppr:1:node"]
    respect = ["env", "I_MPI_JOB_RESPECT_PROCESS_PLACEMENT=0"] if mpi == "intelmpi" else []
    return [*respect, mpiexec, "-n", str(num_nodes), "-ppn", "1"]


def _environment(variables: Mapping[str, str]) -> list[str]:
    return ["env", *(f"{name}={value}" for name, value in variables.items())] if variables else []


def _given(start: Start, *options: str) -> bool:
    """Whether the system's launch options set this already."""
    return any(option.startswith(options) for option in start.launch_options)


def _only_with_flavour(_: object) -> list[str]:
    raise ValueError("mpiexec's command lines need the flavour of its MPI")


@dataclass(frozen=True, slots=True, kw_only=True)
class Launcher:
    """A launcher. `schedulers`: in whose jobs it starts programs; empty: in those of all.

    `ranks`, `local_ranks` and `sizes` are the variables that tell a process its rank, that on its node, and how many
    processes there are. `death` is what the launcher prints when a rank dies (groups `rank` and `how`).
    """

    command: Callable[[Start], list[str]]
    per_node: Callable[[int], list[str]]  # the prefix that starts a program once on each of so many nodes
    schedulers: tuple[str, ...] = ()
    ranks: tuple[str, ...] = ()
    local_ranks: tuple[str, ...] = ()
    sizes: tuple[str, ...] = ()
    death: re.Pattern[str] | None = None


# A process asks for the first one's variables first. Slurm's come last: a job's script has them too, and another
# launcher may run inside.
LAUNCHERS = {
    "mpiexec": Launcher(
        command=_only_with_flavour,
        per_node=_only_with_flavour,
        ranks=("PMI_RANK", "OMPI_COMM_WORLD_RANK", "PMIX_RANK"),
        local_ranks=("MPI_LOCALRANKID", "OMPI_COMM_WORLD_LOCAL_RANK", "PALS_LOCAL_RANKID"),
        sizes=("PMI_SIZE", "OMPI_COMM_WORLD_SIZE", "MV2_COMM_WORLD_SIZE"),
        death=re.compile(
            r"process rank (?P<rank>\d+) with PID \d+.*?exited\s+on\s+(?P<how>signal \d+)", re.DOTALL
        ),
    ),
    "jsrun": Launcher(  # what it prints of deaths is in no public source
        command=_jsrun,
        per_node=lambda n: ["jsrun", f"--nrs={n}", "--rs_per_host=1", "--tasks_per_rs=1", "--cpu_per_rs=1"],
        schedulers=("lsf",),
        local_ranks=("JSM_NAMESPACE_LOCAL_RANK",),
        sizes=("JSM_NAMESPACE_SIZE",),
    ),
    "flux": Launcher(  # starts inside the jobs of others, too
        command=_flux,
        per_node=lambda n: ["flux", "run", f"--nodes={n}", f"--ntasks={n}", "--exclusive"],
        ranks=("FLUX_TASK_RANK",),
        local_ranks=("FLUX_TASK_LOCAL_ID",),
        # src/shell/doom.c with exit-on-error.
        death=re.compile(
            r"task rank (?P<rank>\d+) on host \S+ failed"
            r"(?: \((?P<how>[^\n)]+(?:\([^\n)]*\))?)\))? and exit-on-error"
        ),
    ),
    "aprun": Launcher(
        command=_aprun,
        per_node=lambda n: ["aprun", "-b", "-n", str(n), "-N", "1"],  # -b: the program is on the nodes
        schedulers=("cobalt", "pbs", "torque", "slurm"),
        ranks=("ALPS_APP_PE",),
        # As published logs of Cray XC have it.
        death=re.compile(
            r"^_pmiu_daemon\(SIGCHLD\): .*?PE RANK (?P<rank>\d+) (?P<how>exit [^\n]+)",
            re.MULTILINE | re.DOTALL,
        ),
    ),
    "srun": Launcher(
        command=_srun,
        per_node=lambda n: [
            *("srun", f"--nodes={n}", f"--ntasks={n}", "--ntasks-per-node=1", "--kill-on-bad-exit=1")
        ],
        schedulers=("slurm",),
        ranks=("SLURM_PROCID",),
        local_ranks=("SLURM_LOCALID",),
        sizes=("SLURM_STEP_NUM_TASKS",),  # not SLURM_NTASKS: a batch script has it too, beside any step
        # src/srun/launch.c: each death as it hears of it, the first one first. "tasks 4-7,9" ended alike and at the
        # same time: the first of them stands for all.
        death=re.compile(r"^srun: error: \S+: tasks? (?P<rank>\d+)[-,\d]*: (?P<how>[^\n]+)", re.MULTILINE),
    ),
}


def mpiexec(
    flavour: Flavour,
    mpiexec: Path,
    *,
    num_ranks: int,
    oversubscribed: bool,
    variables: Mapping[str, str],
    program: Sequence[str],
) -> list[str]:
    """The command line that starts `program` on `num_ranks` ranks of this machine.

    Launchers do not bind: each rank binds itself to its cores before any thread starts (`affinity.py`), the same way
    under every launcher.
    """
    mapping = ["--map-by", "slot:OVERSUBSCRIBE"] if oversubscribed else []
    return [
        str(mpiexec),
        # What its own configuration may say of schedulers and other hosts means nothing here.
        *(["-launcher", "fork", "-rmk", "user"] if flavour == "mpich" else []),
        "-n",
        str(num_ranks),
        *unbound_options(flavour),
        *(mapping if flavour == "openmpi" else []),
        *variable_options(flavour, variables),
        *program,
    ]


def unbound_options(flavour: Flavour) -> list[str]:
    """Options that keep a launcher from binding ranks."""
    if flavour == "openmpi":
        return ["--bind-to", "none"]
    # Intel's launcher binds by default; 2021.14 has no option against it.
    return ["-bind-to", "none"] if flavour == "mpich" else ["-genv", "I_MPI_PIN", "0"]


def variable_options(flavour: Flavour, variables: Mapping[str, str]) -> list[str]:
    """Options that set variables in all ranks."""
    if flavour in ("mpich", "intelmpi"):
        return [word for name, value in variables.items() for word in ("-genv", name, value)]
    sets = [word for name, value in variables.items() for word in ("-x", f"{name}={value}")]
    return [*sets, "--allow-run-as-root"] if os.geteuid() == 0 else sets
