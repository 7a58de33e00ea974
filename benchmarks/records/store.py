"""A study's folder on disk.

<results>/<system>/<study>-<digest>/
study.json      the plan that all its records belong to
parity.json     whether the two frameworks' networks are the same, where the study has both
records/        <case>.<attempt>.json, written once
records.parquet the same records in one file, once they are packed (packing.py)
index.jsonl     what lists show of the files under records/ (record_index.py)
spool/          launches under way; what an interrupted one left is made into records
figures/        drawn from the records alone
report.html     made from the records alone
"""

from __future__ import annotations

import fcntl
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from dlscale.base.errors import UsageError
from dlscale.base.files import make_folder, write_atomically
from dlscale.benchmarks.records import archive, files
from dlscale.benchmarks.records.archive import Summary, file_name, parse_file_name
from dlscale.benchmarks.records.files import (
    PARITY_FILE,
    RECORDS_FOLDER,
    file_names,
    load_records,
    measured,
    parse_record,
    read_record,
)
from dlscale.benchmarks.records.record import Case, Record


class Store:
    """The records of one study."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.records_folder = folder / RECORDS_FOLDER
        self.spool_folder = folder / "spool"
        self.figures_folder = folder / "figures"
        self._attempts: dict[str, set[int]] | None = None  # by case; None: nobody asked yet

    def open(self, description: dict[str, Any]) -> None:
        """The folders exist and can be written, and study.json says what is in them."""
        for folder in (self.folder, self.records_folder, self.spool_folder):
            make_folder(folder)
        path = self.folder / "study.json"
        if not path.exists():
            write_atomically(path, json.dumps(description, indent=1))

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Only one dlscale measures into this folder; UsageError if another one does. Ends with its holder."""
        path = self.folder / "lock"
        try:
            file = path.open("w")
        except OSError as error:
            raise UsageError(
                f"cannot write {path}: {error.strerror}; free space, or choose a folder of yours with --results"
            ) from None
        with file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise UsageError(
                    f"another dlscale is measuring into {self.folder}; wait for it, or stop it first"
                ) from None
            yield

    @property
    def busy(self) -> bool:
        """Whether a dlscale is measuring into this folder now."""
        try:
            with (self.folder / "lock").open() as file:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        except OSError:  # nobody has measured here, or only others may ask
            return False
        return False

    @property
    def parity_path(self) -> Path:
        """Where the parity gate's verdicts lie (`record_files.load_parity`)."""
        return self.folder / PARITY_FILE

    def load(self) -> list[Record]:
        """All records; none in a folder that nothing was measured into.

        Raises UsageError for a corrupt one: whoever measures must not count its case as done or as missing.
        """
        if not measured(self.folder):
            return []
        records, bad = load_records(self.folder)
        if bad:
            raise UsageError(f"record {bad[0].path} is unsound: {bad[0].reason}")
        return records

    def summaries(self) -> list[Summary]:
        """As `load`, but only what lists show of the records: much faster where there are many."""
        if not measured(self.folder):
            return []
        found, bad = files.summaries(self.folder)
        if bad:
            raise UsageError(f"record {bad[0].path} is unsound: {bad[0].reason}")
        return found

    def finished(self) -> set[str]:
        """The cases that have a good record. Raises UsageError for a corrupt one."""
        return {one.case for one in self.summaries() if one.good}

    def latest(self, case: Case) -> Record | None:
        """The case's latest attempt; None without one. Raises UsageError if it is corrupt."""
        attempts = self._known().get(case.id)
        if not attempts:
            return None
        path = self.records_folder / file_name(case.id, max(attempts))
        content = None if path.exists() else archive.packed_content(self.folder, case.id, max(attempts))
        found = read_record(path) if content is None else parse_record(path, content)
        if not isinstance(found, Record):
            raise UsageError(f"record {found.path} is unsound: {found.reason}")
        return found

    def planned(self) -> list[Case]:
        """The cases that study.json plans. Raises UsageError if it cannot be read."""
        path = self.folder / "study.json"
        try:
            launches = json.loads(path.read_text(encoding="utf-8"))["launches"]
            return [Case.model_validate(case) for launch in launches for case in launch]
        except (OSError, ValueError, KeyError) as error:
            raise UsageError(
                f"{path} cannot be read ({error}); run the study again, which writes it"
            ) from None

    def next_attempt(self, case: Case) -> int:
        """1 + the number of the case's latest attempt, sound or not."""
        attempt = max(self._known().get(case.id, ()), default=0) + 1
        while (self.records_folder / file_name(case.id, attempt)).exists():  # written by somebody else
            attempt += 1
        return attempt

    def add(self, record: Record) -> Path:
        """Write a record once and for all. Raises FileExistsError if that attempt is there already."""
        attempts = self._known().setdefault(record.case.id, set())
        path = self.records_folder / file_name(record.case.id, record.attempt)
        if record.attempt in attempts or path.exists():
            raise FileExistsError(f"{path}: records are written once")
        write_atomically(path, record.model_dump_json() + "\n")
        attempts.add(record.attempt)
        files.add_to_index(self.folder, path, record)
        return path

    def _known(self) -> dict[str, set[int]]:
        """The attempts that there are of each case, sound or not; the folder is looked through once."""
        if self._attempts is None:
            names = [parse_file_name(name) for name in file_names(self.folder)]
            try:
                names += [(one.case, one.attempt) for one in archive.packed_summaries(self.folder)]
            except archive.InvalidPackError as error:
                raise UsageError(f"record {self.folder / archive.PACK_FILE} is unsound: {error}") from None
            self._attempts = {}
            for case, attempt in filter(None, names):
                self._attempts.setdefault(case, set()).add(attempt)
        return self._attempts
