"""The study that a verb shows: its options, its records read once as frames, its page, and what is left out of it."""

from __future__ import annotations

import functools
import gc
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from dlscale.analysis.finding import Finding, checked
from dlscale.analysis.findings import load_all, predicted
from dlscale.analysis.load import Study
from dlscale.analysis.render import page
from dlscale.base.errors import UsageError
from dlscale.benchmarks.cli import FAILED_CASES, INSUFFICIENT_DATA
from dlscale.benchmarks.cli.completion import completed_result
from dlscale.benchmarks.cli.option_kinds import Words
from dlscale.benchmarks.cli.options import base_option, choose_study, results_option, system_option
from dlscale.benchmarks.cli.plan_table import counted
from dlscale.benchmarks.cli.stated_study import study_in
from dlscale.benchmarks.records.cell import Case
from dlscale.benchmarks.records.prediction import ENDING, PREDICTIONS_FOLDER, read_predictions
from dlscale.benchmarks.records.record import Base
from dlscale.benchmarks.records.store import BadFile, Store, load_records

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
    stated, planned = study_in(folder), store.planned()
    study = Study(
        records,
        planned=planned,
        order=stated.order,
        base=base or stated.base or _usual_base(planned),
        axes=stated.axes,
        settings=stated.settings,
        bad_files=bad_files,
        name=folder.name,
        plan=counted(planned) if planned else "",
        running=store.busy,
        system=stated.system,
    )
    if named:
        _add_predictions(study, folder, named)
    return study


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
