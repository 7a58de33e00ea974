"""A run of a system that is not here: its jobs' scripts and costs, and what its study is expected to do.

Each workload is predicted at the sizes of the plan, over every backend, as `dlscale predict` would; what the system's
file does not state is assumed, in words. Of a study with a target only the speed is predicted.
"""

from __future__ import annotations

from collections.abc import Sequence

import click

from dlscale.analysis.predict import show
from dlscale.analysis.predict.network import completed
from dlscale.base.errors import UsageError
from dlscale.benchmarks.cli import say
from dlscale.benchmarks.cli.predictions import curves_of, public_profiles, show_curves
from dlscale.benchmarks.jobs import submission
from dlscale.benchmarks.jobs.jobs import Job
from dlscale.benchmarks.launch.campaign import Campaign
from dlscale.benchmarks.records.prediction import PredictionRecord
from dlscale.collectives import capabilities


def rehearse(campaign: Campaign, jobs: Sequence[Job], command: str, *, account: str | None) -> None:
    """Print what is predicted of each workload; write it, the jobs' scripts and the page into the campaign's folder."""
    store, study = campaign.store, campaign.plan.study
    store.refuse_links()
    records = list[PredictionRecord]()
    for workload in study.workloads:
        try:
            records += _predicted(campaign, workload, command)
        except UsageError as error:
            say(f"predicted, {workload}: nothing; {error}")
    rows = submission.write_rehearsal(campaign, jobs, command, account=account)
    say(f"scripts and plan are in {store.folder}")
    system, page = campaign.system.name, store.folder / "report.html"
    show.write_page(
        show.study_of(records),
        page,
        name=system,
        facts={"Rehearsal": store.folder.name, "To measure it": f"{command} (on {system})"},
        more=[show.jobs(rows)],
    )
    click.echo(f"report: {page}")


def _predicted(campaign: Campaign, workload: str, command: str) -> list[PredictionRecord]:
    """Print and write the curves of a workload: per framework, backend that exchanges, and what is sharded over it."""
    machine = completed(campaign.system)
    study, per_node = campaign.plan.study, campaign.plan.shape.ranks_per_node or 1
    if study.precision != "fp32":
        raise UsageError(f"what is published is of fp32, and the study is of {study.precision}")
    cells = [case.cell for launch in campaign.plan.launches for case in launch.cases]
    trainings = []
    for profile in public_profiles(
        machine.system,
        workload,
        frameworks=study.frameworks,
        preset=study.facts(workload).preset(study.preset).name,
        device=study.device,
        ranks_per_node=per_node,
    ):
        place = workload, profile.framework, "train"
        own = [cell for cell in cells if (cell.workload, cell.framework, cell.control) == place]
        # Whole nodes, without those of servers.
        nodes = sorted({cell.num_ranks // per_node for cell in own if cell.num_ranks % per_node == 0})
        carriers = [(cell.backend, cell.shard) for cell in own if capabilities(cell.backend).exchanges]
        trainings.append(
            curves_of(
                machine,
                profile,
                dict.fromkeys(carriers) if nodes else (),
                scaling_mode="strong" if study.scaling_mode == "strong" else "weak",
                nodes=nodes,
                servers=study.servers[0],
                backend_options=study.backend_options,
                ranks_per_node=per_node,
                batch=study.batch,
                left_out=say,
            )
        )
    commit = campaign.fingerprint.commit
    return show_curves(trainings, campaign.store.figures_folder, command=command, commit=commit)
