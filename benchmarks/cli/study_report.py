"""A study's records read once, for everything that `report`, `figures`, `proposal` and `export` show of them."""

from __future__ import annotations

import gc
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import click

from dlscale.analysis.curves import with_curve_names
from dlscale.analysis.finding import Found, collect
from dlscale.analysis.findings import load_all, scaling
from dlscale.analysis.findings.failures import of_one_fingerprint
from dlscale.analysis.findings.scaling import ScalingRow
from dlscale.analysis.frames import load as frames
from dlscale.analysis.measured import Measured, measure
from dlscale.analysis.render.html.content import Page
from dlscale.analysis.render.html.document import write_page
from dlscale.analysis.render.html.page import page_of
from dlscale.benchmarks.cli.plan_table import counted
from dlscale.benchmarks.cli.stated_study import study_in
from dlscale.benchmarks.records.cell import Case
from dlscale.benchmarks.records.files import BadFile, load_records
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
    variants = stated.variants
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


def load_study(store: Store, *, base: Base | None = None, running: bool = False) -> frames.Study:
    """The frames of the study with efficiencies relative to `base`; None: its own, else 1 rank or the smallest.

    `running`: a dlscale is measuring into the folder now. Raises UsageError if there is no study, its plan cannot be
    read, or one of its folders is a link.
    """
    store.refuse_links()
    records, bad_files = load_records(store.folder)
    gc.freeze()  # the records stay, and collecting garbage need not visit them
    stated, planned = study_in(store.folder), store.planned()
    return frames.Study(
        records,
        planned=planned,
        order=stated.order,
        base=base or stated.base or _usual_base(planned),
        axes=stated.variants.axes,
        settings=stated.variants.settings,
        bad_files=bad_files,
        name=store.folder.name,
        plan=counted(planned) if planned else "",
        running=running,
        system=stated.system,
    )


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
