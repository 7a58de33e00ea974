"""Finding the studies in a results folder."""

from __future__ import annotations

from pathlib import Path

from dlscale.benchmarks.record_files import RECORDS_FOLDER
from dlscale.models.errors import UsageError


def study_folders(results: Path) -> list[Path]:
    """All study folders, the one measured into last at the end. Raises UsageError if there is none."""
    found = [path.parent for path in results.glob("*/*/study.json")]
    if not found:
        raise UsageError(f"no study in {results}; run one first, for instance: dlscale run weak-scaling")

    def last_record(folder: Path) -> float:
        records = folder / RECORDS_FOLDER  # a folder's time is that of the last file that came into it
        return (records if records.is_dir() else folder / "study.json").stat().st_mtime

    return sorted(found, key=last_record)


def choose_study(results: Path, name: str | None) -> Path:
    """The folder of the study that `name` names or begins; the latest without a name. Raises UsageError."""
    folders = study_folders(results)
    matching = [folder for folder in folders if name is None or folder.name.startswith(name)]
    if not matching:
        known = ", ".join(sorted({folder.name for folder in folders}))
        raise UsageError(f"no study {name!r} in {results}; choose one of: {known}")
    return matching[-1]
