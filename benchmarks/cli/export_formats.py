"""`dlscale export mllog`: records as MLPerf logs."""

from __future__ import annotations

import shlex
from pathlib import Path

import click

from dlscale.analysis.records import why_unusable, world_step_seconds
from dlscale.base.errors import UsageError
from dlscale.base.files import write_atomically
from dlscale.benchmarks.cli import FAILED_CASES
from dlscale.benchmarks.cli.options import choose_study, results_option
from dlscale.benchmarks.exports.formats import mllog_text
from dlscale.benchmarks.exports.training_log import training_log_text, training_rules
from dlscale.benchmarks.records.files import BadFile, load_records
from dlscale.benchmarks.records.record import Record


@click.command()
@click.argument("study", required=False)
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    help="Folder for the logs; default: mllog in the study's folder.",
)
@results_option
def mllog(study: str | None, out: Path | None, results: Path) -> int:
    """Write each record of STUDY (default: the latest) as an MLPerf log, <case>.<attempt>.log.

    Of trainings to a target MLPerf's compliance checker accepts the logs by the rules that are written beside them.
    Needs the package mlperf-logging: pip install 'dlscale[mllog]'. Exit status: 2 if records are invalid.

    \b
    Example: dlscale export mllog weak-scaling
    """  # noqa: D301
    folder = choose_study(results, study)
    out = out or folder / "mllog"
    records, bad_files = load_records(folder)
    texts = ((record, _log_text(record)) for record in records)
    for index, (record, text) in enumerate(texts):
        if index == 0:
            _make(out)
        remedy = "free space or choose another folder with --out"
        write_atomically(out / f"{record.case.id}.{record.attempt}.log", text, remedy=remedy)
    click.echo(f"{len(records)} logs in {out}")
    if any(record.solution for record in records):
        rules = out / RULES
        write_atomically(rules, training_rules(), remedy="free space or choose another folder with --out")
        click.echo(f"check: {CHECKER} --config {shlex.quote(str(rules.resolve()))} LOG")
    return _complain(bad_files)


RULES = "rules.yaml"
CHECKER = "python -m mlperf_logging.compliance_checker --ruleset 6.0.0"


def _log_text(record: Record) -> str:
    if record.case.cell.target and record.solution:
        return training_log_text(record, record.case.cell.target, record.solution)
    return mllog_text(record, _window_rates(record))


def _window_rates(record: Record) -> list[float]:
    """Samples per second of each steady window; none of a communication-only case or if the record gives no number."""
    if why_unusable(record) is not None or record.case.cell.control == "exchange":
        return []
    return [float(record.case.cell.global_batch / seconds) for seconds in world_step_seconds(record)]


def _make(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(
            f"folder {folder} cannot be made: {error.strerror}; choose another with --out"
        ) from None


def _complain(bad_files: list[BadFile]) -> int:
    for bad in bad_files:
        click.echo(f"{bad.path}: {bad.reason}", err=True)
    return FAILED_CASES if bad_files else 0
