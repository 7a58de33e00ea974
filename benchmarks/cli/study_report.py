"""The study that a verb shows: its options, its records read once as frames, its page, and what is left out of it."""

from __future__ import annotations

import functools
import gc
import os
import sys
import webbrowser
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
from pydantic import ValidationError

from dlscale.analysis.finding import Finding, checked
from dlscale.analysis.findings import load_all, predicted
from dlscale.analysis.load import Study
from dlscale.analysis.render import page
from dlscale.base.errors import UsageError
from dlscale.base.files import read_regular
from dlscale.base.parsing import parse_json_object
from dlscale.benchmarks.cli import FAILED_CASES, INSUFFICIENT_DATA
from dlscale.benchmarks.cli.completion import completed_result
from dlscale.benchmarks.cli.option_kinds import Words
from dlscale.benchmarks.cli.options import base_option, choose_study, results_option, system_option
from dlscale.benchmarks.cli.plan_table import counted
from dlscale.benchmarks.records.cell import Case, Setting
from dlscale.benchmarks.records.curves import OF_METHOD, SETTINGS
from dlscale.benchmarks.records.prediction import ENDING, PREDICTIONS_FOLDER, read_predictions
from dlscale.benchmarks.records.record import BASES, Base
from dlscale.benchmarks.records.store import BadFile, Store, load_records
from dlscale.benchmarks.study.study import STUDY_FILE, TARGET_AXES
from dlscale.benchmarks.study.study import Study as StudyFields
from dlscale.benchmarks.systems.system import System

PAGE = "report.html"
LATEST = "latest"

predicted_option = click.option(
    "--predicted",
    type=Words(),
    default=[],
    metavar="FILE,...",
    help=f"Predictions to show next to what was measured: {ENDING} files that dlscale predict wrote, by path or by "
    f"the beginning of the name, or {LATEST}: all of the system; default: none.",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ChosenStudy:
    """The study that a verb shows, as its options name it."""

    name: str | None
    results: Path
    predicted: Sequence[str] = ()
    system: str | None = None
    base: Base | None = None

    @property
    def folder(self) -> Path:
        """Where it lies. Raises UsageError if there is none."""
        return choose_study(self.results, self.name, system=self.system)

    def load(self) -> Study:
        """Its frames. Raises UsageError as `load`."""
        return load(self.folder, base=self.base, named=self.predicted)


def study_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add STUDY, --predicted and --results: the command gets a `chosen` study."""

    @functools.wraps(command)
    def with_choice(
        *,
        study: str | None,
        results: Path,
        predicted: list[str],
        system: str | None = None,
        base: Base | None = None,
        **own: Any,
    ) -> Any:
        chosen = ChosenStudy(name=study, results=results, predicted=predicted, system=system, base=base)
        return command(chosen=chosen, **own)

    argument = click.argument("study", required=False, shell_complete=completed_result)
    return argument(predicted_option(results_option(with_choice)))


def based_study_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """As `study_options`, with --system and --base."""
    return study_options(system_option(base_option(command)))


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
    study = Study(
        records,
        planned=planned,
        bad_files=bad_files,
        name=folder.name,
        plan=counted(planned) if planned else "",
        running=store.busy,
        **described | {"base": base or described["base"] or _usual_base(planned)},
    )
    if named:
        _add_predictions(study, folder, named)
    return study


def stated(folder: Path) -> dict[str, Any]:
    """What study.json says of a study, as `Study` takes it; little if another version wrote it, or it is damaged.

    Backends and frameworks in their order, the base that it was run with, axes (setting -> values, the reference first;
    learning rates change no speed), the settings that distinguish curves, and the system.
    """
    try:
        file = parse_json_object(read_regular(folder / STUDY_FILE))
    except (OSError, ValueError):
        file = {}
    study = file.get("study")
    fields: dict[str, Any] = study if isinstance(study, dict) else {}
    axes: dict[str, Sequence[Setting]] = {}
    system, order = None, list[str]()
    with suppress(ValidationError):
        every = StudyFields.model_validate(fields).axes
        axes = {name: values for name, values in every.items() if name not in TARGET_AXES}
    with suppress(ValidationError):
        system = System.model_validate(file.get("system"))
    with suppress(KeyError, TypeError):
        order = [*fields["backends"], *fields["frameworks"]]
    is_one_family = all("." in name or name in OF_METHOD for name in axes)
    base = next((base for base in BASES if base == fields.get("base")), None)
    settings = () if is_one_family else SETTINGS
    return {"order": order, "base": base, "axes": axes, "settings": settings, "system": system}


def _usual_base(planned: Iterable[Case]) -> Base:
    trained = [case.cell.num_ranks for case in planned if case.cell.control == "train"]
    return "smallest" if trained and min(trained) > 1 else "1"


def _add_predictions(study: Study, folder: Path, named: Sequence[str]) -> None:
    place = folder.resolve().parent / PREDICTIONS_FOLDER
    files = dict.fromkeys(path for name in named for path in _files(place, name))
    study.predictions = [record for path in files for record in read_predictions(path)]
    if predicted.FINDING.of(study).empty:
        asked = "; ".join(dict.fromkeys(map(predicted.stated, study.predictions)))
        trained = "; ".join(dict.fromkeys(study.trained["training"]))
        raise UsageError(
            f"no prediction in {', '.join(named)} belongs to {study.name}: predicted is {asked}; the study has "
            f"{trained or 'no training'}; predict that with dlscale predict"
        )
    for sentence in predicted.not_shown(study):
        click.echo(f"not shown: {sentence}", err=True)


def _files(folder: Path, name: str) -> list[Path]:
    """The files of that name: a path, the beginning of names in `folder`, or all of it. Raises UsageError for none."""
    if name != LATEST and Path(name).is_file():
        return [Path(name)]
    known = sorted(folder.glob(f"*{ENDING}"))
    if matching := [path for path in known if name == LATEST or path.name.startswith(name)]:
        return matching
    names = ", ".join(path.name for path in known)
    choices = f"choose one of: {names}" if known else "make some: dlscale predict"
    raise UsageError(f"no predictions {name!r} in {folder}; {choices}")


def findings_of(study: Study) -> list[Finding]:
    """All findings; one that cannot be computed says so, and so does `study.errors`."""
    return checked(study, load_all())


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


def put(study: Study, findings: Sequence[Finding], folder: Path, *, link: bool = False) -> None:
    """Write the page into a study's folder and print where it is. Raises UsageError if it cannot be written there.

    With `link` its address follows, which terminals make a link of.
    """
    path = folder / PAGE
    sections = page.sections_of(study, findings)
    page.write(path, title=study.title, facts=page.facts_of(study), sections=sections, origin=study.origin)
    click.echo(f"report: {path}")
    if link:
        click.echo(f"open: {path.resolve().as_uri()}")


def open_page(page: Path) -> None:
    """Open the page in the browser; where none can be opened, as on a login node, print its link.

    A browser in the terminal, which would show no plots, does not count.
    """
    link = page.resolve().as_uri()
    windows = any(os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER"))
    if (sys.platform.startswith("linux") and not windows) or not webbrowser.open(link):
        click.echo(f"no browser here; open this link where there is one, or copy the page: {link}")
