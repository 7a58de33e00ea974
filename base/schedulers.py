"""What is known of each scheduler and launcher by name: fact sheets, over which all rooms loop.

A scheduler's script and commands are in benchmarks/jobs/NAME.py, a launcher's command lines in
benchmarks/launch/launchers.py. Every rank imports this module, so it must stay light.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class JobVariables:
    """Variables in which a scheduler describes a job. `hosts` names a file with a line per slot, `listed` the nodes."""

    job_id: str
    partition: str = ""
    num_nodes: str = ""
    listed: str = ""
    hosts: str = ""
    switches: str = ""  # the path from the root of the network's tree to the node


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerFacts:
    """A scheduler with jobs.

    `command` tells that it is installed and `queue_option` is its option for queues: both for the template that the
    probe writes, and empty where the probe asks the scheduler itself. `variables` is None where jobs have only those of
    another scheduler, under whose name records have them.
    """

    name: str
    command: str = ""
    queue_option: str = "-q"
    variables: JobVariables | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LauncherFacts:
    """A launcher. `schedulers`: in whose jobs it starts programs; empty: in those of all.

    `ranks`, `local_ranks` and `sizes` are the variables that tell a process its rank, that on its node, and how many
    processes there are.
    """

    name: str
    schedulers: tuple[str, ...] = ()
    ranks: tuple[str, ...] = ()
    local_ranks: tuple[str, ...] = ()
    sizes: tuple[str, ...] = ()


# The first whose variables are set is the scheduler of a job. Slurm first: a Flux job may run inside a Slurm job.
SCHEDULERS = (
    SchedulerFacts(
        name="slurm",
        variables=JobVariables(
            job_id="SLURM_JOB_ID",
            partition="SLURM_JOB_PARTITION",
            num_nodes="SLURM_JOB_NUM_NODES",
            listed="SLURM_JOB_NODELIST",
            switches="SLURM_TOPOLOGY_ADDR",
        ),
    ),
    SchedulerFacts(
        name="cobalt",
        command="qstat",
        variables=JobVariables(job_id="COBALT_JOBID", num_nodes="COBALT_JOBSIZE", listed="COBALT_PARTNAME"),
    ),
    SchedulerFacts(
        name="pbs",
        command="qstat",
        variables=JobVariables(job_id="PBS_JOBID", partition="PBS_QUEUE", hosts="PBS_NODEFILE"),
    ),
    SchedulerFacts(name="torque", command="qstat"),  # its jobs have the variables of PBS
    # LSF's lists are left out, as they may include the node of the batch script.
    SchedulerFacts(
        name="lsf", command="bsub", variables=JobVariables(job_id="LSB_JOBID", partition="LSB_QUEUE")
    ),
    SchedulerFacts(
        name="flux",
        command="flux",
        queue_option="--queue",
        variables=JobVariables(job_id="FLUX_JOB_ID", num_nodes="FLUX_JOB_NNODES"),
    ),
)

# A process asks for the first one's variables first. Slurm's come last: a job's script has them too, and another
# launcher may run inside.
LAUNCHERS = (
    LauncherFacts(
        name="mpiexec",
        ranks=("PMI_RANK", "OMPI_COMM_WORLD_RANK", "PMIX_RANK"),
        local_ranks=("MPI_LOCALRANKID", "OMPI_COMM_WORLD_LOCAL_RANK", "PALS_LOCAL_RANKID"),
        sizes=("PMI_SIZE", "OMPI_COMM_WORLD_SIZE", "MV2_COMM_WORLD_SIZE"),
    ),
    LauncherFacts(
        name="jsrun",
        schedulers=("lsf",),
        local_ranks=("JSM_NAMESPACE_LOCAL_RANK",),
        sizes=("JSM_NAMESPACE_SIZE",),
    ),
    # Starts inside the jobs of others, too.
    LauncherFacts(name="flux", ranks=("FLUX_TASK_RANK",), local_ranks=("FLUX_TASK_LOCAL_ID",)),
    LauncherFacts(name="aprun", schedulers=("cobalt", "pbs", "torque", "slurm"), ranks=("ALPS_APP_PE",)),
    LauncherFacts(
        name="srun",
        schedulers=("slurm",),
        ranks=("SLURM_PROCID",),
        local_ranks=("SLURM_LOCALID",),
        # Not SLURM_NTASKS: a batch script has it too, beside any step.
        sizes=("SLURM_STEP_NUM_TASKS",),
    ),
)
