"""The program of a job, which runs on its first node: launch after launch on nested subsets of the nodes.

    python -m dlscale.benchmarks.jobs.allocation STUDY_FOLDER JOB

A job may be started several times (requeued after a preemption, or submitted again): finished cases are skipped. A
launch is not started if it cannot end, or reach a checkpoint of its training, within the job's wall time.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from dataclasses import replace
from pathlib import Path

from dlscale.base.errors import UsageError
from dlscale.base.files import locked
from dlscale.base.schedulers import SCHEDULERS, job_nodes
from dlscale.base.strings import plural
from dlscale.benchmarks.jobs.jobs import WARN_SECONDS, Job, JobFiles
from dlscale.benchmarks.launch import signals
from dlscale.benchmarks.launch.campaign import Campaign, campaign_of
from dlscale.benchmarks.study.plan import Plan, shape
from dlscale.benchmarks.study.study import StudyFile, read_study_file
from dlscale.benchmarks.systems.start import find_installation

RESERVE_SECONDS = WARN_SECONDS + 10.0  # between a launch's expected end and the job's


def run(folder: Path, name: str) -> None:
    """Run what is left of a job. Raises UsageError if the study cannot be measured here any more."""
    begin, files = time.time(), JobFiles(folder, name)
    job, study = files.read(), read_study_file(folder)
    commands = SCHEDULERS[study.system.scheduler]
    held = f"{name} is running already; wait for it, or cancel it first"
    with locked(files.path("lock"), held=held):
        remedy = "dlscale resume submits it, it is not started by hand"
        nodes = job_nodes(commands.name, fewest=job.num_nodes, remedy=remedy)
        files.log("begin", nodes=len(nodes))
        end = commands.end_time(os.environ) or begin + job.seconds
        try:
            left = run_until(end, _campaign(study, job, files, nodes))
        except (UsageError, KeyboardInterrupt) as error:
            stopped = isinstance(error, KeyboardInterrupt)
            files.log("end", reason="stopped by the scheduler or by hand" if stopped else str(error))
            raise
        files.log("end", reason=f"the wall time ended with {left} launches left" if left else "done")


def _campaign(study: StudyFile, job: Job, files: JobFiles, nodes: tuple[str, ...]) -> Campaign:
    """The job's part of the study, on this machine's environment, which must be the one it was submitted with."""
    plan = Plan(
        study=study.study,
        launches=job.launches,
        num_launches=study.study.launches or 1,
        shape=shape(study.study, study.system),
        known_budget_per_case=job.budget_per_case,
        sample_times=study.system.sample_times,
    )
    installation = find_installation(study.system, study.environment)
    campaign = campaign_of(plan, study.system, installation, where="here", folder=files.folder)
    campaign.store.refuse_links()
    was, now = study.fingerprint, campaign.fingerprint
    changed = [name for name, version in was.versions.items() if now.versions.get(name) != version]
    if changed or was.commit != now.commit:  # nodes may know more, of their GPUs
        raise UsageError(
            f"{files.name} was submitted with another {', '.join(changed) or 'commit'} than it finds now; "
            "run the study again, which opens a new folder"
        )
    # Apart from the leftovers of other jobs.
    return replace(campaign, nodes=nodes, spool_folder=campaign.store.spool_folder / files.name)


def run_until(end: float, campaign: Campaign) -> int:
    """Run launches until all are done or the time is up, in seconds since 1970; returns how many are left."""
    campaign.collect_leftovers()
    todo = campaign.todo()
    begin, planned = time.monotonic(), 0.0
    deadline = begin + end - time.time()  # monotonic: a change of the system's clock does not move it
    for position, launch in enumerate(todo):
        expected = campaign.plan.seconds([launch], to_end=False)
        # Ratio of measured to planned time so far.
        pace = max(1.0, (time.monotonic() - begin) / planned) if planned else 1.0
        if time.monotonic() + pace * expected + RESERVE_SECONDS > deadline:
            return len(todo) - position
        planned += campaign.plan.seconds([launch])
        cell = launch.cell
        sys.stdout.write(
            f"{position + 1}/{len(todo)}: {cell.workload} in {cell.framework} over {cell.method}, "
            f"{plural(cell.num_ranks, 'rank')} on {plural(cell.num_nodes, 'node')}, {cell.control}\n"
        )
        sys.stdout.flush()
        for record in campaign.run(launch):
            if record.failure:
                sys.stdout.write(f"  failed: {record.failure.kind}: {record.failure.message}\n")
    return 0


def main() -> None:
    """Run the job named on the command line; exit status 1 with one line if it cannot run."""
    try:
        # Deferred: how the job ended is written in any case.
        with signals.handled("dlscale: interrupted"), signals.deferred():
            run(Path(sys.argv[1]), sys.argv[2])
    except UsageError as error:
        sys.exit(f"dlscale: {error}")
    except KeyboardInterrupt as error:
        sys.exit(signals.BY_SIGNAL + next(iter(error.args), signal.SIGINT))


if __name__ == "__main__":
    main()
