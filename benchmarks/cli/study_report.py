"""A study as verbs show it: its records read once as frames, with its plan, its system and predictions."""

from __future__ import annotations

import gc
import json
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import click
from pydantic import ValidationError

from dlscale.analysis.findings import predicted
from dlscale.analysis.load import Study
from dlscale.base.definitions import parse_tables
from dlscale.base.errors import UsageError, unknown
from dlscale.base.files import read_regular
from dlscale.benchmarks.cli import FAILED_CASES, INSUFFICIENT_DATA
from dlscale.benchmarks.cli.options import Words
from dlscale.benchmarks.cli.plan_table import counted
from dlscale.benchmarks.records.cell import OF_METHOD, SETTINGS, Setting
from dlscale.benchmarks.records.prediction import ENDING, PREDICTIONS_FOLDER, read_predictions
from dlscale.benchmarks.records.record import BASES, Base
from dlscale.benchmarks.records.store import BadFile, Store, load_records
from dlscale.benchmarks.study.study import STUDY_FILE, as_now
from dlscale.benchmarks.study.study import Study as StudyFields
from dlscale.benchmarks.systems.system import System

LATEST = "latest"

predicted_option = click.option(
    "--predicted",
    type=Words(),
    default=[],
    metavar="FILE,...",
    help=f"Predictions to show next to what was measured: {ENDING} files that dlscale predict wrote, by path or by "
    f"the beginning of the name, or {LATEST}: all of the system; default: none.",
)


def load(folder: Path, *, base: Base | None = None, named: Sequence[str] = ()) -> Study:
    """The frames of the study in `folder` with the `named` predictions.

    Efficiencies are relative to `base`; None: the study's own, else 1 rank or the smallest. Predictions of other
    trainings are named on stderr. Raises UsageError if the plan cannot be read, a folder is a link, or predictions are
    not there, not valid, or all of other studies.
    """
    store = Store(folder)
    store.refuse_links()
    records, bad_files = load_records(folder)
    gc.freeze()  # the records stay, and collecting garbage need not visit them
    planned, described = store.planned(), stated(folder)
    trained = [case.cell.num_ranks for case in planned if case.cell.control == "train"]
    usual: Base = "smallest" if trained and min(trained) > 1 else "1"
    study = Study(
        records,
        planned=planned,
        bad_files=bad_files,
        name=folder.name,
        plan=counted(planned) if planned else "",
        running=store.busy,
        **described | {"base": base or described["base"] or usual},
    )
    if named:
        _add_predictions(study, folder.resolve().parent / PREDICTIONS_FOLDER, named)
    return study


def stated(folder: Path) -> dict[str, Any]:
    """What study.json says of a study, as `Study` takes it; little if another version wrote it, or it is damaged.

    Backends and frameworks in their order, the base that it was run with, axes (setting -> values, the reference first;
    learning rates change no speed), the settings that distinguish curves, and the system.
    """
    file: dict[str, Any] = {}
    axes: dict[str, Sequence[Setting]] = {}
    order, system = list[str](), None
    with suppress(OSError, ValueError):
        file = parse_tables(read_regular(folder / STUDY_FILE), json.loads)
    with suppress(ValidationError):
        system = System.model_validate(as_now(file.get("system")))
    fields = file.get("study")
    fields = fields if isinstance(fields, dict) else {}
    with suppress(KeyError, TypeError):
        order = [*fields["backends"], *fields["frameworks"]]
    base = next((base for base in BASES if base == fields.get("base")), None)
    with suppress(ValidationError):
        every = StudyFields.model_validate(fields).axes
        axes = {name: values for name, values in every.items() if name != "learning_rate"}
    is_one_family = all("." in name or name in OF_METHOD for name in axes)
    settings = () if is_one_family else SETTINGS
    return {"order": order, "base": base, "axes": axes, "settings": settings, "system": system}


def _add_predictions(study: Study, place: Path, named: Sequence[str]) -> None:
    """Add the predictions of these paths, or of the files in `place` whose names begin so."""
    known = sorted(place.glob(f"*{ENDING}"))
    for name in named:
        found = [path for path in known if name == LATEST or path.name.startswith(name)]
        files = [Path(name)] if name != LATEST and Path(name).is_file() else found
        if not files:
            raise UsageError(unknown("predictions", name, [it.name for it in known], where=f"in {place}"))
        study.predictions = [*study.predictions, *(it for path in files for it in read_predictions(path))]
    if predicted.FINDING.of(study).empty:
        asked = "; ".join(dict.fromkeys(map(predicted.stated, study.predictions)))
        raise UsageError(f"no prediction in {', '.join(named)} belongs to {study.name}: predicted is {asked}")
    for sentence in predicted.not_shown(study):
        click.echo(f"not shown: {sentence}", err=True)


def first_of(bad_files: Sequence[BadFile]) -> str:
    """The first invalid file, why, and the number of others."""
    rest = f" (and {len(bad_files) - 1} more such files)" if len(bad_files) > 1 else ""
    return f"{bad_files[0].path}: {bad_files[0].reason}{rest}"


def ended(study: Study, *, enough: bool) -> int:
    """The exit status of a verb that has shown a study: 2 if something was left out, 4 if there was not `enough`.

    Prints on stderr what the output does not have.
    """
    lacks = [*([first_of(study.bad_files)] if study.bad_files else []), *study.left_out, *study.errors]
    for sentence in lacks:
        click.echo(f"left out: {sentence}", err=True)
    if lacks:
        return FAILED_CASES
    return 0 if enough else INSUFFICIENT_DATA
