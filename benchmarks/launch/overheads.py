"""What launches take here beside their windows, learnt from earlier ones; plans use it instead of an estimate.

The median of the latest few counts: one that other programs held up teaches nothing. It is kept by the cell of a
launch, and by its kind, which tells what a launch of another cell will take that was never made here.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from statistics import median
from typing import Annotated

from pydantic import Field, TypeAdapter, ValidationError

from dlscale.base.files import read_regular, write_atomically
from dlscale.base.strings import Text
from dlscale.benchmarks.records.record import Record

FILE = "launch-overheads.json"
LARGEST_BYTES = 1 << 20
MOST_NAMES = 1000  # cells and kinds of which the file keeps the times
MOST_LAUNCHES = 7  # of each
LONGEST_SECONDS = 1e6
Latest = Annotated[list[Annotated[float, Field(gt=0, lt=LONGEST_SECONDS)]], Field(min_length=1)]
SECONDS = TypeAdapter(dict[Text, Latest])


def read_overheads(system_folder: Path) -> dict[str, float]:
    """Cell or kind of launches -> median seconds of the latest ones that were no windows; empty if none was made."""
    return {name: median(seconds) for name, seconds in _read(system_folder).items()}


def _read(system_folder: Path) -> dict[str, list[float]]:
    """An estimate that is missing is no mistake of the user's, so a damaged file counts as none."""
    try:
        return SECONDS.validate_json(read_regular(system_folder / FILE, limit=LARGEST_BYTES))
    except (OSError, ValidationError):
        return {}


def learn_overhead(
    system_folder: Path, records: Sequence[Record], *, names: Iterable[str], launch_seconds: float
) -> None:
    """Keep what a launch tells under these names, those of its cell and its kind, beside what is known of others.

    `launch_seconds` is its wall time: start-up, gates, audits, windows and end.
    """
    seconds = overhead_seconds(records, launch_seconds)
    if seconds is None:
        return
    known = _read(system_folder)
    for name in names:
        earlier = known.pop(name, [])  # the latest stand at the end
        known[name] = [*earlier, seconds][-MOST_LAUNCHES:]
    latest = dict(list(known.items())[-MOST_NAMES:])
    write_atomically(system_folder / FILE, SECONDS.dump_json(latest, indent=1), durable=False)


def overhead_seconds(records: Sequence[Record], launch_seconds: float) -> float | None:
    """What was no window on the slowest rank; None if a case did not get to its end."""
    if not records or not all(record.good and record.windows for record in records):
        return None
    windows = math.fsum(float(record.columns.world.sum()) for record in records)
    return launch_seconds - windows if launch_seconds > windows else None
