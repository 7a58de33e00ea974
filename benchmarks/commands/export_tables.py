"""`dlscale export tidy|extrap|markdown`: a study's records and numbers as tables."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import click

from dlscale.analysis.exports.extrap import MIN_POINTS, models
from dlscale.analysis.exports.markdown import markdown as markdown_text
from dlscale.analysis.exports.tidy import write_tables
from dlscale.benchmarks.cli import FAILED_CASES, INSUFFICIENT_DATA
from dlscale.benchmarks.commands.options import results_option
from dlscale.benchmarks.commands.studies import choose_study
from dlscale.benchmarks.commands.study_report import load, tell_left_out
from dlscale.benchmarks.record_files import BadFile, load_records
from dlscale.benchmarks.store import Store
from dlscale.models.files import make_folder, write_atomically

ANOTHER = "free space or choose another place with --out"


@click.command()
@click.argument("study", required=False)
@click.option(
    "--format",
    "form",
    type=click.Choice(["csv", "parquet"]),
    default="csv",
    show_default=True,
    help="Of the tables; Parquet needs pyarrow.",
)
@click.option("--per-rank", is_flag=True, help="Also a row per window and rank.")
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    help="Folder for the tables; default: tables in the study's folder.",
)
@results_option
def tidy(
    study: str | None, form: Literal["csv", "parquet"], per_rank: bool, out: Path | None, results: Path
) -> int:
    """Write the records of STUDY (default: the latest) as tidy tables, a row per launch and a row per window.

    docs/tidy-tables.md says what each column is, and so does datapackage.json beside the tables. Exit status: 2 if
    records are corrupt.

    \b
    Examples:
      dlscale export tidy
      dlscale export tidy weak-scaling --format parquet --out tables
    """  # noqa: D301
    folder = choose_study(results, study)
    records, bad_files = load_records(folder)
    written = write_tables(records, out or folder / "tables", form=form, per_rank=per_rank)
    click.echo(f"{len(records)} launches: {', '.join(path.name for path in written)} in {written[0].parent}")
    return _complain(bad_files)


@click.command()
@click.argument("study", required=False)
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    help="Folder for the files; default: extra-p in the study's folder.",
)
@results_option
def extrap(study: str | None, out: Path | None, results: Path) -> int:
    """Write step times and starts of STUDY (default: the latest) for Extra-P, which models how they grow with ranks.

    A file of JSON lines per curve, a line per launch (docs/exports.md). Exit status: 2 if records are
    corrupt, 4 if no training gave a number.

    \b
    Example: dlscale export extrap weak-scaling
    """  # noqa: D301
    folder = choose_study(results, study)
    records, bad_files = load_records(folder)
    found = models(records)
    out = out or folder / "extra-p"
    if found:
        make_folder(out)
    for one in found:
        path = out / f"{one.stem}.jsonl"
        write_atomically(path, "\n".join(one.lines) + "\n", mode=0o644, remedy=ANOTHER)
        few = f" of the {MIN_POINTS} that Extra-P asks for" if one.num_points < MIN_POINTS else ""
        without = f"; without {', '.join(one.left_out)}" if one.left_out else ""
        click.echo(f"{path}: {one.name}, {one.num_points} numbers of ranks{few}{without}")
    if not found:
        click.echo("no training has a number", err=True)
    return _complain(bad_files) or (0 if found else INSUFFICIENT_DATA)


@click.command()
@click.argument("study", required=False)
@click.option("--out", type=click.Path(path_type=Path), help="File; default: standard output.")
@results_option
def markdown(study: str | None, out: Path | None, results: Path) -> int:
    """Print the table of STUDY (default: the latest) as GitHub's markdown, with intervals and n.

    Exit status: 2 if records are corrupt or were left out, 4 if nothing has a number.

    \b
    Examples:
      dlscale export markdown weak-scaling >> pull-request.md
      dlscale export markdown --out scaling.md
    """  # noqa: D301
    found = load(Store(choose_study(results, study)))
    text = markdown_text(found.table, bad_files=found.bad_files, left_out=found.left_out)
    if out:
        write_atomically(out, text, mode=0o644, remedy=ANOTHER)
        click.echo(f"table: {out}")
    else:
        click.echo(text, nl=False)
    if _complain(found.bad_files) or found.left_out:
        return FAILED_CASES
    return 0 if any(row.throughput for row in found.table.rows) else INSUFFICIENT_DATA


def _complain(bad_files: list[BadFile]) -> int:
    tell_left_out(bad_files)
    return FAILED_CASES if bad_files else 0
