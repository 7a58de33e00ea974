"""All schedulers, a row for each, and the nodes of the job around this process."""

from __future__ import annotations

import os
from dataclasses import replace

from dlscale.base.batch import END_TIME_VARIABLE, NODES_VARIABLE, Scheduler
from dlscale.base.errors import UsageError

# The man pages of 22.05 and later. Only the batch shell gets the signal before the end; by then the program has
# replaced it (`jobs/script.py`). A job that lost a node or was preempted is queued again under its number, and appends
# to its log.
_SLURM = Scheduler(
    name="slurm",
    id_variable="SLURM_JOB_ID",
    list_variable="SLURM_JOB_NODELIST",
    end_variable="SLURM_JOB_END_TIME",  # in versions after 22.05 only
    marker="#SBATCH",
    options=(
        "--job-name={name}",
        "--nodes={num_nodes}",
        "--ntasks-per-node={ranks_per_node}",
        "--cpus-per-task={cpus_per_rank}",
        "--exclusive",
        "--time={clock}:00",
        "--chdir={folder}",
        "--output={output}",
        "--open-mode=append",
        "--requeue",
        "--signal=B:TERM@{warn_seconds}",
        "--account={account}",
    ),
    replaced="%",
    submit=("sbatch", "--parsable"),
    accepted=r"^(\d+)(?:;\S+)?\s*$",  # after a semicolon the cluster's name, where there are several
    query=lambda ids: [
        *("squeue", "--noheader", "--states=all", "--format=%i %T", f"--jobs={','.join(ids)}")
    ],
    # A job whose nodes boot (CONFIGURING) or are cleaned up (COMPLETING) has them: it runs.
    pending="PENDING|REQUEUED|REQUEUE_FED|REQUEUE_HOLD|RESV_DEL_HOLD|SPECIAL_EXIT",
    ended="BOOT_FAIL|CANCELLED|COMPLETED|DEADLINE|FAILED|NODE_FAIL|OUT_OF_MEMORY|PREEMPTED|REVOKED|TIMEOUT",
    forgotten="Invalid job id",
)

# Cobalt, as it ran Argonne's Theta and Cooley (its man pages and source, repository ido/cobalt). Both streams go to one
# file, which Cobalt appends to. Cooley has a node file, Theta the numbers of the nodes: 3829-3832,3840.
_COBALT = Scheduler(
    name="cobalt",
    id_variable="COBALT_JOBID",
    file_variable="COBALT_NODEFILE",
    list_variable="COBALT_PARTNAME",
    end_variable="COBALT_ENDTIME",
    marker="#COBALT",
    options=(
        "--jobname {name}",
        "-n {num_nodes}",
        "-t {minutes}",
        "--cwd {folder}",
        "-o {output}",
        "-e {output}",
        "-A {account}",
    ),
    submit=("qsub", "--mode", "script"),
    accepted=r"^(\d+)\s*$",
    query=lambda ids: ["qstat", "--header", "JobID:State", *ids],  # ended jobs are not in it
    pending="queued|hold|.*_hold",
    ended="done|dep_fail",  # dep_fail: the job before failed, so this one never starts
    forgotten=r"\A\s*\Z",
)

# PBS Pro and OpenPBS (their man pages): whole nodes by their cores. PBS sends no signal before the wall time ends: then
# SIGTERM and SIGKILL.
_PBS = Scheduler(
    name="pbs",
    id_variable="PBS_JOBID",
    file_variable="PBS_NODEFILE",
    marker="#PBS",
    options=(
        "-N {name}",
        "-l select={num_nodes}:ncpus={cores_per_node}:mpiprocs={ranks_per_node}",
        "-l place=scatter:excl",
        "-l walltime={clock}:00",
        "-j oe",
        "-o {output}",
        "-r y",
        "-A {account}",
    ),
    longest_name=15,
    replaced=":",  # the end of a host's name
    submit=("qsub",),
    accepted=r"^(\d+(?:\[\])?(?:\.\S+)?)\s*$",  # 12345.server
    query=lambda ids: ["qstat", "-x", "-f", *ids],  # -x: with ended jobs
    # The long format: tables would cut the ids.
    rows=r"^Job Id:\s*(\S+)(?:(?!^Job Id:).)*?^\s*job_state = (\w)",
    pending="[QHWTM]",
    ended="[FXC]",
    # Ended jobs are forgotten after a while, or at once where there is no history.
    forgotten="Unknown Job Id|Job has finished",
)

# PBS with nodes=N:ppn=M, all cores of a node, so that no other job gets any.
_TORQUE = replace(
    _PBS,
    name="torque",
    options=(_PBS.options[0], "-l nodes={num_nodes}:ppn={cores_per_node}", *_PBS.options[3:]),
    query=lambda ids: ["qstat", "-f", *ids],  # ended jobs stay for a while; -x would mean XML here
)

# LSF with whole nodes (-nnodes), as on machines with jsrun (OLCF's guide to Summit; IBM's manual of bsub). -o appends.
# The warning before the end (-wa, -wt) is counted in whole minutes. The host file begins with the launch node, where
# the script runs and jsrun starts nothing; lists of hosts in other variables include it too.
_LSF = Scheduler(
    name="lsf",
    id_variable="LSB_JOBID",
    file_variable="LSB_DJOB_HOSTFILE",
    launch_nodes=r"(batch|login)\d*(\.|$)",
    marker="#BSUB",
    options=(
        "-J {name}",
        "-nnodes {num_nodes}",
        "-W {short_clock}",
        "-cwd {folder}",
        "-o {output}",
        "-r",
        "-wa TERM -wt {warn_minutes}",
        "-P {account}",
    ),
    replaced="%",
    # Directives are read only from what bsub gets on its stdin, unless a site has configured it otherwise.
    submit=("sh", "-c", 'exec bsub < "$0"'),
    accepted=r"Job <(\d+)> is submitted",
    query=lambda ids: ["bjobs", "-noheader", "-o", "jobid stat", *ids],
    pending="PEND|PSUSP|WAIT",
    ended="DONE|EXIT",
    forgotten="is not found",
)

# Whole nodes (flux-core's man pages). No signal before the end: Flux would send it to the ranks of the running launch,
# too. A batch job is an instance of Flux, which answers queries for facts; there are no variables for them.
_FLUX = Scheduler(
    name="flux",
    id_variable="FLUX_JOB_ID",
    list_variable=NODES_VARIABLE,
    marker="# flux:",
    options=(
        "--job-name={name}",
        "--nodes={num_nodes}",
        "--exclusive",
        "--time-limit={minutes}m",
        "--cwd={folder}",
        "--output={output}",
        "--setopt=output.mode=append",
        "--bank={account}",
    ),
    replaced="{{",
    submit=("flux", "batch"),
    accepted=r"^(f[1-9A-HJ-NP-Za-km-z]+)\s*$",
    query=lambda ids: ["flux", "jobs", "--no-header", "--format={id} {state}", *ids],
    pending="DEPEND|PRIORITY|SCHED",
    ended="INACTIVE",
    forgotten=r"JobID \S+ unknown",
    facts={
        NODES_VARIABLE: "$(flux getattr hostlist)",
        END_TIME_VARIABLE: "$(($(date +%s) + $(flux job timeleft)))",
    },
)

# The first whose variables are set is that of a job. Slurm first: a job of Flux may run inside one of Slurm. PBS before
# Torque, whose jobs have the same variables.
SCHEDULERS = {row.name: row for row in (_SLURM, _COBALT, _PBS, _TORQUE, _LSF, _FLUX)}


def job_nodes(name: str, *, fewest: int, remedy: str) -> tuple[str, ...]:
    """The nodes of the job around this process. Raises UsageError outside one, and where it has less than `fewest`."""
    if name not in SCHEDULERS:
        raise UsageError(f"the system has no scheduler (scheduler = {name!r}); {remedy}")
    try:
        nodes = tuple(SCHEDULERS[name].nodes(os.environ))
    except (ValueError, OSError) as error:
        raise UsageError(f"this is no job of {name} ({error}); {remedy}") from None
    if fewest > len(nodes):
        raise UsageError(
            f"the job has {len(nodes)} nodes, but {fewest} are asked for; ask for fewer, or start a larger job"
        )
    return nodes
