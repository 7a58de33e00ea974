"""A study's records read once, as frames, for everything that shows them at the command line."""

from __future__ import annotations

import gc
from collections.abc import Iterable, Sequence
from pathlib import Path

import click

from dlscale.analysis.finding import Finding, checked
from dlscale.analysis.findings import load_all
from dlscale.analysis.load import Study
from dlscale.analysis.render import page
from dlscale.benchmarks.cli.plan_table import counted
from dlscale.benchmarks.cli.stated_study import study_in
from dlscale.benchmarks.records.cell import Case
from dlscale.benchmarks.records.record import Base
from dlscale.benchmarks.records.store import BadFile, Store, load_records

PAGE = "report.html"


def load(store: Store, *, base: Base | None = None, running: bool = False) -> Study:
    """The frames of the study with efficiencies relative to `base`; None: its own, else 1 rank or the smallest.

    `running`: a dlscale is measuring into the folder now. Raises UsageError if there is no study, its plan cannot be
    read, or one of its folders is a link.
    """
    store.refuse_links()
    records, bad_files = load_records(store.folder)
    gc.freeze()  # the records stay, and collecting garbage need not visit them
    stated, planned = study_in(store.folder), store.planned()
    return Study(
        records,
        planned=planned,
        order=stated.order,
        base=base or stated.base or _usual_base(planned),
        axes=stated.axes,
        settings=stated.settings,
        bad_files=bad_files,
        name=store.folder.name,
        plan=counted(planned) if planned else "",
        running=running,
        system=stated.system,
    )


def _usual_base(planned: Iterable[Case]) -> Base:
    trained = [case.cell.num_ranks for case in planned if case.cell.control == "train"]
    return "smallest" if trained and min(trained) > 1 else "1"


def findings_of(study: Study) -> list[Finding]:
    """All findings; one that cannot be computed says so, and so does `study.errors`."""
    return checked(study, load_all())


def tell_left_out(bad_files: Sequence[BadFile], left_out: Sequence[str] = ()) -> bool:
    """Print on stderr what an output does not have: the first file and the number of others, and groups of records.

    Returns whether it lacks anything.
    """
    if bad_files:
        rest = f" (and {len(bad_files) - 1} more such files)" if len(bad_files) > 1 else ""
        click.echo(f"left out: {bad_files[0].path}: {bad_files[0].reason}{rest}", err=True)
    for sentence in left_out:
        click.echo(f"left out: {sentence}", err=True)
    return bool(bad_files or left_out)


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
