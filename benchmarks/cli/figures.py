"""`dlscale figures`: a study's figures, for a screen or for a printed page, and published figures."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path

import click

from dlscale.analysis.finding import Finding, checked
from dlscale.analysis.findings import load_all
from dlscale.analysis.findings.cautions import texts
from dlscale.analysis.load import Study
from dlscale.analysis.render.figures import PAPER_INCHES, write
from dlscale.base.errors import UsageError, unknown
from dlscale.base.files import make_folder
from dlscale.benchmarks.cli.options import Backends, Words, choose_study, json_option, results_option
from dlscale.benchmarks.cli.published import check_published, draw_published
from dlscale.benchmarks.cli.study_report import ended, load, predicted_option
from dlscale.benchmarks.records.store import Store

PAPER = "paper"  # the folder of printed figures, in that of the others


@click.command()
@click.argument("names", metavar="[STUDY]", nargs=-1)
@click.option(
    "--for",
    "medium",
    type=click.Choice(["screen", PAPER]),
    default="screen",
    show_default=True,
    help=f"A title above the axes; or, {PAPER_INCHES} in wide, bare axes with 8 pt text and a .tex file with the "
    "caption.",
)
@click.option(
    "--only",
    type=Words(),
    default=[],
    help="Figures to draw: efficiency, throughput, waterfall ...; default: all.",
)
@click.option("--backends", type=Backends(), default=[], help="Backends to draw; default: all of the study.")
@click.option(
    "--out",
    type=click.Path(path_type=Path, file_okay=False),
    help=f"Folder for the figures; default: figures in the study's folder, and for paper figures/{PAPER}.",
)
@predicted_option
@click.option(
    "--published",
    is_flag=True,
    help="Draw published figures instead; STUDY are names of these then (default: all that show a study of ours).",
)
@click.option(
    "--on",
    metavar="SYSTEM",
    help="System whose records stand in where a publication's own machine is asked for.",
)
@click.option(
    "--check",
    is_flag=True,
    help="Say instead whether our numbers, and predictions from public inputs, agree with published ones.",
)
@json_option
@results_option
def figures(
    *,
    names: tuple[str, ...],
    medium: str,
    only: list[str],
    backends: list[str],
    out: Path | None,
    predicted: list[str],
    published: bool,
    on: str | None,
    check: bool,
    as_json: bool,
    results: Path,
) -> int:
    """Draw the figures of STUDY (default: the latest) from its records alone, as PNG, PDF, SVG, and CSV.

    With --for paper, figures are as wide as on the page, and no higher; `\\input` of the .tex file shows one with a
    short caption, and its comments have the rest: study, data hash, commit. With --published, draw published figures in
    their own layout, next to our series of the same quantity; with --check, compare them
    (docs/published-figures.md).

    Exit status: 2 if records are corrupt or were left out, 4 if no figure can be drawn. With --check: 2 if a number of
    ours or two published ones disagree, 4 if nothing was compared in a figure that was asked for, or more launches are
    needed to tell.

    \b
    Examples:
      dlscale figures weak-scaling
      dlscale figures weak-scaling --predicted latest
      dlscale figures --for paper --only efficiency --backends ring,mpi
      dlscale figures --published powerai-ddl-2 goyal-8 --on my-cluster
      dlscale figures --published --check horovod-efficiencies
    """  # noqa: D301
    width = PAPER_INCHES if medium == PAPER else None
    of_study = {"--only": only, "--backends": backends, "--out": out, "--predicted": predicted}
    of_published = {"--on": on, "--check": check, "--json": as_json}
    for option, given in (of_study if published else of_published).items():
        if given:
            raise UsageError(f"{option} {'is of a study; drop' if published else 'requires'} --published")
    if check:
        return check_published(results, names, on=on, as_json=as_json)
    if as_json:
        raise UsageError("--json requires --check")
    if published:
        return draw_published(results, names, on=on, paper=width)
    known = [drawing.name for finding in load_all() for drawing in finding.drawings]
    for name in only:
        if name not in known:
            raise UsageError(unknown("figure", name, known))
    if len(names) > 1:
        raise UsageError(f"figures of one study at a time, not of {', '.join(names)}")
    folder = choose_study(results, next(iter(names), None))
    study = load(folder, named=predicted)
    place = make_folder(out or Store(folder).figures_folder / (PAPER if width else ""), option="--out")
    findings = checked(study, load_all())
    drawn = draw_figures(study, findings, place, only=only, backends=backends, width=width)
    return ended(study, enough=drawn > 0)


def draw_figures(
    study: Study,
    findings: Sequence[Finding],
    folder: Path,
    *,
    only: Collection[str] = (),
    backends: Collection[str] = (),
    width: float | None = None,
) -> int:
    """Draw the figures and print how many there are; returns that number."""
    warning = " ".join(texts(study)[:1])
    written = write(study, findings, folder, only=only, backends=backends, width=width, warning=warning)
    click.echo(
        f"figures: {len(written)} in {folder}" if written else "no figures: nothing of this has a number"
    )
    return len(written)
