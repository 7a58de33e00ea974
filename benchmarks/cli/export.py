"""`dlscale export`: a study's records and numbers in the forms that others read."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, TypeVar

import click

from dlscale.analysis.findings import load_all, scaling
from dlscale.analysis.render.text import study_markdown, write_tables
from dlscale.analysis.text import plural
from dlscale.base.files import write_atomically
from dlscale.benchmarks.cli import FAILED_CASES, INSUFFICIENT_DATA, SubVerbs
from dlscale.benchmarks.cli.options import choose_study, results_option
from dlscale.benchmarks.cli.predicted import load_predicted, predicted_option
from dlscale.benchmarks.cli.study_report import tell_left_out
from dlscale.benchmarks.records.store import Store

F = TypeVar("F", bound=Callable[..., Any])
ANOTHER = "free space or choose another place with --out"


@click.group(cls=SubVerbs)
def export() -> None:
    """Put a study's records and numbers into other forms.

    \b
    Examples:
      dlscale export tidy --format parquet   tables of launches and windows
      dlscale export markdown                the report's table for GitHub
    """  # noqa: D301


def _of_study(out_help: str) -> Callable[[F], F]:
    """Add STUDY, --out and --results."""

    def add(command: F) -> F:
        out = click.option("--out", type=click.Path(path_type=Path), help=out_help)
        return click.argument("study", required=False)(out(results_option(command)))

    return add


@export.command()
@_of_study("Folder for the tables; default: tables in the study's folder.")
@click.option(
    "--format",
    "form",
    type=click.Choice(["csv", "parquet"]),
    default="csv",
    show_default=True,
    help="Format of the tables; Parquet needs pyarrow.",
)
@click.option("--per-rank", is_flag=True, help="An additional table with a row per window and rank.")
@predicted_option
def tidy(
    study: str | None,
    form: Literal["csv", "parquet"],
    per_rank: bool,
    out: Path | None,
    predicted: list[str],
    results: Path,
) -> int:
    """Write the records of STUDY (default: the latest) as tidy tables, a row per launch and a row per window.

    datapackage.json next to the tables says what each column is (docs/report.md). With --predicted there is a table
    of predictions, too. Exit status: 2 if records are invalid.

    \b
    Examples:
      dlscale export tidy
      dlscale export tidy weak-scaling --format parquet --out tables
    """  # noqa: D301
    folder = choose_study(results, study)
    loaded = load_predicted(Store(folder), predicted)
    written = write_tables(loaded, load_all(), out or folder / "tables", form=form, per_rank=per_rank)
    click.echo(
        f"{plural(len(loaded.attempts), 'case')}: {', '.join(path.name for path in written)} in {written[0].parent}"
    )
    return FAILED_CASES if tell_left_out(loaded.bad_files, loaded.left_out) else 0


@export.command()
@_of_study("File; default: standard output.")
@predicted_option
def markdown(study: str | None, out: Path | None, predicted: list[str], results: Path) -> int:
    """Print the table of STUDY (default: the latest) as GitHub's markdown, with intervals and n.

    Exit status: 2 if records are invalid or were left out, 4 if nothing has a number.

    \b
    Examples:
      dlscale export markdown weak-scaling >> pull-request.md
      dlscale export markdown --out scaling.md
    """  # noqa: D301
    loaded = load_predicted(Store(choose_study(results, study)), predicted)
    text = study_markdown(loaded, load_all())
    if out:
        write_atomically(out, text, mode=0o644, remedy=ANOTHER)
        click.echo(f"table: {out}")
    else:
        click.echo(text, nl=False)
    if tell_left_out(loaded.bad_files, loaded.left_out):
        return FAILED_CASES
    return 0 if scaling.FINDING.of(loaded)["samples_per_second"].notna().any() else INSUFFICIENT_DATA
