"""`dlscale figures`: a study's figures, for a screen or for a printed page, and published figures."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

import click

from dlscale.analysis.finding import Finding
from dlscale.analysis.findings import load_all
from dlscale.analysis.findings.cautions import texts
from dlscale.analysis.load import Study
from dlscale.analysis.render.figures import PAPER_INCHES, write
from dlscale.base.errors import UsageError, unknown
from dlscale.base.files import make_folder
from dlscale.benchmarks.cli.option_kinds import Backends, Width, Words
from dlscale.benchmarks.cli.options import base_option, json_option, results_option, system_option
from dlscale.benchmarks.cli.published import check_published, draw_published
from dlscale.benchmarks.cli.study_report import ChosenStudy, ended, findings_of, load, predicted_option
from dlscale.benchmarks.records.store import Store, uncollected

PAPER = "paper"  # the folder of printed figures, in that of the others


@click.command()
@click.argument("names", metavar="[STUDY]", nargs=-1)
@click.option(
    "--for",
    "medium",
    type=click.Choice(["screen", PAPER]),
    default="screen",
    show_default=True,
    help="A title above the axes; or bare axes with 8 pt text and a .tex file with the caption.",
)
@click.option(
    "--width",
    type=Width(),
    help=f"Printed width, with --for paper: 3.3in, 8.4cm, 84mm or 240pt; default: {PAPER_INCHES}in.",
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
@click.option(
    "--published",
    is_flag=True,
    help="Draw published figures instead; STUDY are names of these then (default: all that show a study of ours).",
)
@click.option("--all", "everything", is_flag=True, help="Published figures that show no study of ours, too.")
@click.option(
    "--on",
    metavar="SYSTEM",
    help="System whose records stand in where a publication's own machine is asked for.",
)
@click.option(
    "--check",
    is_flag=True,
    help="Say instead whether our numbers and published ones agree, and these with each other.",
)
@click.option(
    "--claims",
    is_flag=True,
    help="Check predictions from public inputs against what publications claim, instead.",
)
@json_option
@system_option
@base_option
@predicted_option
@results_option
def figures(
    *,
    names: tuple[str, ...],
    medium: str,
    width: float | None,
    published: bool,
    results: Path,
    everything: bool,
    on: str | None,
    check: bool,
    claims: bool,
    as_json: bool,
    **asked: Any,
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
      dlscale figures --for paper --width 3.3in --only efficiency --backends ring,mpi
      dlscale figures --published
      dlscale figures --published powerai-ddl-2 goyal-8 --on my-cluster
      dlscale figures --published --check --claims horovod-efficiencies
    """  # noqa: D301
    if width and medium != PAPER:
        raise UsageError("--width requires --for paper")
    paper = (width or PAPER_INCHES) if medium == PAPER else None
    of_published = {
        "--all": everything, f"--on {on}": on, "--check": check, "--claims": claims, "--json": as_json
    }  # fmt: skip
    if not published:
        if alone := [option for option, given in of_published.items() if given]:
            raise UsageError(f"{alone[0]} requires --published")
        return _draw_study(names, results, paper=paper, **asked)
    if any(asked[name] for name in ("only", "backends", "out", "predicted")):
        raise UsageError(
            "--only, --backends, --out and --predicted are of a study's figures; drop --published"
        )
    if not check:
        if claims or as_json:
            raise UsageError(f"{'--claims' if claims else '--json'} requires --check")
        return draw_published(results, names=names, on=on, everything=everything, paper=paper)
    return check_published(results, names=names, on=on, claims=claims, everything=everything, as_json=as_json)


def _draw_study(
    names: Sequence[str],
    results: Path,
    *,
    paper: float | None,
    only: Sequence[str],
    backends: Sequence[str],
    out: Path | None,
    **choice: Any,
) -> int:
    known = [drawing.name for finding in load_all() for drawing in finding.drawings]
    for name in only:
        if name not in known:
            raise UsageError(unknown("figure", name, known))
    if len(names) > 1:
        raise UsageError(
            f"figures of one study at a time, not of {', '.join(names)}; --published takes several published ones"
        )
    chosen = ChosenStudy(name=next(iter(names), None), results=results, **choice)
    folder = chosen.folder
    with uncollected():
        study = load(folder, base=chosen.base, named=chosen.predicted)
        trained = list(dict.fromkeys(study.cells.loc[study.cells["control"] == "train", "backend"]))
        if missing := [name for name in backends if name not in trained]:
            raise UsageError(
                f"no backend {missing[0]!r} in {study.name}; choose from: {', '.join(trained) or 'none was trained'}"
            )
        place = make_folder(out or Store(folder).figures_folder / (PAPER if paper else ""), option="--out")
        drawn = draw_figures(study, findings_of(study), place, only=only, backends=backends, width=paper)
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
    if written:
        click.echo(f"figures: {len(written)} in {folder}")
    elif backends or only:
        click.echo(f"no figures: the records of {study.name} have no numbers for what was asked for")
    else:
        click.echo("no figures: no training has a number")
    return len(written)
