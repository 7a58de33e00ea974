"""What a rehearsal predicts of its study: a table and a figure with its records per workload.

The engine is the one that is always there, so that a rehearsal takes seconds; `dlscale predict` has the others.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import click
from rich.console import Console
from rich.progress import Progress

from dlscale.analysis.predict.loggp import LogGP
from dlscale.analysis.predict.network import network_of
from dlscale.analysis.predict.prediction import PredictedCurve, predict_curve
from dlscale.analysis.predict.prediction_records import prediction_records
from dlscale.analysis.predict.profile import Profile
from dlscale.analysis.predict.stored import load_stored
from dlscale.analysis.render.prediction import first_line, prediction_table, profile_lines
from dlscale.analysis.render.tables import render_table
from dlscale.analysis.render.text import percent
from dlscale.base.errors import UsageError
from dlscale.benchmarks.cli.situations import situation_of
from dlscale.benchmarks.cli.streams import live_console
from dlscale.benchmarks.launch.campaign import Campaign, describe_campaign
from dlscale.benchmarks.records.prediction import ENDING, write_predictions
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
    profile = _profile(campaign, workload)
    curves = list(_curves(campaign, profile))
    if not curves:
        return
    situation = curves[0].situation
    texts = [first_line(situation), *profile_lines(situation)]
    for curve in curves:
        last = curve.points[-1]
        texts.append(
            f"predicted, {workload} ({profile.preset}) over {curve.situation.rule.backend} on "
            f"{last.num_nodes} nodes: efficiency {percent(last.efficiency)}, simulated from a {profile.evidence} "
            "profile"
        )
    for text in texts:
        console.print(text, markup=False, soft_wrap=True)
    for part in render_table(prediction_table(curves)):
        console.print(part)
    console.print(f"prediction drawn: {_draw(campaign, profile, curves)}", markup=False, soft_wrap=True)


def _profile(campaign: Campaign, workload: str) -> Profile:
    study = campaign.plan.study
    profile = load_stored(campaign.system, workload)
    preset = study.facts(workload).preset(study.preset).name
    if profile.preset != preset or profile.framework not in study.frameworks:
        raise UsageError(f"the stored profile is of preset {profile.preset} in {profile.framework}")
    return profile


def _curves(campaign: Campaign, profile: Profile) -> Iterator[PredictedCurve]:
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
        row = capabilities(backend)
        if not (row.exchanges and profile.framework in row.frameworks and sizes):
            continue
        try:
            situation = situation_of(
                campaign.system,
                network_of(campaign.system),
                profile,
                backend,
                LogGP(),
                scaling_mode="strong" if study.scaling_mode == "strong" else "weak",
                backend_options=study.backend_options.get(backend, {}),
                servers=study.servers[0],
                ranks_per_node=per_node,
                batch=study.batch if isinstance(study.batch, int) else None,
            )
            yield predict_curve(situation, sizes)
        except UsageError as error:
            click.echo(f"not predicted over {backend}: {error}")


def _draw(campaign: Campaign, profile: Profile, curves: list[PredictedCurve]) -> str:
    from dlscale.analysis.figures.prediction import draw_prediction

    situation = curves[0].situation
    folder, commit = campaign.store.figures_folder, campaign.fingerprint.commit
    command = str(describe_campaign(campaign)["command"])
    stem = folder / f"{profile.workload}-{profile.preset}-{situation.scaling_mode}-predicted"
    png, *_ = draw_prediction(
        curves,
        stem,
        small_print=[f"Profile: {profile.source}. Network: {situation.network.source}."],
        commit=commit,
        command=command,
    )
    write_predictions(prediction_records(curves, commit=commit, command=command), Path(f"{stem}{ENDING}"))
    return str(png)
