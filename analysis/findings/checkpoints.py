"""The cost of checkpoints: to save trainings, to resume them, and steps trained twice; over all attempts."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd

from dlscale.analysis.finding import COUNT, PLACE, Column, Finding, frame_of
from dlscale.analysis.load import Study
from dlscale.analysis.statistics import NONE, median_interval
from dlscale.analysis.text import digits
from dlscale.benchmarks.records.record import Record


def checkpoints(study: Study) -> pd.DataFrame:
    """One row per training that saved a state or resumed from one."""
    rows = []
    trained = study.attempts[study.attempts["control"] == "train"]
    for cell, own in trained.groupby("cell", sort=False):
        records = [study.records[number] for number in own["number"]]
        if any(record.checkpoints or record.resumed for record in records):
            rows.append({"cell": cell, **_costs(records), "num_lost_steps": _num_lost(study, own)})
    return frame_of(rows, "cell", *COLUMNS)


def _costs(records: list[Record]) -> dict[str, Any]:
    saved = [record for record in records if record.checkpoints]
    every = [checkpoint for record in saved for checkpoint in record.checkpoints]
    each = [np.median([one.seconds for one in record.checkpoints]) for record in saved]
    saving = sum(one.seconds for one in every)
    stepping = float(sum(record.windows.world.sum() for record in saved))
    seconds = median_interval(each) if saved else NONE
    reads = [record.resumed.seconds for record in records if record.resumed]
    num_bytes = max((one.num_bytes for one in every), default=np.nan)
    return {
        "num_launches": sum(bool(record.checkpoints or record.resumed) for record in records),
        "num_checkpoints": len(every),
        "num_bytes": num_bytes,
        **seconds.columns("seconds"),
        "bytes_per_second": num_bytes / seconds.center,
        "share": saving / (saving + stepping) if saved else np.nan,
        "num_restarts": len(reads),
        "read_seconds": np.median(reads) if reads else np.nan,
    }


def _num_lost(study: Study, attempts: pd.DataFrame) -> int:
    """Steps that a case's next attempt repeated. Only windows that all ranks reported count."""
    lost = 0
    for _, own in attempts.sort_values("attempt").groupby(["study", "case"]):
        for first, following in pairwise(study.records[number] for number in own["number"]):
            end = first_step(first) + int(first.windows.num_steps.sum())
            lost += max(0, end - first_step(following))
    return lost


def first_step(record: Record) -> int:
    """The step of the state that a launch began with: 0, or that of a checkpoint."""
    return record.resumed.step if record.resumed else 0


COLUMNS = {
    "num_checkpoints": Column("states that were saved", "saved", write=COUNT),
    "num_bytes": Column("of one state, the largest", "size", "MB", factor=1e-6),
    "seconds": Column("from stopping all ranks to the disk, median launch", "time each", "s"),
    "bytes_per_second": Column("size over time", "rate", "MB/s", factor=1e-6),
    "share": Column("of the time in steps and in saving", "share", "%", factor=100, write=digits(2)),
    "num_restarts": Column("launches that resumed from a state", "restarts", write=COUNT),
    "read_seconds": Column("reading and broadcasting the state, median restart", "read", "s"),
    "num_lost_steps": Column("steps after the last saved state, trained again", "lost steps", write=COUNT),
    "num_launches": Column("launches that saved a state or resumed", "launches", write=COUNT),
}
FINDING = Finding(name="checkpoints", title="Checkpoints", compute=checkpoints, columns={**PLACE, **COLUMNS})
