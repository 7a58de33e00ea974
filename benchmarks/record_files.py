"""Reading records from a study's folder. A file that is no sound record is named, never skipped silently."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from dlscale.benchmarks.record import SCHEMA_VERSION, Parity, Record
from dlscale.models.errors import UsageError

PARITY_FILE = "parity.json"
PARITIES = TypeAdapter(list[Parity])


@dataclass(frozen=True, slots=True, kw_only=True)
class BadFile:
    """A file among the records that is none, and why."""

    path: Path
    reason: str


def load_records(study: Path) -> tuple[list[Record], list[BadFile]]:
    """The records under `<study>/records/`, ordered by file name, and the files that are not sound ones.

    Raises UsageError only if there is no such folder.
    """
    folder = study / "records"
    if not folder.is_dir():
        raise UsageError(
            f"no records in {study}: {folder} is not a folder; name the folder that a study wrote"
        )
    records: list[Record] = []
    bad: list[BadFile] = []
    for path in sorted(folder.glob("*.json")):
        if path.name.startswith("."):  # being written
            continue
        try:
            records.append(Record.model_validate_json(path.read_bytes()))
        except (OSError, ValidationError) as error:
            bad.append(BadFile(path=path, reason=_why_unreadable(path, error)))
    return records, bad


def load_parity(study: Path) -> list[Parity]:
    """The parity gate's verdicts in a study's folder; none where it never ran. Raises UsageError if unsound."""
    path = study / PARITY_FILE
    if not path.exists():
        return []
    try:
        return PARITIES.validate_json(path.read_bytes())
    except (OSError, ValidationError) as error:
        raise UsageError(
            f"{path} is unsound ({type(error).__name__}); delete it, and the next run writes it again"
        ) from None


def _why_unreadable(path: Path, error: OSError | ValidationError) -> str:
    if isinstance(error, OSError):
        return f"cannot be read: {error.strerror}"
    try:
        content = json.loads(path.read_bytes())
    except (OSError, ValueError):  # ValueError: not UTF-8, or not JSON
        return "not complete JSON; restore it, or delete it so that the case is run again"
    version = content.get("schema_version") if isinstance(content, dict) else None
    if version is not None and version != SCHEMA_VERSION:
        return f"schema version {version!r}; this version of dlscale reads {SCHEMA_VERSION}"
    first = error.errors(include_url=False, include_context=False, include_input=False)[0]
    place = ".".join(str(part) for part in first["loc"]) or "top level"
    return f"not a record: {place}: {first['msg']}"
