"""study.json: a study as it was resolved, with its system and environment, in the folder of its results."""

from __future__ import annotations

from pathlib import Path

from pydantic import ConfigDict

from dlscale.base.definitions import Frozen, read_json
from dlscale.base.strings import Text
from dlscale.benchmarks.records.record import Fingerprint
from dlscale.benchmarks.study.study import Study
from dlscale.benchmarks.systems.system import System

STUDY_FILE = "study.json"


class StudyFile(Frozen):
    """What resuming a study needs; the campaign writes it, and `Store.planned` reads its cases."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    study: Study
    system: System
    environment: Text
    plan_digest: Text = ""
    fingerprint: Fingerprint
    data: Text | None = None  # as --data gave it
    account: Text | None = None
    walltime: float | None = None  # seconds per job, as --walltime gave it


def read_study_file(folder: Path) -> StudyFile:
    """The study in a folder. Raises UsageError if its file is missing or invalid."""
    return read_json(
        StudyFile,
        folder / STUDY_FILE,
        remedy="give the folder of a study, or run it again to write a new one",
    )
