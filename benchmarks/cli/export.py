"""`dlscale export`: a study's records and numbers in the forms that others read."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import click

from dlscale.analysis.findings import load_all, scaling
from dlscale.analysis.render.text import study_markdown, write_tables
from dlscale.analysis.text import plural
from dlscale.base.files import write_atomically
from dlscale.benchmarks.cli.options import choose_study
from dlscale.benchmarks.cli.study_report import ended, load, study_options


@click.group()
def export() -> None:
    """Put a study's records and numbers into other forms.

    \b
    Examples:
      dlscale export tidy --format parquet   tables of launches and windows
      dlscale export markdown                the report's table for GitHub
    """  # noqa: D301


@export.command()
@study_options
@click.option("--out", type=click.Path(path_type=Path), help="Folder; default: tables in the study's folder.")
@click.option(
    "--format",
    "form",
    type=click.Choice(["csv", "parquet"]),
    default="csv",
    show_default=True,
    help="Format of the tables; Parquet needs pyarrow.",
)
@click.option("--per-rank", is_flag=True, help="An additional table with a row per window and rank.")
def tidy(
    *, name: str | None, results: Path, form: Literal["csv", "parquet"], per_rank: bool, out: Path | None
) -> int:
    """Write the records of STUDY (default: the latest) as tidy tables, a row per launch and a row per window.

    datapackage.json next to the tables says what each column is (docs/report.md). Exit status: 2 if records are
    invalid.

    \b
    Examples:
      dlscale export tidy
      dlscale export tidy weak-scaling --format parquet --out tables
    """  # noqa: D301
    folder = choose_study(results, name)
    study, place = load(folder), out or folder / "tables"
    written = write_tables(study, load_all(), place, form=form, per_rank=per_rank)
    names = ", ".join(path.name for path in written)
    click.echo(f"{plural(len(study.attempts), 'case')}: {names} in {place}")
    return ended(study, enough=True)


@export.command()
@study_options
@click.option("--out", type=click.Path(path_type=Path), help="File; default: standard output.")
def markdown(*, name: str | None, results: Path, out: Path | None) -> int:
    """Print the table of STUDY (default: the latest) as GitHub's markdown, with intervals and n.

    Exit status: 2 if records are invalid or were left out, 4 if nothing has a number.

    \b
    Examples:
      dlscale export markdown weak-scaling >> pull-request.md
      dlscale export markdown --out scaling.md
    """  # noqa: D301
    study = load(choose_study(results, name))
    text = study_markdown(study, load_all())
    if out:
        write_atomically(out, text, mode=0o644, remedy="free space or choose another place with --out")
        click.echo(f"table: {out}")
    else:
        click.echo(text, nl=False)
    return ended(study, enough=scaling.FINDING.of(study)["samples_per_second"].notna().any())
