"""Predictions that several verbs show: what is public of a training, its curves, and curves printed and written."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import click
from rich.console import Console

from dlscale.analysis.predict.network import Machine
from dlscale.analysis.predict.prediction import PredictedCurve, predict_curve, prediction_records
from dlscale.analysis.predict.profile import Profile, checked
from dlscale.analysis.predict.public_profiles import PUBLISHED_PRESET, public_profile, stored_profile
from dlscale.analysis.predict.scenario import Scenario, doubled_sizes, scenario_of
from dlscale.base.errors import UsageError
from dlscale.benchmarks.records.prediction import ENDING, PredictionRecord
from dlscale.benchmarks.study.check import num_servers
from dlscale.benchmarks.systems.system import System
from dlscale.models import load_workload
from dlscale.models.frameworks import FRAMEWORKS


def public_profiles(
    machine: System,
    workload: str,
    *,
    frameworks: Sequence[str] | None,
    preset: str | None,
    device: str | None = None,
    ranks_per_node: int | None = None,
) -> Iterator[Profile]:
    """A profile per framework, stored or derived from what is public. Raises UsageError.

    The framework is by default that of the stored profile, else the one that a study uses on the system.
    """
    if not frameworks:
        stored, stated = stored_profile(machine, workload), machine.defaults and machine.defaults.frameworks
        frameworks = [stored.framework if stored else (stated or FRAMEWORKS)[0]]
    shared = ranks_per_node or (machine.placement.ranks_per_node if machine.placement else 1)
    for framework in frameworks:
        load_workload(workload).check_framework(framework)
        usual = preset or PUBLISHED_PRESET
        yield public_profile(machine, workload, usual, framework, device=device, ranks_per_node=shared)


def curves_of(
    machine: Machine,
    profile: Profile,
    carriers: Iterable[tuple[str, str]],
    *,
    nodes: Sequence[int] | None,
    servers: str,
    backend_options: Mapping[str, Mapping[str, Any]],
    calibrated: Callable[[Scenario, Sequence[int]], Scenario] = lambda scenario, _: scenario,
    left_out: Callable[[str], None] | None = None,
    **asked: Any,
) -> list[PredictedCurve]:
    """A curve per backend and what is sharded over it; without `nodes` on all that the machine has, by doubling.

    `asked` is for `scenario_of`. What cannot be predicted is told to `left_out`; UsageError is raised without it.
    """
    curves = []
    for backend, shard in carriers:
        try:
            scenario = scenario_of(
                machine,
                checked(profile),
                backend,
                backend_options=backend_options.get(backend, {}),
                num_servers=lambda num_ranks: num_servers(servers, num_ranks),
                shard=shard,
                **asked,
            )
            sizes = nodes or doubled_sizes(scenario)
            curves.append(predict_curve(calibrated(scenario, sizes), sizes))
        except UsageError as error:
            if left_out is None:
                raise
            left_out(f"not predicted over {backend}: {error}")
    return curves


def show_curves(
    trainings: Iterable[Sequence[PredictedCurve]],
    folder: Path,
    *,
    command: str,
    commit: str,
    as_json: bool = False,
) -> list[PredictionRecord]:
    """Print what is predicted of each training, and write figure, CSV and records; as JSON nothing is written."""
    from dlscale.analysis.predict import show  # tables and figures take longer to import than predictions
    from dlscale.analysis.render.text import as_data

    made = [
        list(prediction_records(curves, commit=commit, command=command)) for curves in trainings if curves
    ]
    every = [record for records in made for record in records]
    if as_json:
        click.echo(json.dumps(as_data(show.study_of(every), [show.PREDICTION, show.ORIGINS])))
        return every
    for records in made:
        study, first = show.study_of(records), records[0]
        stem = folder / f"{first.workload}-{first.preset}-{first.framework}-{first.scaling_mode}-scaling"
        show.show(study, Console(highlight=False))
        show.write(study, stem)
        click.echo(f"figure, CSV and records: {stem}.png, {stem.name}.csv, {stem.name}{ENDING}")
    return every
