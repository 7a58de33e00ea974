"""`dlscale resume`: continues a study that was interrupted or had failures."""

from __future__ import annotations

from pathlib import Path

import click

from dlscale.base.errors import UsageError
from dlscale.benchmarks.cli.options import choose_study, results_option


@click.command()
@click.argument("study", required=False)
@results_option
def resume(study: str | None, results: Path) -> int:
    """Resume STUDY (a name or its beginning; default: the latest) with its original options.

    Finished cases are skipped, failed ones are tried again. On a system with a scheduler jobs are
    submitted for the cases that are neither done nor in a queued or running job; the command that
    began the study does the same, and may name another account or wall time.

    \b
    Examples:
      dlscale resume
      dlscale resume weak-scaling-3a9f --results /scratch/results
    """  # noqa: D301
    # Here, because the help does not wait for them.
    from dlscale.benchmarks.cli.run import run_here
    from dlscale.benchmarks.cli.run_jobs import submit
    from dlscale.benchmarks.launch.campaign import prepare_campaign
    from dlscale.benchmarks.study.study import read_study_file

    folder = choose_study(results, study)
    file = read_study_file(folder)
    jobs = file.system.has_jobs
    campaign = prepare_campaign(
        file.study,
        file.system,
        where="jobs" if jobs else "here",
        environment_name=file.environment,
        data=file.data,
        results=folder.parent.parent,
    )
    if campaign.store.folder.resolve() != folder.resolve():  # records never join another's curve
        raise UsageError(
            f"{folder} was measured with another code, version, machine, system file or data than there is now, and "
            "study.json names them; run the study again"
        )
    if not jobs:
        return run_here(campaign, {"data": file.data})
    facts = {"data": file.data, "account": file.account, "walltime": file.walltime}
    return submit(campaign, facts, max_node_hours=None)
