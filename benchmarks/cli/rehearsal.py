"""A run of a system that is not here: its jobs' scripts and costs, and what its study is expected to do.

Each workload is predicted at the sizes of the plan, over every backend, as `dlscale predict` would; what the system's
file does not state is assumed, in words. Of a study with a target only the speed is predicted.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import click

from dlscale.analysis.predict import show
from dlscale.analysis.predict.network import completed
from dlscale.analysis.predict.prediction import PredictedCurve, predict_curve
from dlscale.analysis.predict.profile import checked
from dlscale.analysis.predict.scenario import scenario_of
from dlscale.base.errors import UsageError
from dlscale.benchmarks.cli.predictions import public_profiles, show_curves
from dlscale.benchmarks.cli.streams import say
from dlscale.benchmarks.jobs import submission
from dlscale.benchmarks.jobs.jobs import Job
from dlscale.benchmarks.launch.campaign import Campaign
from dlscale.benchmarks.records.prediction import PredictionRecord
from dlscale.benchmarks.study.check import num_servers
from dlscale.collectives import capabilities


def rehearse(campaign: Campaign, jobs: Sequence[Job], command: str, *, account: str | None) -> None:
    """Print what is predicted of each workload; write it, the jobs' scripts and the page into the campaign's folder."""
    folder = campaign.store.folder
    campaign.store.refuse_links()

    def stem_of(first: PredictionRecord) -> Path:
        name = f"{first.workload}-{first.preset}-{first.framework}-{first.scaling_mode}-predicted"
        return campaign.store.figures_folder / name

    records = list[PredictionRecord]()
    for workload in campaign.plan.study.workloads:
        try:
            trainings = list(_trainings(campaign, workload))
        except UsageError as error:
            say(f"predicted, {workload}: nothing; {error}")
        else:
            commit = campaign.fingerprint.commit
            records += show_curves(trainings, stem_of=stem_of, command=command, commit=commit)
    rows = submission.write_rehearsal(campaign, jobs, command, account=account)
    say(f"scripts and plan are in {folder}")
    system, page = campaign.system.name, folder / "report.html"
    show.write_page(
        show.study_of(records),
        page,
        name=system,
        facts={"Rehearsal": folder.name, "To measure it": f"{command} (on {system})"},
        more=[show.jobs(rows)],
    )
    click.echo(f"report: {page}")


def _trainings(campaign: Campaign, workload: str) -> Iterator[list[PredictedCurve]]:
    """The curves of a workload in each framework: one per backend that exchanges and what is sharded over it.

    Prints which cannot be predicted. Raises UsageError if none can.
    """
    machine = completed(campaign.system)
    study, per_node = campaign.plan.study, campaign.plan.shape.ranks_per_node or 1
    if study.precision != "fp32":
        raise UsageError(f"what is published is of fp32, and the study is of {study.precision}")
    cases = [case for launch in campaign.plan.launches for case in launch.cases]
    for profile in public_profiles(
        machine.system,
        workload,
        frameworks=study.frameworks,
        preset=study.facts(workload).preset(study.preset).name,
        device=study.device,
        ranks_per_node=per_node,
    ):
        place = workload, profile.framework, "train"
        cells = [it.cell for it in cases if (it.cell.workload, it.cell.framework, it.cell.control) == place]
        # Whole nodes, without those of servers.
        nodes = sorted({cell.num_ranks // per_node for cell in cells if cell.num_ranks % per_node == 0})
        curves = []
        for backend, shard in dict.fromkeys((cell.backend, cell.shard) for cell in cells):
            if not (nodes and capabilities(backend).exchanges):
                continue
            try:
                scenario = scenario_of(
                    machine,
                    checked(profile),
                    backend,
                    scaling_mode="strong" if study.scaling_mode == "strong" else "weak",
                    backend_options=study.backend_options.get(backend, {}),
                    num_servers=lambda num_ranks: num_servers(study.servers[0], num_ranks),
                    ranks_per_node=per_node,
                    batch=study.batch,
                    shard=shard,
                )
                curves.append(predict_curve(scenario, nodes))
            except UsageError as error:
                say(f"not predicted over {backend}: {error}")
        if curves:
            yield curves
