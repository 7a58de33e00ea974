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
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any, Literal

from pydantic import NonNegativeInt, PositiveFloat, PositiveInt

from dlscale.base.definitions import Frozen, read_json
from dlscale.base.errors import UsageError
from dlscale.base.files import APPENDED, locked, make_folder, open_regular, read_regular, write_atomically
from dlscale.base.parsing import parse_json_object
from dlscale.base.quantities import format_seconds
from dlscale.benchmarks.records.cell import Case
from dlscale.benchmarks.study.plan import Launch, Plan
from dlscale.benchmarks.systems.system import Policy
from dlscale.collectives import capabilities

START_SECONDS = 60.0  # before the first launch of a job: modules, staging, probing the nodes
WARN_SECONDS = 120  # before the end of its wall time a job gets SIGTERM


class Job(Frozen):
    """One job: its launches in order, the canary's at both ends; job-000.json."""

    schema_version: Literal[1] = 1
    index: NonNegativeInt
    launches: tuple[Launch, ...]
    num_nodes: (
        PositiveInt  # as its largest launch needs, or the partition gives; smaller ones use the first nodes
    )
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
    plan: Plan,
    launches: Sequence[Launch],
    policy: Policy,
    *,
    limit: float | None,
    min_nodes: int = 1,
    first_index: int = 0,
) -> tuple[tuple[Job, ...], tuple[str, ...]]:
    """The jobs that run `launches` of `plan`, and warnings. `limit`: most seconds of a job; None: any.
    `min_nodes`: fewest nodes of a job, as the partition demands or bills.

    A training with checkpoints may take more than one job: this cuts the first, `resume` the next.

    A tier's blocks stay whole where that is possible, so that compared cases run in one job. Raises UsageError if a
    single launch with its canaries does not fit into a job.
    """
    jobs: list[Job] = []
    warnings: list[str] = []
    for _, of_tier in groupby(launches, key=lambda launch: launch.cases[0].block // plan.num_launches):
        blocks = [tuple(block) for _, block in groupby(of_tier, key=lambda launch: launch.cases[0].block)]
        sizes = max((launch.cell for block in blocks for launch in block), key=lambda cell: cell.num_nodes)
        units: list[tuple[Launch, ...]] = blocks
        longest = max(_seconds(plan, block, policy) for block in blocks)
        if limit is not None and longest > limit:
            units = [(launch,) for block in blocks for launch in block]
            warnings.append(
                f"a block on up to {sizes.num_nodes} nodes needs {format_seconds(longest)}, more than the "
                f"{format_seconds(limit)} of a job: its cases run in several jobs, and across jobs nothing is paired"
            )
        for members in _filled(plan, units, policy, limit):
            index = first_index + len(jobs)
            seconds = _seconds(plan, members, policy)
            if limit is not None and seconds > limit:
                warnings.append(
                    f"{members[0].id} needs {format_seconds(seconds)}, more than the {format_seconds(limit)} of a job: "
                    f"about {math.ceil(seconds / limit)} jobs, each from the last checkpoint on; "
                    "`dlscale resume` submits the next when one has ended"
                )
            jobs.append(
                Job(
                    index=index,
                    launches=_with_canaries(plan, members, index),
                    num_nodes=max(min_nodes, *(launch.cell.num_nodes for launch in members)),
                    seconds=seconds if limit is None else min(seconds, limit),
                    budget_per_case=plan.budget_per_case,
                )
            )
    return tuple(jobs), tuple(warnings)


def _filled(
    plan: Plan, units: Sequence[tuple[Launch, ...]], policy: Policy, limit: float | None
) -> Iterable[tuple[Launch, ...]]:
    """The units in order, as many to a job as its time allows."""
    members: list[Launch] = []
    seconds = 0.0
    for unit in units:
        needed = _seconds(plan, unit, policy)
        least = _seconds(plan, unit, policy, to_end=False)
        if limit is not None and least > limit:
            raise UsageError(
                f"a job of {format_seconds(limit)} is too short: {unit[0].id} with the canaries at both ends needs "
                f"{format_seconds(least)}; ask for a longer --walltime, or for {_shorter(plan)}"
            )
        more = policy.margin * plan.seconds(unit)
        if members and limit is not None and seconds + more > limit:
            yield tuple(members)
            members = []
        seconds = seconds + more if members else needed
        members += unit
    yield tuple(members)


def _seconds(plan: Plan, launches: Sequence[Launch], policy: Policy, *, to_end: bool = True) -> float:
    """Wall time for those launches with a canary at both ends, margin and warning included."""
    estimate = plan.seconds if to_end else plan.least_seconds
    return WARN_SECONDS + policy.margin * (
        START_SECONDS + estimate([*launches, *[_canary(plan, launches, 0)] * 2])
    )


def _shorter(plan: Plan) -> str:
    """Advice that makes a launch shorter."""
    if plan.study.target:
        return "checkpoints at shorter intervals (rules.checkpoint_every)"
    return "fewer windows (--budget)"


def _with_canaries(plan: Plan, launches: tuple[Launch, ...], index: int) -> tuple[Launch, ...]:
    return (_canary(plan, launches, 2 * index), *launches, _canary(plan, launches, 2 * index + 1))


def _canary(plan: Plan, launches: Sequence[Launch], block: int) -> Launch:
    """A training on the job's largest number of nodes, run first and last to show whether the machine changed.

    Its backend is the first of the study that exchanges gradients, so that the network is part of it. It measures
    speed alone, also where the trainings have a target.
    """
    order = [*sorted(plan.study.backends, key=lambda name: not capabilities(name).exchanges)]
    # A reference on the whole machine may use a backend that the study does not compare.
    compared = [launch for launch in launches if launch.cell.backend in order] or launches
    order += [launch.cell.backend for launch in launches]
    largest = max(
        compared,
        key=lambda launch: (launch.cell.num_nodes, launch.cell.num_ranks, -order.index(launch.cell.backend)),
    )
    cell = largest.cell.model_copy(update={"control": "canary", "target": None})
    return Launch(cases=(Case(cell=cell, block=block, position=0),), data=largest.data)


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

    @property
    def _folder(self) -> Path:
        return self.folder / FOLDER

    @property
    def plan_path(self) -> Path:
        """The file of its launches (`Job`)."""
        return self._folder / f"{self.name}.json"

    @property
    def script_path(self) -> Path:
        return self._folder / f"{self.name}.sh"

    @property
    def id_path(self) -> Path:
        """The file of the scheduler's number for it."""
        return self._folder / f"{self.name}.id"

    @property
    def events_path(self) -> Path:
        """The file of its events, JSON lines."""
        return self._folder / f"{self.name}.jsonl"

    @property
    def log_path(self) -> Path:
        return self._folder / f"{self.name}.log"

    @property
    def spool_folder(self) -> Path:
        """The folder that its launches write to while they run, apart from other jobs' leftovers."""
        return self.folder / "spool" / self.name

    def read(self) -> Job:
        """The launches of the job. Raises UsageError if the file is invalid."""
        return read_json(Job, self.plan_path, remedy="delete it, and resume the study")

    def write(self, job: Job, script: str) -> None:
        """Write the job and its script, before it is submitted."""
        make_folder(self._folder)
        write_atomically(self.plan_path, job.model_dump_json())
        write_atomically(self.script_path, script)

    @property
    def id(self) -> str | None:
        """The scheduler's number for it; None if it was never accepted.

        Raises UsageError if it may have been, or the file is damaged.
        """
        if not self.id_path.exists():
            return None
        text = read_regular(self.id_path).decode(errors="replace").strip()
        if not _JOB_ID.fullmatch(text):
            raise UsageError(f"{self.id_path} has no number of a job; {self.remedy}")
        return text

    @property
    def remedy(self) -> str:
        """What to do about a job of which it is not known whether the scheduler has it."""
        return (
            f"if the scheduler lists {self.name}, write its number into {self.id_path}, else delete that file"
        )

    def accepted(self, job_id: str) -> None:
        """Keep the scheduler's number; an empty one while the job is being submitted."""
        write_atomically(self.id_path, job_id + "\n")

    def refused(self) -> None:
        """The scheduler did not take it."""
        self.id_path.unlink()

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Held while the job measures; ends with its process. Raises UsageError if another start holds it."""
        path = self._folder / f"{self.name}.lock"
        with locked(path, held=f"{self.name} is running already; wait for it, or cancel it first"):
            yield

    def say(self, event: str, **values: Any) -> None:
        """Append an event, on a new line even after one that was cut off."""
        with os.fdopen(open_regular(self.events_path, APPENDED), "a", encoding="utf-8") as file:
            file.write("\n" + json.dumps({"event": event, "time": time.time(), **values}) + "\n")

    def events(self) -> list[dict[str, Any]]:
        """Its events in order, each with its name, without lines that were cut off."""
        events = []
        for line in read_regular(self.events_path).splitlines() if self.events_path.exists() else []:
            with suppress(ValueError):
                events.append(parse_json_object(line))
        return [event for event in events if isinstance(event.get("event"), str)]

    @property
    def has_ended(self) -> bool:
        """Whether its last event is its end."""
        events = [event["event"] for event in self.events()]
        return bool(events) and events[-1] == "end"


def all_jobs(folder: Path) -> list[JobFiles]:
    """The jobs of a study's folder, in their order."""
    return [JobFiles(folder, path.stem) for path in sorted((folder / FOLDER).glob("job-*.json"))]


def states(jobs: Sequence[JobFiles], known: Mapping[str, str]) -> dict[str, JobState]:
    """Each job's state by name. `known`: the scheduler's states by its numbers, of the jobs that it still knows."""
    by_name: dict[str, JobState] = {}
    for job in jobs:
        state = known.get(job.id or "", "unknown")
        if state == "pending":
            by_name[job.name] = "pending"
        elif state == "running":
            by_name[job.name] = "running"
        elif job.has_ended:
            by_name[job.name] = "ended"
        else:
            by_name[job.name] = "vanished" if job.id or job.events() else "never submitted"
    return by_name
