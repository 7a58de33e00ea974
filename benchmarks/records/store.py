"""A study's folder on disk.

<results>/<system>/<study>-<digest>/
study.json      the plan that all its records belong to
records/        <case>.<attempt>.json, written once; an invalid one is reported, never skipped
spool/          running launches; the remains of an interrupted one become records
figures/        drawn from the records alone
report.html     made from the records alone
"""

from __future__ import annotations

import fcntl
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from dlscale.base.definitions import first_problem, read_json
from dlscale.base.errors import UsageError
from dlscale.base.files import make_folder, open_regular, read_regular, refuse_links, write_atomically
from dlscale.benchmarks.records.cell import Case
from dlscale.benchmarks.records.record import SCHEMA_VERSION, Record

RECORDS_FOLDER = "records"
# What is written or cleared in a study's folder; none of them may be a symbolic link.
FOLDERS = (*(RECORDS_FOLDER, "spool", "figures", "figures/paper", "checkpoints", "own", "jobs", "proposal"),)
LOCK = "lock"  # the file that a dlscale holds which measures into the folder


@dataclass(frozen=True, slots=True, kw_only=True)
class BadFile:
    """A file among the records that is not a valid record, and why."""

    path: Path
    reason: str


def load_records(study: Path) -> tuple[list[Record], list[BadFile]]:
    """The records of a study, ordered by file name, and the invalid files, ordered by path.

    Raises UsageError only if there is no folder of records.
    """
    folder = study / RECORDS_FOLDER
    if not folder.is_dir():
        raise UsageError(
            f"no records in {study}: {folder} is not a folder; name the folder that a study wrote"
        )
    # A name with a leading dot is a file that is being written.
    names = sorted(name for name in os.listdir(folder) if name.endswith(".json") and name[0] != ".")
    files = [read_record(folder / name) for name in names]
    # Earlier versions began and ended jobs with a training, a canary, that belongs to no curve.
    records = [it for it in files if isinstance(it, Record) and it.case.cell.control != "canary"]
    return records, [file for file in files if isinstance(file, BadFile)]


def read_record(path: Path) -> Record | BadFile:
    """The record in that file."""
    try:
        return Record.model_validate_json(read_regular(path))
    except OSError as error:
        reason = f"cannot be read: {error.strerror}"
    except ValidationError as error:
        first = error.errors()[0]
        if first["type"] == "json_invalid":
            reason = "not complete JSON; restore it, or delete it so that the case is run again"
        elif first["loc"] == ("schema_version",):
            reason = f"schema version {first['input']!r}; this version of dlscale reads {SCHEMA_VERSION}"
        else:
            reason = f"not a record: {first_problem(error)}"
    return BadFile(path=path, reason=reason)


class _Plan(BaseModel):
    """What of study.json says which cases there are."""

    launches: list[list[Case]]


class Store:
    """The records of one study."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.records_folder = folder / RECORDS_FOLDER
        self.spool_folder = folder / "spool"
        self.figures_folder = folder / "figures"
        self.checkpoints_folder = folder / "checkpoints"

    def open(self, description: dict[str, Any]) -> None:
        """Create the folders, and study.json if it does not exist.

        Raises UsageError as `refuse_links`, and if the folders are not writable.
        """
        self.refuse_links()
        for folder in (self.folder, self.records_folder, self.spool_folder):
            make_folder(folder)
        path = self.folder / "study.json"
        if not path.exists():
            write_atomically(path, json.dumps(description, indent=1))

    def refuse_links(self) -> None:
        """Raises UsageError where one of the study's folders is a symbolic link."""
        refuse_links(self.folder / name for name in FOLDERS)

    @property
    def busy(self) -> bool:
        """Whether a dlscale is currently measuring into this folder."""
        try:
            with os.fdopen(open_regular(self.folder / LOCK)) as file:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        except OSError:  # no measurement here, or no permission to check
            return False
        return False

    def load(self) -> list[Record]:
        """All records; none if nothing was measured into the folder.

        Raises UsageError for an invalid one: its case is neither done nor missing.
        """
        records, bad_files = load_records(self.folder) if self.records_folder.is_dir() else ([], [])
        if bad_files:
            raise UsageError(f"record {bad_files[0].path} is invalid: {bad_files[0].reason}")
        return records

    def planned(self) -> list[Case]:
        """The cases that study.json plans. Raises UsageError if it cannot be read."""
        try:
            plan = read_json(_Plan, self.folder / "study.json", remedy="run the study again, which writes it")
        except UsageError:
            self.load()  # records of another version say so
            raise
        return [case for launch in plan.launches for case in launch]

    def next_attempt(self, case: Case) -> int:
        """1 + the number of the case's latest attempt, valid or not."""
        names = [path.name.split(".")[-2] for path in self.records_folder.glob(f"{case.id}.*.json")]
        return 1 + max((int(name) for name in names if name.isdecimal()), default=0)

    def add(self, record: Record) -> None:
        """Write a record once. Raises FileExistsError if that attempt already exists."""
        path = self.records_folder / f"{record.case.id}.{record.attempt}.json"
        if path.exists():
            raise FileExistsError(f"{path}: records are written once")
        write_atomically(path, f"{record.model_dump_json()}\n")
