"""A run of a system that is not here: what its study is expected to do.

Each workload is predicted at the sizes of the plan, over every backend, as `dlscale predict` would; what the system's
file does not state is assumed, in words. Of a study with a target only the speed is predicted.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

from dlscale.analysis.predict.network import Machine, completed
from dlscale.analysis.predict.prediction import PredictedCurve, predict_curve
from dlscale.analysis.predict.profile import Profile, checked
from dlscale.analysis.predict.scenario import scenario_of
from dlscale.base.errors import UsageError
from dlscale.benchmarks.cli.show_predictions import show_curves
from dlscale.benchmarks.cli.streams import live_console, say
from dlscale.benchmarks.cli.trainings import public_profiles, servers_of
from dlscale.benchmarks.launch.campaign import Campaign
from dlscale.benchmarks.records.prediction import PredictionRecord
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
            show_curves(
                trainings,
                stem_of=partial(_stem, campaign.store.figures_folder, several=len(trainings) > 1),
                command=command,
                commit=campaign.fingerprint.commit,
            )


def _stem(folder: Path, first: PredictionRecord, *, several: bool) -> Path:
    """Where the predictions of a training go."""
    framework = f"-{first.framework}" * several
    return folder / f"{first.workload}-{first.preset}{framework}-{first.scaling_mode}-predicted"


def _trainings(campaign: Campaign, machine: Machine, workload: str) -> Iterator[list[PredictedCurve]]:
    """The curves of a workload in each framework. Raises UsageError if nothing can be predicted of it."""
    study, shape = campaign.plan.study, campaign.plan.shape
    per_node = shape.ranks_per_node or 1
    cells = [case.cell for launch in campaign.plan.launches for case in launch.cases]
    ranks = {it.num_ranks for it in cells if (it.workload, it.control) == (workload, "train")}
    full = {it.num_nodes for it in shape.sizes if it.num_ranks == it.num_nodes * per_node}
    nodes = sorted(count for count in full if count * per_node in ranks)
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
        if curves := list(_curves(campaign, machine, profile, nodes)):
            yield curves


def _curves(
    campaign: Campaign, machine: Machine, profile: Profile, nodes: Sequence[int]
) -> Iterator[PredictedCurve]:
    """A curve per backend that exchanges and what is sharded over it; prints which cannot be predicted."""
    study = campaign.plan.study
    cells = [case.cell for launch in campaign.plan.launches for case in launch.cases]
    own = [it for it in cells if (it.workload, it.framework) == (profile.workload, profile.framework)]
    for backend, shard in dict.fromkeys((it.backend, it.shard) for it in own if it.control == "train"):
        if not capabilities(backend).exchanges:
            continue
        try:
            scenario = scenario_of(
                machine,
                checked(profile),
                backend,
                scaling_mode="strong" if study.scaling_mode == "strong" else "weak",
                backend_options=study.backend_options.get(backend, {}),
                num_servers=servers_of(study.servers[0]),
                ranks_per_node=campaign.plan.shape.ranks_per_node or 1,
                batch=study.batch,
                shard=shard,
            )
            yield predict_curve(scenario, nodes)
        except UsageError as error:
            say(f"not predicted over {backend}: {error}")
