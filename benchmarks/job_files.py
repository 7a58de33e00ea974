"""What a study's folder keeps of its jobs.

jobs/
job-000.json     what it is to run: written before it is submitted
job-000.sh       the script that the scheduler is given
job-000.id       the scheduler's number for it; missing if it was never accepted
job-000.jsonl    what it said itself: begin and end, once per start
job-000.log      what it and the scheduler printed
"""

from __future__ import annotations

import fcntl
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pydantic import NonNegativeInt, PositiveFloat, PositiveInt, ValidationError

from dlscale.benchmarks.jobs import JobPlan
from dlscale.benchmarks.plan import Launch
from dlscale.benchmarks.record import Case, Frozen
from dlscale.models.errors import UsageError
from dlscale.models.files import make_folder, write_atomically

FOLDER = "jobs"

# `vanished`: the scheduler no longer has it, and it never said that it had ended.
JobState = Literal["never submitted", "pending", "running", "ended", "vanished"]


class JobLaunch(Frozen):
    """Cases that share a launch, and the file that they read."""

    cases: list[Case]
    data: str | None


class JobFile(Frozen):
    """What a job is to run."""

    schema_version: Literal[1] = 1
    index: NonNegativeInt
    num_nodes: PositiveInt
    seconds: PositiveFloat  # wall time that it asks for
    budget_per_case: float  # of the whole study, seconds (`Plan`)
    launches: list[JobLaunch]

    @classmethod
    def of(cls, plan: JobPlan, budget_per_case: float) -> JobFile:
        """The file of that job."""
        launches = [
            JobLaunch(cases=list(launch.cases), data=str(launch.data.absolute()) if launch.data else None)
            for launch in plan.launches
        ]
        return cls(
            index=plan.index,
            num_nodes=plan.num_nodes,
            seconds=plan.seconds,
            budget_per_case=budget_per_case,
            launches=launches,
        )

    def plan(self) -> JobPlan:
        """The job again."""
        launches = tuple(
            Launch(cases=tuple(one.cases), data=Path(one.data) if one.data else None) for one in self.launches
        )
        return JobPlan(index=self.index, launches=launches, num_nodes=self.num_nodes, seconds=self.seconds)


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
        """What it is to run."""
        return self._folder / f"{self.name}.json"

    @property
    def script_path(self) -> Path:
        """What the scheduler is given."""
        return self._folder / f"{self.name}.sh"

    @property
    def id_path(self) -> Path:
        """The scheduler's number."""
        return self._folder / f"{self.name}.id"

    @property
    def events_path(self) -> Path:
        """What the job said itself."""
        return self._folder / f"{self.name}.jsonl"

    @property
    def log_path(self) -> Path:
        """What it and the scheduler printed."""
        return self._folder / f"{self.name}.log"

    @property
    def spool_folder(self) -> Path:
        """Where its launches write while they run: no other job's leftovers lie there."""
        return self.folder / "spool" / self.name

    def read(self) -> JobFile:
        """What it is to run. Raises UsageError if the file is unsound."""
        try:
            return JobFile.model_validate_json(self.plan_path.read_bytes())
        except (OSError, ValidationError) as error:
            raise UsageError(
                f"{self.plan_path} is unsound ({type(error).__name__}); delete it, and resume the study"
            ) from None

    def write(self, file: JobFile, script: str) -> None:
        """Before it is submitted."""
        make_folder(self._folder)
        write_atomically(self.plan_path, file.model_dump_json())
        write_atomically(self.script_path, script)

    @property
    def id(self) -> str | None:
        """The scheduler's number for it; None if it was never accepted."""
        return self.id_path.read_text(encoding="utf-8").strip() if self.id_path.exists() else None

    def accepted(self, job_id: str) -> None:
        """The scheduler took it."""
        write_atomically(self.id_path, job_id + "\n")

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Only one start of a job measures at a time; UsageError if another one does. Ends with its holder."""
        with (self._folder / f"{self.name}.lock").open("w") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise UsageError(f"{self.name} is running already; wait for it, or cancel it first") from None
            yield

    def say(self, event: str, **values: Any) -> None:
        """Append an event. It begins a line of its own even after one that was cut off."""
        with self.events_path.open("a", encoding="utf-8") as file:
            file.write("\n" + json.dumps({"event": event, "time": time.time(), **values}) + "\n")

    def events(self) -> list[dict[str, Any]]:
        """What it said, in order; a line that was cut off by its end is left out."""
        found = []
        for line in (
            self.events_path.read_text(encoding="utf-8").splitlines() if self.events_path.exists() else []
        ):
            with suppress(ValueError):
                found.append(json.loads(line))
        return found

    @property
    def has_ended(self) -> bool:
        """Whether it said so after its latest beginning."""
        events = [event["event"] for event in self.events()]
        return bool(events) and events[-1] == "end"


def all_jobs(folder: Path) -> list[JobFiles]:
    """The jobs of a study's folder, in their order."""
    return [JobFiles(folder, path.stem) for path in sorted((folder / FOLDER).glob("job-*.json"))]


def states(jobs: Sequence[JobFiles], scheduler_says: Mapping[str, str]) -> dict[str, JobState]:
    """Each job's state by name. `scheduler_says`: the states of those that it still knows, by its numbers."""
    found: dict[str, JobState] = {}
    for job in jobs:
        said = scheduler_says.get(job.id or "", "unknown")
        if said == "pending":
            found[job.name] = "pending"
        elif said == "running":
            found[job.name] = "running"
        elif job.has_ended:
            found[job.name] = "ended"
        else:
            found[job.name] = "vanished" if job.id or job.events() else "never submitted"
    return found
