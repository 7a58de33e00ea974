"""jsrun of IBM's Job Step Manager."""

from __future__ import annotations

from dlscale.base.launching.launcher import Launcher, Start, set_by_env


def command(start: Start) -> list[str]:
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
    return [*set_by_env(start.variables), "jsrun", *options, *start.launch_options, *start.program]


LAUNCHER = Launcher(  # what it prints of deaths is in no public source
    command=command,
    per_node=lambda n: ["jsrun", f"--nrs={n}", "--rs_per_host=1", "--tasks_per_rs=1", "--cpu_per_rs=1"],
    schedulers=("lsf",),
    local_ranks=("JSM_NAMESPACE_LOCAL_RANK",),
    sizes=("JSM_NAMESPACE_SIZE",),
)
