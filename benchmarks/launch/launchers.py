"""The exact command line of each launcher.

One function per launcher; tests pin each command line as a whole.

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
from typing import TYPE_CHECKING

from dlscale.benchmarks.launch.hostlist import compress_hostlist
from dlscale.benchmarks.systems.system import Flavour

if TYPE_CHECKING:
    from dlscale.benchmarks.systems.system import Partition, System


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


def cpus_per_rank(system: System, ranks_per_node: int) -> int:
    """A rank's share of a node's hardware threads: whole cores, rounded down, times threads per core.

    aprun's option -j says how many threads of each core are used, if not all.
    """
    cores = max(1, system.num_cores() // ranks_per_node)
    options = list(system.placement.launch_options) if system.placement else []
    if system.launcher == "aprun" and "-j" in options:
        return cores * int(options[options.index("-j") + 1])
    threads = system.node.threads_per_core
    return cores * (threads.value if threads else 1)


def start_on(
    system: System,
    partition: Partition,
    *,
    nodes: tuple[str, ...],
    num_ranks: int,
    variables: Mapping[str, str],
    program: Sequence[str],
    ranks_per_node: int | None = None,  # None: the system's placement
) -> Start:
    """A start with the threads, devices and options of the system's partition and placement."""
    placement = system.placement
    share = ranks_per_node or (placement.ranks_per_node if placement else num_ranks)
    devices = system.devices.per_node.value // share if system.devices else 0
    return Start(
        nodes=nodes,
        num_ranks=num_ranks,
        ranks_per_node=min(share, num_ranks),
        cpus_per_rank=cpus_per_rank(system, share),
        devices_per_rank=devices,
        launch_options=(*partition.launch_options, *(placement.launch_options if placement else ())),
        variables=variables,
        program=program,
    )


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
    return LAUNCHERS[launcher].ranks(start)


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Launcher:
    """The command lines of a launcher, and what it prints when a rank dies (groups `rank` and `how`)."""

    ranks: Callable[[Start], list[str]]
    per_node: Callable[[int], list[str]]  # the prefix that starts a program once on each of so many nodes
    death: re.Pattern[str] | None = None


# By the names in base/schedulers.py; mpiexec's command lines need its flavour.
LAUNCHERS = {
    "srun": Launcher(
        ranks=_srun,
        per_node=lambda n: [
            *("srun", f"--nodes={n}", f"--ntasks={n}", "--ntasks-per-node=1", "--kill-on-bad-exit=1")
        ],
        # src/srun/launch.c: each death as it hears of it, the first one first. "tasks 4-7,9" ended alike and at the
        # same time: the first of them stands for all.
        death=re.compile(r"^srun: error: \S+: tasks? (?P<rank>\d+)[-,\d]*: (?P<how>[^\n]+)", re.MULTILINE),
    ),
    "aprun": Launcher(
        ranks=_aprun,
        per_node=lambda n: [
            "aprun",
            "-b",
            "-n",
            str(n),
            "-N",
            "1",
        ],  # -b: the program is on the nodes already
        # As published logs of Cray XC have it.
        death=re.compile(
            r"^_pmiu_daemon\(SIGCHLD\): .*?PE RANK (?P<rank>\d+) (?P<how>exit [^\n]+)",
            re.MULTILINE | re.DOTALL,
        ),
    ),
    "jsrun": Launcher(  # what it prints of deaths is in no public source
        ranks=_jsrun,
        per_node=lambda n: ["jsrun", f"--nrs={n}", "--rs_per_host=1", "--tasks_per_rs=1", "--cpu_per_rs=1"],
    ),
    "flux": Launcher(
        ranks=_flux,
        per_node=lambda n: ["flux", "run", f"--nodes={n}", f"--ntasks={n}", "--exclusive"],
        # src/shell/doom.c with exit-on-error.
        death=re.compile(
            r"task rank (?P<rank>\d+) on host \S+ failed"
            r"(?: \((?P<how>[^\n)]+(?:\([^\n)]*\))?)\))? and exit-on-error"
        ),
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
