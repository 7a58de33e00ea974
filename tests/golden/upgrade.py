"""Makes records of the schema before this one those of today's: windows become columns.

    python tests/golden/upgrade.py STUDY_FOLDER ...

For the records that tests and results/reference keep. Users run a study again: nothing was released.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from itertools import chain
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


def as_columns(windows: list[dict[str, Any]], num_ranks: int) -> dict[str, Any]:
    """Windows that were tables, one after the other, as columns of numbers."""
    steady = [window for window in windows if window["phase"] == "steady"]
    num_warm_up = len(windows) - len(steady)
    assert windows[num_warm_up:] == steady

    def of_ranks(name: str, rows: list[dict[str, Any]]) -> list[list[Any]]:
        return [[row[name][rank] for row in rows] for rank in range(num_ranks)]

    def known(name: str, rows: list[dict[str, Any]]) -> bool:
        return any(row.get(name) is not None for row in rows)

    columns: dict[str, Any] = {
        "num_warm_up": num_warm_up,
        "num_steps": [window["num_steps"] for window in windows],
        "start_seconds": of_ranks("start_seconds", windows),
        "seconds": of_ranks("seconds", windows),
    }
    for name in ("num_applied", "num_samples", "foreign_cpu"):
        if known(name, windows):
            columns[name] = [window.get(name) for window in windows]
    if known("rank_steps", windows):
        columns["rank_steps"] = of_ranks(
            "rank_steps",
            [{"rank_steps": one.get("rank_steps") or [one["num_steps"]] * num_ranks} for one in windows],
        )
    if known("step_seconds", steady):
        columns["step_seconds"] = [[*chain(*own)] for own in of_ranks("step_seconds", steady)]
    if known("bucket_seconds", steady):
        columns["bucket_seconds"] = [
            [list(bucket) for bucket in zip(*own, strict=True)] for own in of_ranks("bucket_seconds", steady)
        ]
    return columns


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
        if isinstance(record["windows"], list):
            record["windows"] = as_columns(record["windows"], record["case"]["cell"]["num_ranks"])
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
