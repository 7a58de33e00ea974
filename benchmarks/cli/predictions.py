"""Predictions that several verbs show: what is public of a training, and curves printed and written."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import click
from rich.console import Console

from dlscale.analysis.predict.prediction import PredictedCurve, prediction_records
from dlscale.analysis.predict.profile import Profile
from dlscale.analysis.predict.public_profiles import PUBLISHED_PRESET, public_profile, stored_profile
from dlscale.benchmarks.records.prediction import ENDING, PredictionRecord
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


def show_curves(
    trainings: Sequence[Sequence[PredictedCurve]],
    *,
    stem_of: Callable[[PredictionRecord], Path],
    command: str,
    commit: str | None = None,
    as_json: bool = False,
) -> list[PredictionRecord]:
    """Print what is predicted of each training, and write figure, CSV and records; as JSON nothing is written."""
    # Here, because tables and figures take longer to import than predictions.
    from dlscale.analysis.predict import show
    from dlscale.benchmarks.launch import probe

    facts = {"commit": probe.commit() if commit is None else commit, "command": command}
    made = [list(prediction_records(curves, **facts)) for curves in trainings if curves]
    every = [record for records in made for record in records]
    if as_json:
        show_records(every, as_json=True)
    for records in [] if as_json else made:
        show_records(records)
        stem = stem_of(records[0])
        show.write(show.study_of(records), stem)
        click.echo(f"figure, CSV and records: {stem}.png, {stem.name}.csv, {stem.name}{ENDING}")
    return every


def show_records(records: Sequence[PredictionRecord], *, as_json: bool = False) -> None:
    """Print predictions."""
    from dlscale.analysis.predict import show
    from dlscale.analysis.render.text import as_data

    study = show.study_of(records)
    if as_json:
        click.echo(json.dumps(as_data(study, [show.PREDICTION, show.ORIGINS])))
    else:
        show.show(study, Console(highlight=False))
