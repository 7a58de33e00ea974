"""torchrun of torch.distributed, which starts ranks without any MPI.

On one machine ranks meet through a file in the launch's folder, and no port is opened to other machines. Over several
nodes torch's store listens on the first one and asks nobody who connects: the study must allow that.
"""

from __future__ import annotations

import re

from dlscale.base.launching import srun
from dlscale.base.launching.launcher import Launcher, Start, set_by_env

RUNNING = "TORCHELASTIC_RUN_ID"  # set in each process that torchrun started
PORT = "29500"  # torchrun's own default

# The agent would keep a store of its own open for the ranks, who have theirs.
_NO_STORE = {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}


def command(start: Start) -> list[str]:
    """An agent per node, which starts the node's ranks and ends them all when one fails.

    srun starts the agents, with all that ranks of the node may use. An agent says its node's number by PET_NODE_RANK.
    """
    if start.num_ranks != start.num_nodes * start.ranks_per_node:
        raise ValueError(
            f"torchrun cannot spread {start.num_ranks} ranks over {start.num_nodes} nodes by {start.ranks_per_node}"
        )
    python, folder = start.program[0], start.folder
    if start.num_nodes == 1:
        meeting = ["c10d", "--rdzv-endpoint", f"{folder}/rendezvous", "--rdzv-conf", "store_type=file"]
    else:
        first = ["--master-addr", start.nodes[0]] if start.nodes else []
        meeting = ["static", *first, "--master-port", PORT]
    agent = [
        *(python, "-P", "-m", "torch.distributed.run"),
        f"--nnodes={start.num_nodes}",
        f"--nproc-per-node={start.ranks_per_node}",
        "--max-restarts=0",
        f"--log-dir={folder}/torchrun",
        *("--rdzv-backend", *meeting),
        "--no-python",
        *start.program,
    ]
    variables = set_by_env({**start.variables, **(_NO_STORE if start.num_nodes == 1 else {})})
    return [*variables, *_on_nodes(start, agent)]


def _on_nodes(start: Start, agent: list[str]) -> list[str]:
    if not start.is_in_job:
        return agent
    options = [
        *srun.on_nodes(start, start.num_nodes, per_node=1, cpus=start.cpus_per_rank * start.ranks_per_node),
        *start.launch_options,
        # What a system's file says of one rank's place is not meant for an agent of several.
        "--cpu-bind=none",
        *(["--gpu-bind=none"] if start.devices_per_rank else []),
    ]
    return ["srun", *options, "bash", "-c", 'PET_NODE_RANK=$SLURM_PROCID exec "$@"', "agent", *agent]


LAUNCHER = Launcher(
    command=command,
    per_node=srun.LAUNCHER.per_node,
    schedulers=("slurm",),
    needs_mpi=False,
    needs_job=False,
    open_ports=True,
    ranks=("RANK",),
    local_ranks=("LOCAL_RANK",),
    sizes=("WORLD_SIZE",),
    # torch/distributed/elastic/multiprocessing/errors. The failures above this one are those that it ended.
    death=re.compile(
        r"^Root Cause \(first observed failure\):.*?^\s+rank\s+: (?P<rank>\d+) .*?"
        r"(?P<how>[Ss]ignal \d+ \(SIG\w+\)|exitcode\s+: \d+)",
        re.MULTILINE | re.DOTALL,
    ),
)
