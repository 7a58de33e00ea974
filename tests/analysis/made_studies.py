"""The folder of a study with made-up records, as `dlscale run` leaves it."""

import json
from collections.abc import Iterable
from pathlib import Path

from dlscale.benchmarks.records.record import Record


def write_study(folder: Path, records: Iterable[Record], *, planned: bool = False, **content: object) -> Path:
    """Write them below `folder`, and study.json with this content and, if `planned`, with their cases."""
    records = list(records)
    (folder / "records").mkdir(parents=True)
    if planned:
        content["launches"] = [[record.case.model_dump(mode="json")] for record in records]
    (folder / "study.json").write_text(json.dumps(content))
    for record in records:
        path = folder / "records" / f"{record.case.id}.{record.attempt}.json"
        path.write_text(record.model_dump_json())
    return folder
