"""`dlscale compare A B`: what differs between two studies, and their throughputs if they may be compared."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path

import click
from rich.console import Console, Group

from dlscale.analysis.findings.contrast_declaration import declare_between
from dlscale.analysis.findings.contrast_table import CONTRASTS
from dlscale.analysis.findings.contrasts import Contrasts, contrasts, parity_forbids
from dlscale.analysis.findings.study_comparison import (
    DIFFERENCES,
    compare_studies,
    compared_text,
    comparison_json,
    comparison_verdict,
)
from dlscale.analysis.launches import latest_good, launches_of
from dlscale.analysis.render.contrasts import render_contrasts
from dlscale.analysis.render.grid import render_table
from dlscale.base.errors import UsageError
from dlscale.benchmarks.cli import NOT_COMPARABLE
from dlscale.benchmarks.cli.options import choose_study
from dlscale.benchmarks.launch.measured_code import changed_files, changed_text
from dlscale.benchmarks.records.files import BadFile, load_parity, load_records, read_record
from dlscale.benchmarks.records.record import Parity, Record
from dlscale.benchmarks.study.study_file import read_study_file


def compare_two(names: Sequence[str], results: Path, *, factor: Sequence[str] | None, as_json: bool) -> int:
    """Print what differs between two studies, and their throughputs if they may be compared."""
    a, b = (_good(name, results) for name in names)
    folders = [folder_of(name, results) for name in names]
    comparison = compare_studies(a, b, factors=factor)
    before, after = (_measured_files(folder) for folder in folders)
    unpaired = None
    if not comparison.blocking:
        parities = [parity for folder in folders if folder for parity in load_parity(folder)]
        unpaired = contrast_studies(a, b, keys=comparison.keys, parities=parities)
    if as_json:
        rows = [CONTRASTS.data(contrast) for contrast in unpaired.found] if unpaired else []
        changed = changed_files(before, after) if before and after else None
        click.echo(json.dumps({**comparison_json(comparison), "contrasts": rows, "changed_files": changed}))
        return NOT_COMPARABLE if comparison.blocking else 0
    console = Console(highlight=False)
    console.print(compared_text(comparison), markup=False, soft_wrap=True)
    for part in render_table(DIFFERENCES.of(comparison.differences), caption=False):
        console.print(part)
    if changed_names := changed_text(before, after):
        console.print(f"Measured code that differs: {changed_names}", markup=False, soft_wrap=True)
    if unpaired:
        console.print(Group(*render_contrasts(unpaired)))
    console.print(comparison_verdict(comparison), markup=False, soft_wrap=True)
    return NOT_COMPARABLE if comparison.blocking else 0


def folder_of(name: str, results: Path) -> Path | None:
    """The study's folder; None for a single record."""
    path = Path(name)
    if path.is_file():
        return None
    return path if path.is_dir() else choose_study(results, name)


def attempts(name: str, results: Path) -> tuple[list[Record], list[BadFile]]:
    """All attempts in a study or file, and the invalid files."""
    folder = folder_of(name, results)
    if folder is not None:
        return load_records(folder)
    record = read_record(Path(name))
    return ([record], []) if isinstance(record, Record) else ([], [record])


def _good(name: str, results: Path) -> list[Record]:
    """The latest good record of every case. Raises UsageError if there is none, or a file is invalid."""
    records, bad = attempts(name, results)
    if bad:  # it may hold what differs
        rest = f" (and {len(bad) - 1} more such files)" if len(bad) > 1 else ""
        raise UsageError(f"{name} cannot be compared: {bad[0].path}: {bad[0].reason}{rest}")
    if good := latest_good(records):
        return good
    raise UsageError(
        f"{name} has no good record ({len(records)} failed); run the study, or look at: dlscale status"
    )


def _measured_files(folder: Path | None) -> dict[str, str]:
    """Name -> digest of the code that a study ran; empty where its folder does not say."""
    try:
        return read_study_file(folder).measured_files if folder else {}
    except UsageError:  # records are compared without it, too
        return {}


def contrast_studies(
    a: Sequence[Record], b: Sequence[Record], *, keys: Sequence[str], parities: Iterable[Parity] = ()
) -> Contrasts | None:
    """B's cells versus A's, unpaired; None if they have no measured cell in common."""
    declaration = declare_between(launches_of(a), launches_of(b), keys=keys)
    return contrasts(declaration, forbidden=parity_forbids(parities)) if declaration.pairs else None
