"""A study's folder on disk.

<results>/<system>/<study>-<digest>/
study.json      the plan that all its records belong to
parity.json     whether the two frameworks' networks are the same, where the study has both
records/        <case>.<attempt>.json, written once
spool/          launches under way; what an interrupted one left is made into records
figures/        drawn from the records alone
"""

from __future__ import annotations

import fcntl
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from dlscale.benchmarks.record import Case, Record
from dlscale.benchmarks.record_files import PARITY_FILE, load_records
from dlscale.models.errors import UsageError
from dlscale.models.files import make_folder, write_atomically


class Store:
    """The records of one study."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.records_folder = folder / "records"
        self.spool_folder = folder / "spool"
        self.figures_folder = folder / "figures"

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
        with (self.folder / "lock").open("w") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise UsageError(
                    f"another dlscale is measuring into {self.folder}; wait for it, or stop it first"
                ) from None
            yield

    @property
    def parity_path(self) -> Path:
        """Where the parity gate's verdicts lie (`record_files.load_parity`)."""
        return self.folder / PARITY_FILE

    def load(self) -> list[Record]:
        """All records; none in a folder that nothing was measured into.

        Raises UsageError for a corrupt one: whoever measures must not count its case as done or as missing.
        """
        if not self.records_folder.exists():
            return []
        records, bad = load_records(self.folder)
        if bad:
            raise UsageError(f"record {bad[0].path} is unsound: {bad[0].reason}")
        return records

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
        attempts = [
            int(path.name.removesuffix(".json").rpartition(".")[2])
            for path in self.records_folder.glob(f"{case.id}.*.json")
        ]
        return max(attempts, default=0) + 1

    def add(self, record: Record) -> Path:
        """Write a record once and for all. Raises FileExistsError if that attempt is there already."""
        path = self.records_folder / f"{record.case.id}.{record.attempt}.json"
        if path.exists():
            raise FileExistsError(f"{path}: records are written once")
        write_atomically(path, record.model_dump_json() + "\n")
        return path
