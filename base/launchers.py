"""Launchers: the command line of each, what it tells its ranks, and what it prints of deaths.

Every rank imports this module, so it stays light. `env` in front of srun, jsrun and flux run sets variables, for they
pass their environment on: their options for single variables split values at commas (srun) or replace $ and {{ (flux),
KMP_AFFINITY is full of commas, and some variables (CRAY_CUDA_MPS) are for the launcher itself. aprun and mpiexec take a
value as one word.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from dlscale.base.hostlist import compress_hostlist

Flavour = Literal["mpich", "intelmpi", "openmpi"]  # of mpiexec
BY_TORCHRUN = "TORCHELASTIC_RUN_ID"  # set in each process that torchrun started


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """A program on nodes of an allocation, with ranks in blocks: node i starts with rank i * ranks_per_node."""

    nodes: tuple[str, ...] = ()  # the nodes to use, a nested subset of the job's; empty: this machine alone
    num_ranks: int
    ranks_per_node: int
    cpus_per_rank: int = 1  # hardware threads that the launcher may give each rank
    unnamed_nodes: int = 0  # the number of nodes in a plan, where `nodes` is still unknown
    devices_per_rank: int = 0
    launch_options: tuple[str, ...] = ()
    variables: Mapping[str, str]
    program: Sequence[str]
    folder: str = ""  # of the launch, for the launcher's own files
    # Of mpiexec alone.
    mpiexec: str = "mpiexec"
    flavour: Flavour = "mpich"
    oversubscribed: bool = False

    @property
    def num_nodes(self) -> int:
        """Number of nodes, at least one."""
        return max(1, self.unnamed_nodes, len(self.nodes))

    def environment(self, **more: str) -> list[str]:
        """The words in front of a launcher that passes its environment on."""
        pairs = [f"{name}={value}" for name, value in {**self.variables, **more}.items()]
        return ["env", *pairs] if pairs else []


@dataclass(frozen=True, slots=True, kw_only=True)
class Launcher:
    """A launcher. `schedulers`: in whose jobs it starts programs; empty: in those of all.

    `needs_mpi`: its ranks are those of an MPI, which then carries the control plane; else they meet, over several
    nodes, at a port that asks nobody who connects. `needs_job`: it starts nothing outside a scheduler's job.
    `ranks`, `local_ranks` and `sizes` are the variables that tell a process its rank, that on its node, and how many
    processes there are. `death` is what the launcher prints when a rank dies (groups `rank` and `how`).
    """

    command: Callable[[Start], list[str]]
    program: str
    schedulers: tuple[str, ...] = ()
    needs_mpi: bool = True
    needs_job: bool = True
    ranks: tuple[str, ...] = ()
    local_ranks: tuple[str, ...] = ()
    sizes: tuple[str, ...] = ()
    death: re.Pattern[str] | None = None


def _require_full_nodes(launcher: str, start: Start) -> None:
    if start.num_ranks != start.num_nodes * start.ranks_per_node:
        raise ValueError(
            f"{launcher} cannot spread {start.num_ranks} ranks over {start.num_nodes} nodes by {start.ranks_per_node}"
        )


def _srun(start: Start) -> list[str]:
    """A step of a Slurm job, alone on its nodes.

    No --overlap: a step waits until its predecessor has left the nodes. It has all devices that its job requested (by
    the partition's directives), and each rank takes one of them.
    """
    options = _step(start, start.num_ranks, per_node=start.ranks_per_node, cpus=start.cpus_per_rank)
    return [*start.environment(), "srun", *options, *start.launch_options, *start.program]


def _step(start: Start, num_tasks: int, *, per_node: int, cpus: int) -> list[str]:
    """Options of a step of so many tasks on the nodes, each with that number of hardware threads."""
    return [
        f"--nodes={start.num_nodes}",
        f"--ntasks={num_tasks}",
        f"--ntasks-per-node={per_node}",
        f"--cpus-per-task={cpus}",
        *([f"--nodelist={compress_hostlist(start.nodes)}"] if start.nodes else []),
        "--kill-on-bad-exit=1",
        "--export=ALL",
    ]


def _torchrun(start: Start) -> list[str]:
    """An agent per node, which starts the node's ranks and ends them all when one fails.

    On one machine ranks meet through a file in the launch's folder, and no port is opened to other machines. Over
    several nodes torch's store listens on the first one and asks nobody who connects: the study must allow that. srun
    starts the agents, with all that ranks of the node may use. An agent says its node's number by PET_NODE_RANK.
    """
    _require_full_nodes("torchrun", start)
    more = {}
    if start.num_nodes == 1:
        # The agent would keep a store of its own open for the ranks, who have theirs.
        more = {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
        meeting = ["c10d", "--rdzv-endpoint", f"{start.folder}/rendezvous", "--rdzv-conf", "store_type=file"]
    else:
        first = ["--master-addr", start.nodes[0]] if start.nodes else []
        meeting = ["static", *first, "--master-port", "29500"]  # torchrun's own default
    agent = [
        *(start.program[0], "-P", "-m", "torch.distributed.run"),
        f"--nnodes={start.num_nodes}",
        f"--nproc-per-node={start.ranks_per_node}",
        "--max-restarts=0",
        f"--log-dir={start.folder}/torchrun",
        *("--rdzv-backend", *meeting),
        *("--no-python", *start.program),
    ]
    if not (start.unnamed_nodes or start.nodes):  # no job
        return [*start.environment(**more), *agent]
    options = [
        *_step(start, start.num_nodes, per_node=1, cpus=start.cpus_per_rank * start.ranks_per_node),
        *start.launch_options,
        # What a system's file says of one rank's place is not meant for an agent of several.
        "--cpu-bind=none",
        *(["--gpu-bind=none"] if start.devices_per_rank else []),
    ]
    numbered = ["bash", "-c", 'PET_NODE_RANK=$SLURM_PROCID exec "$@"', "agent", *agent]
    return [*start.environment(**more), "srun", *options, *numbered]


def _jsrun(start: Start) -> list[str]:
    """One resource set per node with all its cores and devices, which ranks take by local rank.

    jsrun can neither choose nodes (it takes the allocation's first free ones, in order) nor put fewer ranks on the last
    node.
    """
    _require_full_nodes("jsrun", start)
    options = [
        f"--nrs={start.num_nodes}",
        "--rs_per_host=1",
        f"--tasks_per_rs={start.ranks_per_node}",
        "--cpu_per_rs=ALL_CPUS",
        *(["--gpu_per_rs=ALL_GPUS"] if start.devices_per_rank else []),
        "--launch_distribution=packed",
        "--bind=none",
    ]
    return [*start.environment(), "jsrun", *options, *start.launch_options, *start.program]


def _flux(start: Start) -> list[str]:
    """A job in the batch script's Flux instance: whole nodes, ended by the first failed rank."""
    options = [f"--nodes={start.num_nodes}", f"--ntasks={start.num_ranks}", "--exclusive"]
    if start.nodes:
        options.append(f"--requires=host:{compress_hostlist(start.nodes)}")
    options += ["--setopt=cpu-affinity=off", "--setopt=gpu-affinity=off", "--setopt=exit-on-error"]
    return [*start.environment(), "flux", "run", *options, *start.launch_options, *start.program]


def _pals(start: Start) -> list[str]:
    """HPE's Parallel Application Launch Service (PALS), whose mpiexec is on Aurora, Polaris and Crux.

    Ranks in blocks, each on separate hardware threads; ended by the first failed one, as PALS does unasked.
    --no-transfer: a copy of the interpreter on the nodes would not find its libraries. Options are those of its
    command line (Cray-HPE/craycli, cray/modules/mpiexec/cli.py) and of the centre's guides (argonne-lcf/user-guides,
    docs/running-jobs/example-job-scripts.md, commit 7d04a3f9).
    """
    options = ["-n", str(start.num_ranks), "--ppn", str(start.ranks_per_node)]
    if start.nodes:
        options += ["--hosts", ",".join(start.nodes)]
    if not any(option.startswith("--cpu-bind") for option in start.launch_options):
        options += [f"--depth={start.cpus_per_rank}", "--cpu-bind=depth"]
    options += ["--envall", "--no-transfer", *start.launch_options]
    return [*start.environment(), "mpiexec", *options, *start.program]


def _aprun(start: Start) -> list[str]:
    """ALPS: nodes are numbers (nid00012 is 12); -j, threads used per core, is an option of the placement."""
    options = ["-n", str(start.num_ranks), "-N", str(start.ranks_per_node), "-d", str(start.cpus_per_rank)]
    if not any(option.startswith("-cc") for option in start.launch_options):
        options += ["-cc", "depth"]
    if start.nodes:
        options += ["-L", ",".join(re.sub(r"^nid0*(?=\d)", "", node) for node in start.nodes)]
    sets = [word for name, value in start.variables.items() for word in ("-e", f"{name}={value}")]
    return ["aprun", *options, *sets, *start.launch_options, *start.program]


def _mpiexec(start: Start) -> list[str]:
    """The command line of MPICH, Intel MPI and Open MPI, whose options differ; over nodes, or on this machine.

    Launchers do not bind: each rank binds itself to its cores, the same way under every launcher.
    """
    line, where = [start.mpiexec], list[str]()
    if start.flavour == "openmpi":
        over = ":OVERSUBSCRIBE" if start.oversubscribed else ""
        where = ["--map-by", f"slot{over}"] if over else []
        if start.nodes:
            hosts = ",".join(f"{node}:{start.ranks_per_node}" for node in start.nodes)
            where = ["--host", hosts, "--map-by", f"ppr:{start.ranks_per_node}:node{over}"]
        bind = ["--bind-to", "none"]
        sets = [word for name, value in start.variables.items() for word in ("-x", f"{name}={value}")]
        sets += ["--allow-run-as-root"] if os.geteuid() == 0 else []
    else:
        if start.nodes:
            where = ["-hosts", ",".join(start.nodes), "-ppn", str(start.ranks_per_node)]
        elif start.flavour == "mpich":
            # What its own configuration may say of schedulers and other hosts means nothing here.
            line += ["-launcher", "fork", "-rmk", "user"]
        # Intel's launcher binds by default; 2021.14 has no option against it.
        bind = ["-bind-to", "none"] if start.flavour == "mpich" else ["-genv", "I_MPI_PIN", "0"]
        sets = [word for name, value in start.variables.items() for word in ("-genv", name, value)]
    line += ["-n", str(start.num_ranks), *where, *bind, *sets, *start.launch_options, *start.program]
    if start.flavour == "intelmpi" and start.nodes:
        # Inside a batch job Intel's launcher would follow the scheduler's placement and ignore -ppn.
        return ["env", "I_MPI_JOB_RESPECT_PROCESS_PLACEMENT=0", *line]
    return line


# A process asks for the first one's variables first. torchrun runs inside all others. Slurm's come last: a job's script
# has them too, and another launcher may run inside.
LAUNCHERS = {
    "torchrun": Launcher(
        command=_torchrun,
        program="srun",
        schedulers=("slurm",),
        needs_mpi=False,
        needs_job=False,
        ranks=("RANK",),
        local_ranks=("LOCAL_RANK",),
        sizes=("WORLD_SIZE",),
        # torch/distributed/elastic/multiprocessing/errors. The failures above this one are those that it ended.
        death=re.compile(
            r"^Root Cause \(first observed failure\):.*?^\s+rank\s+: (?P<rank>\d+) .*?"
            r"(?P<how>[Ss]ignal \d+ \(SIG\w+\)|exitcode\s+: \d+)",
            re.MULTILINE | re.DOTALL,
        ),
    ),
    "mpiexec": Launcher(
        command=_mpiexec,
        program="mpiexec",
        needs_job=False,
        ranks=("PMI_RANK", "OMPI_COMM_WORLD_RANK", "PMIX_RANK"),
        local_ranks=("MPI_LOCALRANKID", "OMPI_COMM_WORLD_LOCAL_RANK"),
        sizes=("PMI_SIZE", "OMPI_COMM_WORLD_SIZE", "MV2_COMM_WORLD_SIZE"),
        death=re.compile(
            r"process rank (?P<rank>\d+) with PID \d+.*?exited\s+on\s+(?P<how>signal \d+)", re.DOTALL
        ),
    ),
    "jsrun": Launcher(  # what it prints of deaths is in no public source
        command=_jsrun,
        program="jsrun",
        schedulers=("lsf",),
        local_ranks=("JSM_NAMESPACE_LOCAL_RANK",),
        sizes=("JSM_NAMESPACE_SIZE",),
    ),
    "flux": Launcher(  # also starts ranks inside the jobs of other schedulers
        command=_flux,
        program="flux",
        ranks=("FLUX_TASK_RANK",),
        local_ranks=("FLUX_TASK_LOCAL_ID",),
        # src/shell/doom.c with exit-on-error.
        death=re.compile(
            r"task rank (?P<rank>\d+) on host \S+ failed"
            r"(?: \((?P<how>[^\n)]+(?:\([^\n)]*\))?)\))? and exit-on-error"
        ),
    ),
    "pals": Launcher(
        command=_pals,
        program="mpiexec",
        schedulers=("pbs",),
        ranks=("PALS_RANKID",),
        local_ranks=("PALS_LOCAL_RANKID", "PMI_LOCAL_RANK"),
        # docs/aurora/applications-and-libraries/libraries/mpi.md there. Signal 15 is what PALS ends the others with.
        death=re.compile(
            r"^\S+: rank (?P<rank>\d+) (?:died from )?(?P<how>signal (?!15\b)\d+|exited with code \d+)",
            re.MULTILINE,
        ),
    ),
    "aprun": Launcher(
        command=_aprun,
        program="aprun",
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
        program="srun",
        schedulers=("slurm",),
        ranks=("SLURM_PROCID",),
        local_ranks=("SLURM_LOCALID",),
        sizes=("SLURM_STEP_NUM_TASKS",),  # not SLURM_NTASKS: a batch script has it too, beside any step
        # src/srun/launch.c: each death as it hears of it, the first one first. "tasks 4-7,9" ended alike and at the
        # same time: the first of them stands for all.
        death=re.compile(r"^srun: error: \S+: tasks? (?P<rank>\d+)[-,\d]*: (?P<how>[^\n]+)", re.MULTILINE),
    ),
}


def flavour_of(version_text: str) -> Flavour | None:
    """The MPI whose launcher printed this for --version; None if unknown."""
    if "Intel(R) MPI" in version_text:
        return "intelmpi"
    if "HYDRA" in version_text or "MPICH" in version_text:
        return "mpich"
    return "openmpi" if re.search("Open MPI|OpenRTE|PRRTE", version_text) else None
