"""`dlscale predict`: the curve for nodes that are not here, from a node's profile and the system's network."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import click

from dlscale.analysis.predict.grid import check_grid
from dlscale.analysis.predict.network import network_of
from dlscale.analysis.predict.prediction import PredictedCurve, predict_curve
from dlscale.analysis.predict.profile import Profile, checked
from dlscale.analysis.predict.published_profiles import load_stored
from dlscale.analysis.predict.render import prediction_rows
from dlscale.analysis.predict.scenario import Scenario, check_sizes
from dlscale.base.errors import UsageError
from dlscale.benchmarks.cli.options import named_folder
from dlscale.benchmarks.cli.predict_options import PredictOptions, predict_options
from dlscale.benchmarks.cli.predict_output import put_grid, show_curves
from dlscale.benchmarks.cli.scenarios import scenario_of
from dlscale.benchmarks.records.files import load_records
from dlscale.benchmarks.systems.system import System, load_system
from dlscale.models import load_workload
from dlscale.models.frameworks import FRAMEWORKS


class Asked(NamedTuple):
    """A scenario per backend of one training, and the numbers of nodes."""

    scenarios: list[Scenario]
    sizes: list[int]


@click.command()
@predict_options
def predict(options: PredictOptions) -> int:
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
    machine = load_system(options.system)
    network_of(machine)  # a file that states too little is refused before anything is computed
    trainings = list(_trainings(options, machine))
    predictions = [
        [predict_curve(scenario, sizes, explain=options.explain) for scenario in scenarios]
        for scenarios, sizes in trainings
    ]
    if options.as_json:
        rows = [row for curves in predictions for row in prediction_rows(curves)]
        explained = {"sensitivity": list(_sensitivities(predictions))} if options.explain else {}
        click.echo(json.dumps({"schema": 1, "rows": rows} | explained))
        return 0
    for curves in predictions:
        show_curves(curves, options)
    if options.grid:
        for scenarios, sizes in trainings:
            put_grid(options.grid, scenarios, sizes, options)
    return 0


def _trainings(options: PredictOptions, machine: System) -> Iterator[Asked]:
    """What is asked for of each workload and framework. Raises UsageError for what cannot be predicted."""
    folder = named_folder(options.results, options.profiled) if options.profiled else None
    for workload in options.workloads:
        for profile in _profiles(options, machine, workload, folder):
            scenarios = [
                scenario_of(
                    machine,
                    checked(profile),
                    backend,
                    scaling_mode=options.scaling_mode,
                    backend_options=options.backend_options.get(backend, {}),
                    servers=options.servers,
                    ranks_per_node=options.ranks_per_node,
                    batch=options.batch,
                    algorithm=options.algorithm,
                    replicates=options.replicates,
                )
                for backend in options.backends
            ]
            sizes = options.nodes or _doubled(scenarios)
            for scenario in scenarios:
                check_sizes(scenario, sizes)
            if options.calibrate:
                # Here, because the fit takes longer to import than a prediction takes.
                from dlscale.benchmarks.cli.calibration import calibrated_scenario, calibration_folders

                folders = calibration_folders(options.results, options.calibrate)
                scenarios = [
                    calibrated_scenario(
                        scenario, machine, folders, sizes, profiled=folder, force=options.force
                    )
                    for scenario in scenarios
                ]
            if options.grid:
                check_grid(options.grid, scenarios, sizes)
            yield Asked(scenarios, sizes)


def _profiles(
    options: PredictOptions, machine: System, workload: str, folder: Path | None
) -> Iterator[Profile]:
    """The stored profile, or those of the study in `folder`, one per framework. Raises UsageError."""
    load_workload(workload)
    if folder is None:
        stored = load_stored(machine, workload)
        if options.preset not in (None, stored.preset) or options.frameworks not in (
            None,
            [],
            [stored.framework],
        ):
            raise UsageError(
                f"the stored profile of {workload} on {machine.name} is of preset {stored.preset} in "
                f"{stored.framework}; leave --preset and --frameworks out, or give --from with a measured one"
            )
        yield stored
        return
    from dlscale.analysis.predict.measured_profiles import profile_of

    records, _ = load_records(folder)
    cells = [record.case.cell for record in records]
    found = {cell.framework for cell in cells if cell.workload == workload and cell.control == "profile"}
    for framework in options.frameworks or sorted(found) or FRAMEWORKS[:1]:
        yield profile_of(records, workload=workload, framework=framework, preset=options.preset)


def _doubled(scenarios: Sequence[Scenario]) -> list[int]:
    """1, 2, 4 ... while the machine has as many nodes and the batch as many samples as all scenarios need."""
    sizes: list[int] = []
    while len(sizes) < 30:
        try:
            for scenario in scenarios:
                check_sizes(scenario, [2 ** len(sizes)])
        except UsageError:
            break
        sizes.append(2 ** len(sizes))
    return sizes or [1]


def _sensitivities(predictions: Sequence[Sequence[PredictedCurve]]) -> Iterator[dict[str, Any]]:
    """The efficiencies of the largest sizes with other inputs, for programs."""
    for curves in predictions:
        for curve in curves:
            scenario = curve.scenario
            for change, efficiency in curve.sensitivity.items():
                yield {
                    "system": scenario.network.name,
                    "workload": scenario.profile.workload,
                    "backend": scenario.rule.backend,
                    "num_nodes": curve.points[-1].num_nodes,
                    "change": change,
                    "efficiency": efficiency,
                }
