"""How long launches take to start on this machine, learnt from earlier ones; plans use it instead of an estimate."""

from __future__ import annotations

import math
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

from pydantic import Field, TypeAdapter, ValidationError

from dlscale.base.files import write_atomically
from dlscale.benchmarks.records.record import Record

FILE = "start-times.json"
MOST_CELLS = 1000  # of which the file keeps the time
LONGEST_SECONDS = 1e6
SECONDS = TypeAdapter(dict[str, Annotated[float, Field(gt=0, lt=LONGEST_SECONDS)]])


def read_start_times(system_folder: Path) -> dict[str, float]:
    """Cell -> seconds from the start of its latest launch to the first window; empty if nothing was learnt.

    An estimate that is missing is no mistake of the user's, so a damaged file counts as none.
    """
    try:
        return SECONDS.validate_json((system_folder / FILE).read_bytes())
    except (OSError, ValidationError):
        return {}


def learn_start_times(system_folder: Path, records: Iterable[Record]) -> None:
    """Keep what those records tell of their cells, and what was known of others."""
    known = read_start_times(system_folder)
    for record in records:
        if seconds := start_seconds(record):
            known.pop(record.case.cell.id, None)  # the latest stand at the end
            known[record.case.cell.id] = seconds
    latest = dict(list(known.items())[-MOST_CELLS:])
    write_atomically(system_folder / FILE, SECONDS.dump_json(latest, indent=1), durable=False)


def start_seconds(record: Record) -> float | None:
    """From the start of mpiexec to the first window on the slowest rank; None if a rank did not get there."""
    phases = record.phases
    ranks = list(zip(phases.start_up, phases.import_backend, phases.connect, phases.gates, strict=True))
    if not ranks or any(seconds is None for rank in ranks for seconds in rank):
        return None
    return max(math.fsum(seconds or 0.0 for seconds in rank) for rank in ranks)
