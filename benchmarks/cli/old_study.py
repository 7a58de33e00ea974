"""A study's records read once, for everything that `report`, `figures`, `proposal` and `export` show of them."""

from __future__ import annotations

import gc
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import click

from dlscale.analysis.curves import with_curve_names
from dlscale.analysis.finding import Found, collect
from dlscale.analysis.findings import load_all, scaling
from dlscale.analysis.findings.failures import of_one_fingerprint
from dlscale.analysis.findings.predicted_points import place_predictions, training_text
from dlscale.analysis.findings.scaling import ScalingRow
from dlscale.analysis.measured import Measured, measure
from dlscale.analysis.render.html.content import Page
from dlscale.analysis.render.html.document import write_page
from dlscale.analysis.render.html.page import page_of
from dlscale.analysis.variants import Variants
from dlscale.base.errors import UsageError
from dlscale.benchmarks.cli.plan_table import counted
from dlscale.benchmarks.cli.predicted import LATEST
from dlscale.benchmarks.cli.stated_study import study_in
from dlscale.benchmarks.records.cell import Case
from dlscale.benchmarks.records.files import BadFile, load_records
from dlscale.benchmarks.records.prediction import ENDING, PREDICTIONS_FOLDER, read_predictions
from dlscale.benchmarks.records.record import Base
from dlscale.benchmarks.records.store import Store

PAGE = "report.html"


@dataclass(frozen=True, kw_only=True)  # no slots: findings are computed at first use, and kept
class Loaded:
    """A study with all that is found of it."""

    folder: Path
    study: Measured

    @cached_property
    def found(self) -> list[Found]:
        """What each finding says about the study."""
        return collect(load_all(), self.study)

    @property
    def rows(self) -> Sequence[ScalingRow]:
        return scaling.FINDING.of(self.study)

    @property
    def errors(self) -> list[str]:
        """Sentences on findings that could not be computed."""
        return [one.error for one in self.found if one.error]

    def page(self) -> Page:
        return page_of(self.study, self.found)


def load(store: Store, *, base: Base | None = None, running: bool = False) -> Loaded:
    """The study with efficiencies relative to `base`; None: its own, else 1 rank where it is planned or the smallest.

    `running`: a dlscale is measuring into the folder now. Raises UsageError if there is no study, its plan cannot be
    read, its records do not belong together, or one of its folders is a link.
    """
    store.refuse_links()
    everything, bad_files = load_records(store.folder)
    gc.freeze()  # the records stay, and collecting garbage need not visit them
    records, left_out = of_one_fingerprint(everything)
    stated = study_in(store.folder)
    variants = Variants(axes=stated.axes)
    records, planned = with_curve_names(records, store.planned(), settings=variants.settings)
    study = measure(
        records,
        planned=planned,
        order=stated.order,
        variants=variants,
        base=base or stated.base or _usual_base(planned),
        bad_files=bad_files,
        left_out=left_out,
        name=store.folder.name,
        plan=counted(planned) if planned else "",
        running=running,
        system=stated.system,
    )
    return Loaded(folder=store.folder, study=study)


def _usual_base(planned: Iterable[Case]) -> Base:
    trained = [case.cell.num_ranks for case in planned if case.cell.control == "train"]
    return "smallest" if trained and min(trained) > 1 else "1"


def tell_left_out(bad_files: Sequence[BadFile], left_out: Iterable[str] = ()) -> None:
    """Print on stderr what is not in an output: the first file and how many more, and whole groups of records."""
    if bad_files:
        rest = f" (and {len(bad_files) - 1} more such files)" if len(bad_files) > 1 else ""
        click.echo(f"left out: {bad_files[0].path}: {bad_files[0].reason}{rest}", err=True)
    for sentence in left_out:
        click.echo(f"left out: {sentence}", err=True)


def put(page: Page, folder: Path, *, link: bool = False) -> None:
    """Write the page into a study's folder and print where it is. Raises UsageError if it cannot be written there.

    With `link` its address follows, which terminals make a link of.
    """
    path = folder / PAGE
    write_page(page, path)
    click.echo(f"report: {path}")
    if link:
        click.echo(f"open: {path.resolve().as_uri()}")


def with_predictions(loaded: Loaded, named: Sequence[str]) -> Loaded:
    """The study with the named predictions beside its table.

    Those of other trainings are told on stderr. Raises UsageError for a file that is not there or not valid, and if no
    prediction belongs to the study.
    """
    if not named:
        return loaded
    folder = loaded.folder.resolve().parent / PREDICTIONS_FOLDER
    files = list(dict.fromkeys(path for name in named for path in _files(folder, name)))
    records = [record for path in files for record in read_predictions(path)]
    points, left = place_predictions(records, loaded.rows)
    if not points:
        predicted = "; ".join(dict.fromkeys(map(training_text, records)))
        trained = "; ".join(f"{family.title}, batch {family.batch}" for family in loaded.study.families)
        raise UsageError(
            f"no prediction in {', '.join(named)} belongs to {loaded.folder.name}: predicted is {predicted}; the "
            f"study has {trained or 'no training'}; predict that with dlscale predict"
        )
    for sentence in left:
        click.echo(f"not shown: {sentence}", err=True)
    return replace(loaded, study=replace(loaded.study, predictions=tuple(records)))


def _files(folder: Path, name: str) -> list[Path]:
    """The files of that name: a path, the beginning of names in `folder`, or all of it. Raises UsageError for none."""
    if name != LATEST and Path(name).is_file():
        return [Path(name)]
    known = sorted(folder.glob(f"*{ENDING}"))
    if found := [path for path in known if name == LATEST or path.name.startswith(name)]:
        return found
    names = ", ".join(path.name for path in known)
    choices = f"choose one of: {names}" if known else "make some: dlscale predict"
    raise UsageError(f"no predictions {name!r} in {folder}; {choices}")
