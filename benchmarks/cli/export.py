"""`dlscale export`: a study's records and numbers in the forms that others read."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import click

from dlscale.analysis.findings import load_all, scaling
from dlscale.analysis.render.text import study_markdown, write_tables
from dlscale.analysis.text import plural
from dlscale.base.files import write_atomically
from dlscale.benchmarks.cli.options import choose_study, results_option, study_argument
from dlscale.benchmarks.cli.study_report import ended, load


@click.command()
@study_argument
@results_option
@click.option(
    "--format",
    "form",
    type=click.Choice(["csv", "parquet", "markdown"]),
    default="csv",
    show_default=True,
    help="Tidy tables as CSV or Parquet, which needs pyarrow, or the report's table as GitHub's markdown.",
)
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    help="Folder of tables, or file of markdown; default: tables in the study's folder, or standard output.",
)
@click.option("--per-rank", is_flag=True, help="An additional table with a row per window and rank.")
def export(
    *,
    name: str | None,
    results: Path,
    form: Literal["csv", "parquet", "markdown"],
    out: Path | None,
    per_rank: bool,
) -> int:
    """Write the records of STUDY (default: the latest) as tidy tables, a row per launch and a row per window.

    datapackage.json next to the tables says what each column is (docs/report.md). With --format markdown print the
    table of the study instead, with intervals and n.

    Exit status: 2 if records are invalid or were left out, 4 if nothing in markdown has a number.

    \b
    Examples:
      dlscale export weak-scaling --format parquet --out tables
      dlscale export weak-scaling --format markdown >> pull-request.md
    """  # noqa: D301
    folder = choose_study(results, name)
    study = load(folder)
    if form != "markdown":
        place = out or folder / "tables"
        written = write_tables(study, load_all(), place, form=form, per_rank=per_rank)
        names = ", ".join(path.name for path in written)
        click.echo(f"{plural(len(study.attempts), 'case')}: {names} in {place}")
        return ended(study, enough=True)
    text = study_markdown(study, load_all())
    if out:
        write_atomically(out, text, mode=0o644, remedy="free space or choose another place with --out")
        click.echo(f"table: {out}")
    else:
        click.echo(text, nl=False)
    return ended(study, enough=scaling.FINDING.of(study)["samples_per_second"].notna().any())
