"""A rehearsal of time to solution: samples to the target from trainings of this machine, rates from the prediction."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from dlscale.analysis.findings.solutions import times_to_solution
from dlscale.analysis.launches import launches_of
from dlscale.analysis.predict.network import network_of, with_assumed
from dlscale.analysis.predict.prediction import predict_curve
from dlscale.analysis.predict.solution import (
    PredictedSolution,
    SamplesToTarget,
    samples_of,
    solution_row,
    solution_table,
)
from dlscale.analysis.render.grid import render_table
from dlscale.base.errors import UsageError
from dlscale.base.files import write_atomically
from dlscale.benchmarks.cli.options import study_folders
from dlscale.benchmarks.cli.rehearsal_prediction import derived_for, exchanging, predicted_scenario
from dlscale.benchmarks.cli.request import Request
from dlscale.benchmarks.cli.streams import live_console
from dlscale.benchmarks.launch.campaign import Campaign, describe_campaign
from dlscale.benchmarks.records.files import load_records
from dlscale.benchmarks.records.prediction import ENDING, write_predictions
from dlscale.benchmarks.study.study import Study

# What a training on this machine has no use for.
OF_NODES = ("nodes", "ranks_per_node", "partition", "servers")


OF_SAMPLES = (
    *(
        "metric",
        "threshold",
        "held_out",
        "learning_rate",
        "learning_rate_scaling",
        "warm_up_samples",
        "decay_samples",
    ),
    *("decay_factor", "growth_samples", "growth_factor", "optimizer", "momentum", "weight_decay"),
    *("trust_coefficient", "tuned"),
)


def local_request(request: Request, workloads: list[str]) -> Request:
    """What trains the same here: without a communication layer and over the ring, on as many ranks as cores."""
    own = {"workloads": workloads, "backends": ["none", "ring"], "device": "cpu"}
    return request.changed(
        without=(*OF_NODES, "ranks"),
        fields=own,
        system="local",
        environment=None,
        account=None,
        walltime=None,
        max_node_hours=None,
        allow_open_ports=None,
    )


def local_samples(results: Path, study: Study, workload: str) -> list[SamplesToTarget]:
    """The samples of the latest local study that trained the workload to the study's target by its rules."""
    try:
        folders = study_folders(results)
    except UsageError:
        return []
    for folder in reversed(folders):
        if folder.parent.name != "local" or not same_rules(_stored(folder), study, workload):
            continue
        records, _ = load_records(folder)
        rows = times_to_solution(launches_of(records), base="1")
        found = [it for it in samples_of(rows, workload, folder.name) if it.framework in study.frameworks]
        if found:
            return found
    return []


def same_rules(stored: dict[str, Any], study: Study, workload: str) -> bool:
    """Whether a stored study trains the workload to the study's target, by the rules that samples depend on."""

    def rules(of: dict[str, Any]) -> list[Any]:
        target = of.get("target") or {}
        goal = target.get("goals", {}).get(workload, {}).get(of["preset"], {})
        stated = [goal.get(name) for name in ("metric", "threshold", "learning_rate")]
        return [bool(target), of["preset"], *stated, *(target.get(name) for name in OF_SAMPLES)]

    return rules(stored) == rules(study.model_dump(mode="json"))


def _stored(folder: Path) -> dict[str, Any]:
    """The study of a folder as it was written. Raises UsageError."""
    try:
        study: dict[str, Any] = json.loads((folder / "study.json").read_text(encoding="utf-8"))["study"]
    except (OSError, ValueError, KeyError) as error:
        raise UsageError(
            f"{folder / 'study.json'} cannot be read: {error}; delete it, or give other --results"
        ) from None
    return study


def show_solutions(campaign: Campaign, trained: Mapping[str, list[SamplesToTarget]]) -> None:
    """Print what is predicted of each workload, and draw and write it into the campaign's folder."""
    console = live_console()
    for workload in campaign.plan.study.workloads:
        if not trained.get(workload):
            click.echo(
                f"predicted, {workload}: no time to solution; no trainings of 6 seeds or more reached its target here"
            )
            continue
        try:
            solutions = _solutions(campaign, workload, trained[workload])
        except UsageError as error:
            click.echo(f"predicted, {workload}: no time to solution; {error}")
            continue
        if not solutions:
            continue
        for text in dict.fromkeys(it.trained.source for it in solutions):
            click.echo(f"samples to the target: {text}")
        for part in render_table(solution_table(solutions)):
            console.print(part)
        click.echo(f"time to solution drawn: {_write(campaign, workload, solutions)}")


def _solutions(campaign: Campaign, workload: str, trained: list[SamplesToTarget]) -> list[PredictedSolution]:
    """The predicted times at the trained batches, on the study's numbers of nodes that divide them."""
    system, assumed = with_assumed(campaign.system)
    network = network_of(system)
    shape = campaign.plan.shape
    per_node = shape.ranks_per_node or 1
    counts = sorted({size.num_nodes for size in shape.sizes if size.num_ranks == size.num_nodes * per_node})
    refused = [count for count in counts if all(it.global_batch % (count * per_node) for it in trained)]
    if refused:
        batches = ", ".join(str(it.global_batch) for it in trained)
        click.echo(
            f"no time to solution on {', '.join(map(str, refused))} nodes: no training here had a global batch that "
            f"their ranks divide (trained: {batches}), and none is extrapolated"
        )
    found = []
    for backend in campaign.plan.study.backends:
        for it in trained:
            nodes = [count for count in counts if it.global_batch % (count * per_node) == 0]
            if not nodes or not exchanging(backend, it.framework):
                continue
            profile = derived_for(campaign, network, workload, it.framework)
            try:
                scenario = predicted_scenario(
                    campaign, system, profile, assumed, backend, mode="strong", batch=it.global_batch
                )
                curve = predict_curve(scenario, nodes)
            except UsageError as error:
                click.echo(f"not predicted over {backend}: {error}")
                continue
            found += [PredictedSolution(curve=curve, point=point, trained=it) for point in curve.points]
    return found


def _write(campaign: Campaign, workload: str, solutions: list[PredictedSolution]) -> str:
    from dlscale.analysis.predict.figures import draw_solutions

    commit, command = campaign.fingerprint.commit, str(describe_campaign(campaign)["command"])
    stem = campaign.store.figures_folder / f"{workload}-{solutions[0].trained.preset}-solution-predicted"
    png, *_ = draw_solutions(solutions, stem, commit=commit, command=command)
    rows = [solution_row(it) for it in solutions]
    write_atomically(Path(f"{stem}.json"), json.dumps({"schema": 1, "rows": rows}, indent=1), mode=0o644)
    write_predictions(
        [it.record(commit=commit, command=command) for it in solutions], Path(f"{stem}{ENDING}")
    )
    return str(png)
