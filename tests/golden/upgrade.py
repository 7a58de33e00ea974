"""Makes records of earlier studies those of today: fields that are no longer there go, and cells get today's names.

    python tests/golden/upgrade.py STUDY_FOLDER ...

For the records that tests and results/reference keep. Users run a study again: nothing was released.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from dlscale.benchmarks.records.cell import Case
from dlscale.benchmarks.records.record import SCHEMA_VERSION, Fingerprint, Record
from dlscale.benchmarks.study.study import Study


def without_unknown(content: Any, validate: Callable[[Any], Any]) -> None:
    """Delete in place what the model has no field for. Raises ValidationError for any other mistake."""
    while True:
        try:
            validate(content)
        except ValidationError as error:
            places = [one["loc"] for one in error.errors() if one["type"] == "extra_forbidden"]
            if not places:
                raise
            for *table, name in places:
                place = content
                for key in table:
                    place = place[key]
                del place[name]
        else:
            return


def upgrade(study: Path) -> None:
    """Write study.json and the records anew, under the names that their cells have today."""
    plan = json.loads((study / "study.json").read_text(encoding="utf-8"))
    plan.pop("measured_files", None)
    without_unknown(plan["study"], Study.model_validate)
    if "fingerprint" in plan:
        without_unknown(plan["fingerprint"], Fingerprint.model_validate)
    for case in (case for launch in plan["launches"] for case in launch):
        without_unknown(case, Case.model_validate)
    for path in sorted((study / "records").glob("*.json")):
        record = json.loads(path.read_text(encoding="utf-8")) | {"schema_version": SCHEMA_VERSION}
        without_unknown(record, Record.model_validate)
        case = Case.model_validate(record["case"])
        path.unlink()
        path.with_name(f"{case.id}.{record['attempt']}.json").write_text(
            json.dumps(record, separators=(",", ":")) + "\n", encoding="utf-8"
        )
    (study / "study.json").write_text(json.dumps(plan, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    for folder in sys.argv[1:]:
        upgrade(Path(folder))
