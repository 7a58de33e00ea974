"""A study's folder on disk.

<results>/<system>/<study>-<digest>/
study.json      the plan that all its records belong to
records/        <case>.<attempt>.json, written once
spool/          running launches; the remains of an interrupted one become records
damaged/        spools with lines that could not be read; the record of each case that lost some names them
figures/        drawn from the records alone
report.html     made from the records alone
"""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from dlscale.base.definitions import read_json
from dlscale.base.errors import UsageError
from dlscale.base.files import locked, make_folder, open_regular, refuse_links, write_atomically
from dlscale.benchmarks.records import files
from dlscale.benchmarks.records.cell import Case
from dlscale.benchmarks.records.files import (
    RECORDS_FOLDER,
    BadFile,
    file_name,
    file_names,
    load_records,
    measured,
    parse_file_name,
)
from dlscale.benchmarks.records.record import Record

# What is written or cleared in a study's folder; none of them may be a symbolic link.
FOLDERS = (
    RECORDS_FOLDER,
    "spool",
    "damaged",
    "figures",
    "figures/paper",
    "checkpoints",
    "own",
    "jobs",
    "proposal",
)
ABANDONED_SECONDS = 600.0  # after which a file is still half-written because its writer is gone


class _Plan(BaseModel):
    """What of study.json says which cases there are."""

    launches: list[list[Case]]


class Store:
    """The records of one study."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.records_folder = folder / RECORDS_FOLDER
        self.spool_folder = folder / "spool"
        self.damaged_folder = folder / "damaged"
        self.figures_folder = folder / "figures"
        self.checkpoints_folder = folder / "checkpoints"
        self._attempts: dict[str, set[int]] | None = None  # by case; None: not read yet

    def open(self, description: dict[str, Any]) -> None:
        """Create the folders, and study.json if it does not exist; remove half-written records of killed processes.

        Raises UsageError as `refuse_links`, and if the folders are not writable.
        """
        self.refuse_links()
        for folder in (self.folder, self.records_folder, self.spool_folder):
            make_folder(folder)
        for path in self.records_folder.glob(".*.tmp"):
            with suppress(OSError):  # renamed meanwhile: somebody is writing it
                if time.time() - path.stat().st_mtime > ABANDONED_SECONDS:
                    path.unlink()
        path = self.folder / "study.json"
        if not path.exists():
            write_atomically(path, json.dumps(description, indent=1))

    def refuse_links(self) -> None:
        """Raises UsageError where one of the study's folders is a symbolic link."""
        refuse_links(self.folder / name for name in FOLDERS)

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Lock the folder against other dlscale processes. Raises UsageError if locked; ends with its holder."""
        held = f"another dlscale is measuring into {self.folder}; wait for it, or stop it first"
        with locked(self.folder / "lock", held=held):
            yield

    @property
    def busy(self) -> bool:
        """Whether a dlscale is currently measuring into this folder."""
        try:
            with os.fdopen(open_regular(self.folder / "lock")) as file:
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
        if not measured(self.folder):
            return []
        records, bad_files = load_records(self.folder)
        if bad_files:
            raise _invalid(bad_files[0])
        return records

    def finished(self) -> set[str]:
        """The cases with a good record, in a third of the time of `load`. Raises UsageError for an invalid record."""
        if not measured(self.folder):
            return set()
        summaries, bad_files = files.summaries(self.folder)
        if bad_files:
            raise _invalid(bad_files[0])
        return {summary.case for summary in summaries if summary.good}

    def latest(self, case: Case) -> Record | None:
        """The case's latest attempt; None without one. Raises UsageError if it is invalid."""
        attempts = self._known().get(case.id)
        if not attempts:
            return None
        name = file_name(case.id, max(attempts))
        record = files.read_record(self.records_folder / name)
        if isinstance(record, BadFile):
            raise _invalid(record)
        return record

    def planned(self) -> list[Case]:
        """The cases that study.json plans. Raises UsageError if it cannot be read."""
        try:
            plan = read_json(_Plan, self.folder / "study.json", remedy="run the study again, which writes it")
        except UsageError:
            self.finished()  # records of another version say so
            raise
        return [case for launch in plan.launches for case in launch]

    def next_attempt(self, case: Case) -> int:
        """1 + the number of the case's latest attempt, valid or not."""
        attempt = max(self._known().get(case.id, ()), default=0) + 1
        while (self.records_folder / file_name(case.id, attempt)).exists():  # written by another process
            attempt += 1
        return attempt

    def add(self, record: Record) -> Path:
        """Write a record once.

        Raises FileExistsError if that attempt already exists, ValueError if the record could not be read again, as one
        with a number that JSON does not have.
        """
        attempts = self._known().setdefault(record.case.id, set())
        path = self.records_folder / file_name(record.case.id, record.attempt)
        if record.attempt in attempts or path.exists():
            raise FileExistsError(f"{path}: records are written once")
        content = record.model_dump_json() + "\n"
        if isinstance(again := files.parse_record(path, content.encode()), BadFile):
            raise ValueError(again.reason)
        write_atomically(path, content)
        attempts.add(record.attempt)
        return path

    def _known(self) -> dict[str, set[int]]:
        """The attempts of each case, invalid ones included; the folder is listed only once."""
        if self._attempts is None:
            self._attempts = {}
            for case, attempt in filter(None, map(parse_file_name, file_names(self.folder))):
                self._attempts.setdefault(case, set()).add(attempt)
        return self._attempts


def _invalid(bad_file: BadFile) -> UsageError:
    return UsageError(f"record {bad_file.path} is invalid: {bad_file.reason}")
