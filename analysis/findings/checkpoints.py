"""The cost of checkpoints: to save trainings, to resume them, and steps trained twice; in its own table."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from dlscale.analysis.declare import Column, TableOf, Tags, shown_number
from dlscale.analysis.finding import Finding
from dlscale.analysis.records import attributes
from dlscale.analysis.statistics import Interval, median_interval
from dlscale.analysis.text import interval_columns, workload_title
from dlscale.benchmarks.records.record import Record


@dataclass(frozen=True, slots=True, kw_only=True)
class Saving:
    """The checkpoints of a workload, framework, backend and number of ranks, over all launches; times in seconds."""

    workload: str
    framework: str
    backend: str
    num_ranks: int
    num_launches: int  # that saved a state or resumed from one
    num_checkpoints: int
    num_bytes: int | None  # of one state, the largest; None without any
    seconds: Interval | None  # of one
    share: float | None  # of the time in steps and in saving
    num_restarts: int
    read_seconds: float | None
    num_lost_steps: int


def to_saving_row(saving: Saving) -> dict[str, Any]:
    """The row of a training's checkpoints and restarts; `share` is of the time in steps and in saving."""
    return {
        **attributes(saving, "workload framework backend num_ranks num_launches num_checkpoints num_bytes"),
        **interval_columns("seconds", saving.seconds),
        **attributes(saving, "share num_restarts read_seconds num_lost_steps"),
    }


def savings(records: Iterable[Record]) -> list[Saving]:
    """One per workload, framework, backend and ranks that saved a state or resumed from one."""
    groups: dict[tuple[str, str, str, int], list[Record]] = {}
    for record in records:
        cell = record.case.cell
        if cell.control == "train":
            key = (cell.workload, cell.framework, cell.backend, cell.num_ranks)
            groups.setdefault(key, []).append(record)
    return [
        _saving(key, members)
        for key, members in sorted(groups.items())
        if any(record.checkpoints or record.resumed for record in members)
    ]


def _saving(key: tuple[str, str, str, int], records: Sequence[Record]) -> Saving:
    workload, framework, backend, num_ranks = key
    saved = [record for record in records if record.checkpoints]
    each = [float(np.median([checkpoint.seconds for checkpoint in record.checkpoints])) for record in saved]
    saving = sum(checkpoint.seconds for record in saved for checkpoint in record.checkpoints)
    stepping = float(sum(record.columns.world.sum() for record in saved))
    restarts = [record.resumed for record in records if record.resumed]
    return Saving(
        workload=workload,
        framework=framework,
        backend=backend,
        num_ranks=num_ranks,
        num_launches=sum(bool(record.checkpoints or record.resumed) for record in records),
        num_checkpoints=sum(len(record.checkpoints) for record in saved),
        num_bytes=max(
            (checkpoint.num_bytes for record in saved for checkpoint in record.checkpoints), default=None
        ),
        seconds=median_interval(each) if each else None,
        share=saving / (saving + stepping) if saved else None,
        num_restarts=len(restarts),
        read_seconds=float(np.median([restart.seconds for restart in restarts])) if restarts else None,
        num_lost_steps=_num_lost(records),
    )


def _num_lost(records: Sequence[Record]) -> int:
    """Steps that a case's next attempt repeated. Only windows that all ranks reported count."""
    cases: dict[tuple[str, str], list[Record]] = {}
    for record in records:
        cases.setdefault((record.study, record.case.id), []).append(record)
    lost = 0
    for attempts in cases.values():
        for attempt, following in pairwise(sorted(attempts, key=lambda record: record.attempt)):
            end = _begin(attempt) + int(attempt.columns.num_steps.sum())
            lost += max(0, end - _begin(following))
    return lost


def _begin(record: Record) -> int:
    return record.resumed.step if record.resumed else 0


def _rate(saving: Saving) -> float | None:
    if saving.seconds is None or not saving.num_bytes:
        return None
    return saving.num_bytes / 1e6 / saving.seconds.center


LEGEND = (
    "Saved: states, over all launches. Time each: while all ranks stand still, from copying to the disk; the median "
    "over launches of each one's median, and its interval from 6 launches on. Share: of the time in steps and in "
    "saving. Read: of the state, median over restarts; what a restart costs before it is in the table of starts. Lost "
    "steps were taken after the last saved state of a launch that was ended, and taken again."
)
CHECKPOINTS = TableOf[Saving](
    name="checkpoints",
    caption="What saving the trainings cost",
    columns=(
        Column("workload", lambda saving: workload_title(saving.workload), numeric=False),
        Column("framework", lambda saving: saving.framework, numeric=False),
        Column("backend", lambda saving: saving.backend, numeric=False),
        Column("ranks", lambda saving: saving.num_ranks),
        Column("saved", lambda saving: saving.num_checkpoints),
        Column("size", lambda saving: saving.num_bytes and saving.num_bytes / 1e6, unit="MB"),
        Column("time each", lambda saving: saving.seconds, unit="s"),
        Column("rate", _rate, unit="MB/s"),
        Column(
            "share",
            lambda saving: shown_number(saving.share and 100 * saving.share, "{:.2f}".format),
            unit="%",
        ),
        Column("restarts", lambda saving: saving.num_restarts),
        Column("read", lambda saving: saving.read_seconds, unit="s"),
        Column("lost steps", lambda saving: saving.num_lost_steps),
        Column("launches", lambda saving: saving.num_launches),
    ),
    data=to_saving_row,
    legend=LEGEND,
    tags=lambda saving: Tags(workload=saving.workload, framework=saving.framework, backend=saving.backend),
)

FINDINGS = (
    Finding(
        name="checkpoints",
        title="Checkpoints",
        compute=lambda study: savings(study.records),
        table=CHECKPOINTS,
    ),
)
