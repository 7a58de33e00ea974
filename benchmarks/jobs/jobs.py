"""Cutting a study's launches into jobs, what the jobs cost, and their files in the study's folder.

jobs/
job-000.json     its launches: written before it is submitted
job-000.sh       its batch script
job-000.id       the scheduler's number for it; missing if it was never accepted
job-000.jsonl    its events: begin and end, once per start
job-000.log      its output, and the scheduler's
"""

from __future__ import annotations

import json
import math
import os
import re
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any, Literal

from pydantic import NonNegativeInt, PositiveFloat, PositiveInt

from dlscale.base.definitions import Frozen, parse_tables, read_json
from dlscale.base.errors import UsageError
from dlscale.base.files import APPENDED, open_regular, read_regular, write_atomically
from dlscale.base.quantities import format_seconds
from dlscale.benchmarks.study.plan import Launch, Plan, chosen_partition
from dlscale.benchmarks.systems.system import System

START_SECONDS = 60.0  # before the first launch of a job: modules, staging, probing the nodes
WARN_SECONDS = 120  # before the end of its wall time a job gets SIGTERM
MARGIN = 1.25  # wall time over its estimate
Launches = tuple[Launch, ...]


class Job(Frozen):
    """One job: its launches in order; job-000.json."""

    schema_version: Literal[1] = 1
    index: NonNegativeInt
    launches: Launches
    # As its largest launch needs, or the partition gives; smaller ones use the first nodes.
    num_nodes: PositiveInt
    seconds: PositiveFloat  # wall time that it asks for
    budget_per_case: float  # seconds, by the whole study (`Plan`)

    @property
    def name(self) -> str:
        """Unique within a study, and safe as a file name."""
        return f"job-{self.index:03d}"

    @property
    def billed_node_hours(self) -> float:
        """All nodes for the whole wall time: the most that a centre charges."""
        return self.num_nodes * self.seconds / 3600


def cut(
    plan: Plan, launches: Sequence[Launch], system: System, *, limit: float | None, first_index: int = 0
) -> tuple[tuple[Job, ...], tuple[str, ...]]:
    """The jobs that run `launches` of `plan`, of at most `limit` seconds, or what the partition allows; and warnings.

    A tier's blocks stay whole where that is possible, so that compared cases run in one job. A training with
    checkpoints may take more than one job: this cuts the first, `resume` the next. Raises UsageError if a single launch
    does not fit into a job.
    """
    partition = chosen_partition(plan.study, system)
    fewest = partition.min_nodes.value if partition.min_nodes else 1

    def seconds_of(members: Launches, *, to_end: bool = True) -> float:
        """Wall time for those launches, margin and warning included."""
        return WARN_SECONDS + MARGIN * (START_SECONDS + plan.seconds(members, to_end=to_end))

    parts: list[Launches] = []
    warnings: list[str] = []
    if limit is None and partition.max_walltime is None:
        warnings.append("the partition's wall-time limit is unknown; set one with --walltime")
    if (most := max((launch.cell.num_nodes for launch in launches), default=fewest)) < fewest:
        warnings.append(f"jobs need at most {most} nodes, and the partition bills at least {fewest}")
    limit = limit or (partition.max_walltime.number if partition.max_walltime else math.inf)
    for _, tier in groupby(launches, key=lambda launch: launch.cases[0].block // plan.num_launches):
        units = [tuple(block) for _, block in groupby(tier, key=lambda launch: launch.cases[0].block)]
        if (longest := max(map(seconds_of, units))) > limit:
            units = [(launch,) for block in units for launch in block]
            warnings.append(
                f"a block needs {format_seconds(longest)}, more than the {format_seconds(limit)} "
                "of a job: its cases run in several jobs, and across jobs nothing is paired"
            )
        members: Launches = ()
        for unit in units:
            if members and seconds_of((*members, *unit)) > limit:
                parts.append(members)
                members = ()
            members += unit
        parts.append(members)
    jobs = []
    for index, members in enumerate(parts, first_index):
        least, seconds = seconds_of(members, to_end=False), seconds_of(members)
        if least > limit:
            shorter = "checkpoints at shorter intervals (rules.checkpoint_every)"
            raise UsageError(
                f"a job of {format_seconds(limit)} is too short: {members[0].id} needs {format_seconds(least)}; ask "
                f"for a longer --walltime, or for {shorter if plan.study.target else 'fewer windows (--budget)'}"
            )
        if seconds > limit:
            warnings.append(
                f"{members[0].id} needs {format_seconds(seconds)}, more than the {format_seconds(limit)} of a job: "
                f"about {math.ceil(seconds / limit)} jobs, each from the last checkpoint on; "
                "`dlscale resume` submits the next when one has ended"
            )
        jobs.append(
            Job(
                index=index,
                launches=members,
                num_nodes=max(fewest, *(launch.cell.num_nodes for launch in members)),
                seconds=min(seconds, limit),
                budget_per_case=plan.budget_per_case,
            )
        )
    return tuple(jobs), tuple(warnings)


FOLDER = "jobs"

# `vanished`: the scheduler no longer knows it, and it wrote no end event.
JobState = Literal["never submitted", "pending", "running", "ended", "vanished"]

# A word of a command line, and no option: 123, 123.server, 123[], fM7Zq9AKHno.
_JOB_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._\[\]-]{0,200}")


@dataclass(frozen=True, slots=True)
class JobFiles:
    """One job's files in a study's folder."""

    folder: Path  # of the study
    name: str

    def path(self, ending: str) -> Path:
        """Its file with that ending: json, sh, id, jsonl, log or lock."""
        return self.folder / FOLDER / f"{self.name}.{ending}"

    def read(self) -> Job:
        """The launches of the job. Raises UsageError if the file is invalid."""
        return read_json(Job, self.path("json"), remedy="delete it, and resume the study")

    @property
    def id(self) -> str | None:
        """The scheduler's number for it; None if it was never accepted.

        Raises UsageError if it may have been, or the file is damaged.
        """
        path = self.path("id")
        if not path.exists():
            return None
        text = read_regular(path).decode(errors="replace").strip()
        if not _JOB_ID.fullmatch(text):
            raise UsageError(f"{path} has no number of a job; {self.remedy}")
        return text

    @property
    def remedy(self) -> str:
        """What to do about a job of which it is not known whether the scheduler has it."""
        path = self.path("id")
        return f"if the scheduler lists {self.name}, write its number into {path}, else delete that file"

    def accepted(self, job_id: str) -> None:
        """Keep the scheduler's number; an empty one while the job is being submitted."""
        write_atomically(self.path("id"), job_id + "\n")

    def log(self, event: str, **values: Any) -> None:
        """Append an event, on a new line even after one that was cut off."""
        with os.fdopen(open_regular(self.path("jsonl"), APPENDED), "a", encoding="utf-8") as file:
            file.write("\n" + json.dumps({"event": event, "time": time.time(), **values}) + "\n")

    def last_event(self) -> dict[str, Any]:
        """Its last event, empty without any; lines that were cut off are left out."""
        last: dict[str, Any] = {}
        path = self.path("jsonl")
        for line in read_regular(path).splitlines() if path.exists() else []:
            with suppress(ValueError):
                event = parse_tables(line, json.loads)
                last = event if isinstance(event.get("event"), str) else last
        return last

    @property
    def end_reason(self) -> str | None:
        """Why it ended, as it logged it; None where its last event is not its end."""
        last = self.last_event()
        return str(last.get("reason", "")) if last.get("event") == "end" else None


def all_jobs(folder: Path) -> list[JobFiles]:
    """The jobs of a study's folder, in their order."""
    return [JobFiles(folder, path.stem) for path in sorted((folder / FOLDER).glob("job-*.json"))]
