"""study.json: what was asked, and what it became on a system."""

from __future__ import annotations

from pathlib import Path

from pydantic import ConfigDict, ValidationError

from dlscale.benchmarks.record import Fingerprint, Frozen
from dlscale.benchmarks.study import Study
from dlscale.benchmarks.system import System
from dlscale.models.errors import UsageError

STUDY_FILE = "study.json"


class StudyFile(Frozen):
    """What is needed to go on with a study; `campaign.describe` writes it, and `Store.planned` reads its cases."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    study: Study
    system: System
    environment: str
    fingerprint: Fingerprint
    data: str | None = None  # as --data gave it
    account: str | None = None
    walltime: float | None = None  # seconds of a job at most, as --walltime gave it


def read_study_file(folder: Path) -> StudyFile:
    """The study of a folder. Raises UsageError if its file is missing or unsound."""
    path = folder / STUDY_FILE
    try:
        return StudyFile.model_validate_json(path.read_bytes())
    except OSError as error:
        raise UsageError(f"{path} cannot be read ({error.strerror}); name the folder of a study") from None
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(str(part) for part in first["loc"])
        raise UsageError(
            f"{path} is unsound ({place}: {first['msg']}); run the study again, which writes a new one"
        ) from None
