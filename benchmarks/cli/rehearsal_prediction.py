"""What a rehearsal predicts of its study: a table and a figure with its records per workload."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import click
from rich.console import Console
from rich.progress import Progress

from dlscale.analysis.predict.network import Network, network_of, with_assumed
from dlscale.analysis.predict.prediction import PredictedCurve, predict_curve, prediction_records
from dlscale.analysis.predict.profile import Profile
from dlscale.analysis.predict.published_profiles import derived_profile, load_stored, stored_names
from dlscale.analysis.predict.render import first_line, prediction_table, profile_lines
from dlscale.analysis.predict.scenario import Scenario
from dlscale.analysis.render.grid import render_table
from dlscale.analysis.text import percent
from dlscale.base.errors import UsageError
from dlscale.benchmarks.cli.scenarios import scenario_of
from dlscale.benchmarks.cli.streams import live_console
from dlscale.benchmarks.launch.campaign import Campaign, describe_campaign
from dlscale.benchmarks.records.prediction import ENDING, write_predictions
from dlscale.benchmarks.systems.system import System
from dlscale.collectives import capabilities


def show_prediction(campaign: Campaign) -> None:
    """Print the predicted table of each workload, or why there is none, and draw it into the campaign's folder."""
    workloads = campaign.plan.study.workloads
    console = live_console(stderr=False)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as progress:
        for workload in progress.track(workloads, description="predicting"):
            try:
                _show_workload(campaign, workload, console)
            except UsageError as error:
                console.print(f"predicted, {workload}: nothing; {error}", markup=False, soft_wrap=True)


def _show_workload(campaign: Campaign, workload: str, console: Console) -> None:
    """Raises UsageError if nothing can be predicted of it."""
    system, assumed = with_assumed(campaign.system)
    network = network_of(system)
    profiles = list(_profiles(campaign, network, workload))
    for profile in profiles:
        curves = list(_curves(campaign, system, profile, assumed))
        if not curves:
            continue
        scenario = curves[0].scenario
        texts = [first_line(scenario), *profile_lines(scenario), *scenario.doubts]
        for curve in curves:
            last = curve.points[-1]
            texts.append(
                f"predicted, {workload} ({profile.preset}) over {curve.scenario.rule.backend} on "
                f"{last.num_nodes} nodes: efficiency {percent(last.efficiency)}, simulated from a {profile.evidence} "
                "profile"
            )
        for text in texts:
            console.print(text, markup=False, soft_wrap=True)
        for part in render_table(prediction_table(curves)):
            console.print(part)
        drawn = _draw(campaign, profile, curves, several=len(profiles) > 1)
        console.print(f"prediction drawn: {drawn}", markup=False, soft_wrap=True)


def _profiles(campaign: Campaign, network: Network, workload: str) -> Iterator[Profile]:
    """The stored profile where it is of what the study trains, else derived ones. Raises UsageError."""
    study, system = campaign.plan.study, campaign.system
    preset = study.facts(workload).preset(study.preset).name
    if workload in study.own_models:
        raise UsageError(
            f"{workload} is a model of your own; measure its profile (--set controls=profile) and give it to dlscale "
            "predict --from"
        )
    if study.precision != "fp32":
        raise UsageError(f"what is published is of fp32, and the study is of {study.precision}")
    for framework in study.frameworks:
        if f"{system.name}-{workload}" in stored_names():
            stored = load_stored(system, workload)
            if (stored.preset, stored.framework) == (preset, framework):
                yield stored
                continue
        yield derived_for(campaign, network, workload, framework)


def derived_for(campaign: Campaign, network: Network, workload: str, framework: str) -> Profile:
    """The derived profile of a rank of the campaign. Raises UsageError."""
    study = campaign.plan.study
    return derived_profile(
        campaign.system,
        workload,
        study.facts(workload).preset(study.preset).name,
        framework,
        device=study.device,
        ranks_per_node=campaign.plan.shape.ranks_per_node or 1,
        memory_bytes_per_second=network.node_memory_bytes_per_second or network.node_bytes_per_second,
    )


def exchanging(backend: str, framework: str) -> bool:
    """Whether the backend exchanges gradients of the framework."""
    row = capabilities(backend)
    return row.exchanges and framework in row.frameworks


def predicted_scenario(
    campaign: Campaign,
    system: System,
    profile: Profile,
    assumed: tuple[str, ...],
    backend: str,
    *,
    mode: Literal["weak", "strong"],
    batch: int | None,
) -> Scenario:
    """What is predicted of the campaign's study over one backend. Raises UsageError."""
    study = campaign.plan.study
    return scenario_of(
        system,
        profile,
        backend,
        scaling_mode=mode,
        backend_options=study.backend_options.get(backend, {}),
        servers=study.servers[0],
        ranks_per_node=campaign.plan.shape.ranks_per_node or 1,
        batch=batch,
        assumed=assumed,
    )


def _curves(
    campaign: Campaign, system: System, profile: Profile, assumed: tuple[str, ...]
) -> Iterator[PredictedCurve]:
    """A curve per backend that exchanges; those that cannot be predicted are said."""
    study, shape = campaign.plan.study, campaign.plan.shape
    per_node = shape.ranks_per_node or 1
    cells = [case.cell for launch in campaign.plan.launches for case in launch.cases]
    trained = {(cell.workload, cell.num_ranks) for cell in cells if cell.control == "train"}
    sizes = [
        size.num_nodes
        for size in shape.sizes
        if size.num_ranks == size.num_nodes * per_node and (profile.workload, size.num_ranks) in trained
    ]
    for backend in study.backends:
        if not exchanging(backend, profile.framework) or not sizes:
            continue
        mode: Literal["weak", "strong"] = "strong" if study.scaling_mode == "strong" else "weak"
        try:
            scenario = predicted_scenario(
                campaign, system, profile, assumed, backend, mode=mode, batch=study.batch
            )
            yield predict_curve(scenario, sizes)
        except UsageError as error:
            click.echo(f"not predicted over {backend}: {error}")


def _draw(campaign: Campaign, profile: Profile, curves: list[PredictedCurve], *, several: bool) -> str:
    from dlscale.analysis.predict.figures import draw_prediction

    scenario = curves[0].scenario
    folder, commit = campaign.store.figures_folder, campaign.fingerprint.commit
    command = str(describe_campaign(campaign)["command"])
    name = f"{profile.workload}-{profile.preset}{f'-{profile.framework}' if several else ''}"
    stem = folder / f"{name}-{scenario.scaling_mode}-predicted"
    png, *_ = draw_prediction(
        curves,
        stem,
        small_print=[f"Profile: {profile.source}. Network: {scenario.network.source}."],
        commit=commit,
        command=command,
    )
    write_predictions(prediction_records(curves, commit=commit, command=command), Path(f"{stem}{ENDING}"))
    return str(png)
