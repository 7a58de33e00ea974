"""A run of a system that is not here: what its study is expected to do.

Each workload is predicted at the sizes of the plan, over every backend, as `dlscale predict` would; what the system's
file does not state is assumed, in words. Of a study with a target only the speed is predicted.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from dlscale.analysis.predict.network import Machine, completed
from dlscale.analysis.predict.prediction import PredictedCurve, predict_curve
from dlscale.analysis.predict.profile import checked
from dlscale.analysis.predict.scenario import scenario_of
from dlscale.base.errors import UsageError
from dlscale.benchmarks.cli.predictions import public_profiles, show_curves
from dlscale.benchmarks.cli.streams import live_console, say
from dlscale.benchmarks.launch.campaign import Campaign
from dlscale.benchmarks.records.prediction import PredictionRecord
from dlscale.benchmarks.study.expand import num_servers
from dlscale.collectives import capabilities


def show_rehearsal(campaign: Campaign, command: str) -> None:
    """Print what is predicted of each workload, and draw it into the campaign's folder."""
    with live_console().status("predicting") as status:  # draws nothing where there is no terminal
        for workload in campaign.plan.study.workloads:
            status.update(f"predicting {workload}")
            try:
                trainings = list(_trainings(campaign, completed(campaign.system), workload))
            except UsageError as error:
                say(f"predicted, {workload}: nothing; {error}")
                continue
            several = len(trainings) > 1

            def stem_of(first: PredictionRecord, *, several: bool = several) -> Path:
                framework = f"-{first.framework}" * several
                name = f"{first.workload}-{first.preset}{framework}-{first.scaling_mode}-predicted"
                return campaign.store.figures_folder / name

            show_curves(trainings, stem_of=stem_of, command=command, commit=campaign.fingerprint.commit)


def _trainings(campaign: Campaign, machine: Machine, workload: str) -> Iterator[list[PredictedCurve]]:
    """The curves of a workload in each framework: one per backend that exchanges and what is sharded over it.

    Prints which cannot be predicted. Raises UsageError if none can.
    """
    study, per_node = campaign.plan.study, campaign.plan.shape.ranks_per_node or 1
    cases = [case for launch in campaign.plan.launches for case in launch.cases]
    cells = [it.cell for it in cases if (it.cell.workload, it.cell.control) == (workload, "train")]
    # Whole nodes, without those of servers.
    nodes = sorted({cell.num_ranks // per_node for cell in cells if cell.num_ranks % per_node == 0})
    if not nodes:
        return
    if workload in study.own_models:
        raise UsageError(
            f"{workload} is a model of your own; measure its profile (--set controls=profile) and give it to "
            "dlscale predict --from"
        )
    if study.precision != "fp32":
        raise UsageError(f"what is published is of fp32, and the study is of {study.precision}")
    for profile in public_profiles(
        machine.system,
        workload,
        frameworks=study.frameworks,
        preset=study.facts(workload).preset(study.preset).name,
        device=study.device,
        ranks_per_node=per_node,
    ):
        curves = []
        own = [cell for cell in cells if cell.framework == profile.framework]
        for backend, shard in dict.fromkeys((cell.backend, cell.shard) for cell in own):
            if not capabilities(backend).exchanges:
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
