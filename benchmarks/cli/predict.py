"""`dlscale predict`: the curve for nodes that are not here, from a node's profile and the system's network."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import click
from rich.console import Console

from dlscale.analysis.predict.engine import Algorithm
from dlscale.analysis.predict.engines import ENGINES, RememberingEngine, cache_folder, engine_named
from dlscale.analysis.predict.grid import Axes, check_grid
from dlscale.analysis.predict.network import network_of
from dlscale.analysis.predict.prediction import (
    NUM_REPLICATES,
    PredictedCurve,
    Situation,
    check_sizes,
    predict_curve,
)
from dlscale.analysis.predict.prediction_records import prediction_records
from dlscale.analysis.predict.profile import Profile, checked
from dlscale.analysis.predict.stored import load_stored
from dlscale.analysis.published.catalogue import load_published
from dlscale.analysis.render.prediction import (
    explanation,
    first_line,
    is_written,
    prediction_rows,
    prediction_table,
    profile_lines,
)
from dlscale.base import redaction
from dlscale.base.errors import UsageError
from dlscale.base.files import make_folder
from dlscale.benchmarks.cli.grid_option import grid_option, put_grid
from dlscale.benchmarks.cli.network_options import background_option, slow_nodes_option
from dlscale.benchmarks.cli.option_kinds import BackendOptions, Backends, Counts, Words
from dlscale.benchmarks.cli.options import json_option, named_folder, results_option
from dlscale.benchmarks.cli.situations import situation_of
from dlscale.benchmarks.records.files import load_records
from dlscale.benchmarks.records.prediction import ENDING, PREDICTIONS_FOLDER, write_predictions
from dlscale.benchmarks.systems.system import System, load_system
from dlscale.models import load_workload
from dlscale.models.frameworks import FRAMEWORKS

ALGORITHMS = tuple(name for name in get_args(Algorithm) if name != "parameter_servers")


@click.command()
@click.argument("kind", type=click.Choice(("weak-scaling", "strong-scaling")))
@click.option("--system", default="local", show_default=True, help="System: a known name or a .toml file.")
@click.option("--workloads", type=Words(), default="hep_cnn", show_default=True, help="Workloads.")
@click.option("--frameworks", type=Words(), help="Frameworks; default: those that there is a profile of.")
@click.option("--preset", help="Preset of the profile; default: the only one that there is.")
@click.option("--backends", type=Backends(), default="ring", show_default=True, help="Backends.")
@click.option(
    "--backend-options",
    type=BackendOptions(),
    help="Backend options, e.g. horovod.cycle_time_ms=5,ring.pipelined=true.",
)
@click.option(
    "--nodes", type=Counts(), help="Numbers of nodes: 1,2,4 or 1:8192:x2; default: doubled up to all."
)
@click.option("--ranks-per-node", type=click.IntRange(min=1), help="Ranks per node; default: the system's.")
@click.option(
    "--servers",
    default="1",
    show_default=True,
    help="Parameter servers, on nodes of their own: a number, or servers per rank, e.g. 1/2.",
)
@click.option(
    "--batch",
    type=click.IntRange(min=1),
    help="Samples per step: per rank under weak scaling, in total under strong scaling; default: the preset's.",
)
@click.option(
    "--algorithm",
    type=click.Choice(ALGORITHMS),
    help="Algorithm of the exchange between nodes, instead of the backend's own.",
)
@click.option(
    "--from",
    "study",
    metavar="STUDY",
    help="Study whose control profile was measured; default: the stored profile of the system.",
)
@click.option(
    "--calibrate",
    metavar="STUDY,...",
    type=Words(),
    help="Studies and collectives runs whose exchanges between nodes calibrate latency and rates; default: the "
    "system's file as it is.",
)
@click.option(
    "--force",
    is_flag=True,
    help="Prediction far beyond the calibrated sizes, or with a bad calibration; the figure says so.",
)
@click.option(
    "--engine", type=click.Choice(ENGINES), default="auto", show_default=True, help="Network model."
)
@background_option
@slow_nodes_option
@click.option(
    "--explain", is_flag=True, help="Losses of the largest size, and what other inputs would give it."
)
@grid_option
@click.option(
    "--replicates",
    type=click.IntRange(min=100, max=100_000),
    default=NUM_REPLICATES,
    show_default=True,
    help="Replicates of the Monte Carlo.",
)
@results_option
@json_option
def predict(
    kind: str,
    system: str,
    workloads: list[str],
    frameworks: list[str] | None,
    preset: str | None,
    backends: list[str],
    backend_options: dict[str, dict[str, Any]] | None,
    nodes: list[int] | None,
    study: str | None,
    calibrate: list[str] | None,
    force: bool,
    engine: str,
    background_flows: int,
    slow_nodes: dict[int, float],
    explain: bool,
    grid: Axes | None,
    results: Path,
    as_json: bool,
    **options: Any,
) -> int:
    """Predict the curve of KIND, weak-scaling or strong-scaling, on a system that is not here.

    A node's profile (stored, or measured by a study) and the network of the system's file go through a model of each
    backend; the band has noise of steps, placement, and what sources do not agree on (docs/prediction.md). The table,
    a CSV, a figure and records, which `dlscale report --predicted` shows beside a study, are marked as simulated;
    --json prints rows and writes no files.

    \b
    Examples:
      dlscale predict weak-scaling --system cori --workloads hep_cnn --backends ring,grpc_ps --nodes 1:8192:x2
      dlscale predict strong-scaling --system cori --backends horovod --nodes 1:64:x2 --explain
      dlscale predict weak-scaling --system cori --backends ring --algorithm two_level_ring --json
      dlscale predict weak-scaling --system mine.toml --from weak-scaling --calibrate weak-scaling
      dlscale predict weak-scaling --system cori --backends ring,grpc_ps --grid
    """  # noqa: D301
    machine = load_system(system)
    network = network_of(machine)
    own_options = backend_options or {}
    _check_options(own_options, backends)
    if grid and as_json:
        raise UsageError("--grid writes files and --json none; leave one of them out")
    if grid and engine != "simgrid" and (background_flows or slow_nodes):
        raise UsageError(
            "--grid with --background-flows or --slow-nodes takes --engine simgrid, which is slow"
        )
    folder = named_folder(results, study) if study else None
    chosen = engine_named(engine, background_flows=background_flows, slow_nodes=slow_nodes)
    remembering = RememberingEngine(chosen, cache_folder())
    predictions, grids = [], []
    for workload in workloads:
        for profile in _profiles(machine, workload, folder, frameworks=frameworks, preset=preset):
            situations = [
                situation_of(
                    machine,
                    network,
                    checked(profile),
                    backend,
                    remembering,
                    scaling_mode="weak" if kind == "weak-scaling" else "strong",
                    backend_options=own_options.get(backend, {}),
                    **options,
                )
                for backend in backends
            ]
            sizes = nodes or _doubled(situations)
            for situation in situations:
                check_sizes(situation, sizes)
            if calibrate:
                # Here, because the fit takes longer to import than a prediction takes.
                from dlscale.benchmarks.cli.calibration import calibrated_situation, calibration_folders

                calibrating = calibration_folders(results, calibrate)
                situations = [
                    calibrated_situation(situation, machine, calibrating, sizes, profiled=folder, force=force)
                    for situation in situations
                ]
            if grid:
                check_grid(grid, situations, sizes)
                grids.append((situations, sizes))
            predictions.append([predict_curve(situation, sizes, explain=explain) for situation in situations])
    remembering.save()
    if as_json:
        rows = [row for curves in predictions for row in prediction_rows(curves)]
        click.echo(json.dumps({"schema": 1, "rows": rows} | _explained(predictions, explain=explain)))
        return 0
    for curves in predictions:
        _show(curves, kind, machine, results, explain=explain)
    if grid:
        # By closed forms, unless asked otherwise: thousands of points.
        other = (
            remembering if engine == "simgrid" else engine_named("loggp", background_flows=0, slow_nodes={})
        )
        for situations, sizes in grids:
            stem = _stem(situations[0], kind, machine, results)
            put_grid(grid, [replace(situation, engine=other) for situation in situations], sizes, stem)
        remembering.save()
    return 0


def _stem(situation: Situation, kind: str, machine: System, results: Path) -> Path:
    """The files of a prediction, without their endings."""
    profile = situation.profile
    name = f"{profile.workload}-{profile.preset}-{profile.framework}-{kind}"
    return results / machine.name / PREDICTIONS_FOLDER / name


def _check_options(given: dict[str, dict[str, Any]], backends: Sequence[str]) -> None:
    """Raises UsageError for options of backends that are not predicted, and for several values."""
    for backend, own in given.items():
        if backend not in backends:
            raise UsageError(
                f"--backend-options has {backend}, which is not among --backends {','.join(backends)}"
            )
        for name, value in own.items():
            if isinstance(value, list):
                raise UsageError(f"{backend}.{name} has several values; a prediction takes one")


def _profiles(
    machine: System,
    workload: str,
    folder: Path | None,
    *,
    frameworks: Sequence[str] | None,
    preset: str | None,
) -> Iterator[Profile]:
    """The stored profile, or those of a study's records, one per framework. Raises UsageError."""
    load_workload(workload)
    if folder is None:
        stored = load_stored(machine, workload)
        if preset not in (None, stored.preset) or (frameworks and frameworks != [stored.framework]):
            raise UsageError(
                f"the stored profile of {workload} on {machine.name} is of preset {stored.preset} in "
                f"{stored.framework}; leave --preset and --frameworks out, or give --from with a measured one"
            )
        yield stored
        return
    from dlscale.analysis.predict.measured import profile_of

    records, _ = load_records(folder)
    cells = [record.case.cell for record in records]
    found = {cell.framework for cell in cells if cell.workload == workload and cell.control == "profile"}
    for framework in frameworks or sorted(found) or FRAMEWORKS[:1]:
        yield profile_of(records, workload=workload, framework=framework, preset=preset)


def _doubled(situations: Sequence[Situation]) -> list[int]:
    """1, 2, 4 ... while the machine has as many nodes and the batch as many samples as all situations need."""
    sizes: list[int] = []
    while len(sizes) < 30:
        try:
            for situation in situations:
                check_sizes(situation, [2 ** len(sizes)])
        except UsageError:
            break
        sizes.append(2 ** len(sizes))
    return sizes or [1]


def _show(
    curves: Sequence[PredictedCurve], kind: str, machine: System, results: Path, *, explain: bool
) -> None:
    from dlscale.analysis.render.tables import render_table

    situation = curves[0].situation
    profile = situation.profile
    console = Console(highlight=False)
    console.print(first_line(situation), markup=False, soft_wrap=True)
    for text in profile_lines(situation):
        console.print(text, markup=False, soft_wrap=True)
    for curve in curves:
        if curve.situation.calibrated_nodes:
            from dlscale.benchmarks.cli.calibration import calibration_line

            console.print(calibration_line(curve.situation), markup=False, soft_wrap=True)
        for doubt in curve.situation.doubts:
            console.print(f"not to be trusted: {doubt}", markup=False, soft_wrap=True)
    for part in render_table(prediction_table(curves)):
        console.print(part)
    if explain:
        for curve in curves:
            for text in explanation(curve):
                console.print(text, markup=False, soft_wrap=True)
    stem = _stem(situation, kind, machine, results)
    if not is_written(curves, stem):
        _write(curves, stem, list(_published(machine, profile.workload, situation.scaling_mode)))
    console.print(
        f"figure, CSV and records: {stem}.png, {stem.name}.csv, {stem.name}{ENDING}",
        markup=False,
        soft_wrap=True,
    )


def _write(curves: Sequence[PredictedCurve], stem: Path, published: Sequence[str]) -> None:
    """Imports matplotlib, which takes longer than the prediction."""
    from dlscale.analysis.figures.prediction import draw_prediction
    from dlscale.benchmarks.launch.environment import commit

    situation = curves[0].situation
    checkout, command = commit(), redaction.redact(shlex.join(["dlscale", *sys.argv[1:]]))
    make_folder(stem.parent)
    # First: the CSV, which says that all is written, comes last.
    write_predictions(prediction_records(curves, commit=checkout, command=command), Path(f"{stem}{ENDING}"))
    draw_prediction(
        curves,
        stem,
        small_print=[
            f"Profile: {situation.profile.source}. Network: {situation.network.source}.",
            *published,
        ],
        commit=checkout,
        command=command,
    )


def _published(machine: System, workload: str, mode: str) -> Iterator[str]:
    for statement in load_published().said_of(machine.name, workload, mode):
        yield f"Published: {statement.statement} ({statement.source})."


def _explained(predictions: Sequence[Sequence[PredictedCurve]], *, explain: bool) -> dict[str, Any]:
    """The efficiencies with other inputs, for programs; nothing unless asked for."""
    if not explain:
        return {}
    return {
        "sensitivity": [
            {
                "system": curve.situation.network.name,
                "workload": curve.situation.profile.workload,
                "backend": curve.situation.rule.backend,
                "num_nodes": curve.points[-1].num_nodes,
                "change": change,
                "efficiency": efficiency,
            }
            for curves in predictions
            for curve in curves
            for change, efficiency in curve.sensitivity.items()
        ]
    }
