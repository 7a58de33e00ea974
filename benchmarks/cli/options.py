"""Options that several verbs share, and the study that a verb reads in a results folder."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from dlscale.base.errors import UsageError, unknown
from dlscale.benchmarks.cli.option_kinds import Folder
from dlscale.benchmarks.records.store import RECORDS_FOLDER
from dlscale.benchmarks.study.study import STUDY_FILE
from dlscale.benchmarks.systems.system import load_system

F = TypeVar("F", bound=Callable[..., Any])


def results_option(command: F) -> F:
    """Add --results."""
    return click.option(
        "--results",
        type=Folder(),
        default=Path("results"),
        show_default=True,
        help="Folder of the studies' records.",
    )(command)


def json_option(command: F) -> F:
    """Add --json."""
    return click.option(
        "--json", "as_json", is_flag=True, help="Print JSON with stable keys instead of a table."
    )(command)


# A flag with an optional value, which make needs: --skip-bad, --skip-bad yes, --skip-bad no.
YES: dict[str, Any] = {"type": bool, "is_flag": False, "flag_value": True, "default": None}


def study_folders(results: Path) -> list[Path]:
    """All study folders, the most recently measured last. Raises UsageError if there is none."""
    folders = [path.parent for path in results.glob(f"*/*/{STUDY_FILE}")]
    if not folders:
        raise UsageError(f"no study in {results}; run one first, e.g.: dlscale run weak-scaling")

    def last_record(folder: Path) -> float:
        records = folder / RECORDS_FOLDER  # a folder's time is that of its newest entry
        return (records if records.is_dir() else folder / STUDY_FILE).stat().st_mtime

    return sorted(folders, key=last_record)


def choose_study(results: Path, name: str | None, *, system: str | None = None) -> Path:
    """The folder of a study: `name` is its path, or the beginning of its name; of several the latest is taken.

    Only those on `system` are looked at, if given. Raises UsageError if there is none.
    """
    if name is not None and (Path(name) / STUDY_FILE).is_file():
        return Path(name)
    place = load_system(system).name if system else None
    folders = [folder for folder in study_folders(results) if place in (None, folder.parent.name)]
    if matching := [folder for folder in folders if folder.name.startswith(name or "")]:
        return matching[-1]
    where = f"in {results}" + (f" on {place}" if place else "")
    raise UsageError(unknown("study", name or "", sorted(folder.name for folder in folders), where=where))
