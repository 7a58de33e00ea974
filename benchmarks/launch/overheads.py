"""What launches take here beside their windows, learnt from earlier ones; plans use it instead of an estimate."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from pydantic import Field, TypeAdapter, ValidationError

from dlscale.base.files import read_regular, write_atomically
from dlscale.base.strings import Text
from dlscale.benchmarks.records.record import Record

FILE = "launch-overheads.json"
MOST_CELLS = 1000  # of which the file keeps the time
LARGEST_BYTES = 1 << 20
LONGEST_SECONDS = 1e6
SECONDS = TypeAdapter(dict[Text, Annotated[float, Field(gt=0, lt=LONGEST_SECONDS)]])


def read_overheads(system_folder: Path) -> dict[str, float]:
    """Cell -> seconds of its latest launch that were no windows; empty if nothing was learnt.

    An estimate that is missing is no mistake of the user's, so a damaged file counts as none.
    """
    try:
        return SECONDS.validate_json(read_regular(system_folder / FILE, limit=LARGEST_BYTES))
    except (OSError, ValidationError):
        return {}


def learn_overhead(
    system_folder: Path, records: Sequence[Record], *, cell_id: str, launch_seconds: float
) -> None:
    """Keep what a launch of that cell tells, beside what is known of others.

    `launch_seconds` is its wall time: start-up, gates, audits, windows and end.
    """
    seconds = overhead_seconds(records, launch_seconds)
    if seconds is None:
        return
    known = read_overheads(system_folder)
    known.pop(cell_id, None)  # the latest stand at the end
    latest = dict(list((known | {cell_id: seconds}).items())[-MOST_CELLS:])
    write_atomically(system_folder / FILE, SECONDS.dump_json(latest, indent=1), durable=False)


def overhead_seconds(records: Sequence[Record], launch_seconds: float) -> float | None:
    """What was no window on the slowest rank; None if a case did not get to its end."""
    if not records or not all(record.good and record.windows for record in records):
        return None
    windows = math.fsum(float(record.columns.world.sum()) for record in records)
    return launch_seconds - windows if launch_seconds > windows else None
