"""A plan tied to an environment of a machine and to a folder: everything that a launch needs to be started."""

from __future__ import annotations

import os
import shlex
import sys
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from dlscale.benchmarks import environment, launchers, supervisor
from dlscale.benchmarks.assemble import Circumstances
from dlscale.benchmarks.launch import Orders
from dlscale.benchmarks.plan import Launch, Plan
from dlscale.benchmarks.provenance.batch_job import batch_job
from dlscale.benchmarks.provenance.configuration import configuration
from dlscale.benchmarks.record import Fingerprint
from dlscale.benchmarks.sizes import chosen_partition
from dlscale.benchmarks.store import Store
from dlscale.benchmarks.summary import Summary
from dlscale.benchmarks.supervisor import Job
from dlscale.benchmarks.system import Installation, System

WORKER = ("-m", "dlscale.benchmarks.worker")
# glibc gives large blocks back to the system and takes them again in every step: docs/decisions/0006.
ALLOCATOR = {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": "-1"}
QUIET = {"TF_CPP_MIN_LOG_LEVEL": "2"}  # errors only: the rest would bury the log of a failed rank
THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")


@dataclass(frozen=True, slots=True, kw_only=True)
class Campaign:
    """A plan tied to an environment of this machine and to a folder."""

    system: System
    installation: Installation
    flavour: launchers.Flavour
    fingerprint: Fingerprint
    plan: Plan
    unusable: dict[tuple[str, str], str]  # (backend, framework) -> why it cannot be used here
    store: Store
    spool_folder: Path
    nodes: tuple[str, ...] = ()  # of the job that this runs in; none: this machine alone

    def todo(self, attempts: Iterable[Summary], *, max_attempts: int | None = None) -> list[Launch]:
        """The launches that are left, in order, each with those of its cases that have no good record yet.

        Cases that failed `max_attempts` times are left out; attempts that were interrupted are no failures of theirs.
        """
        attempts = list(attempts)
        done = {one.case for one in attempts if one.good}
        failures = Counter(one.case for one in attempts if one.failure_kind not in (None, "interrupted"))
        finished = done | {case for case, count in failures.items() if max_attempts and count >= max_attempts}
        left = [
            replace(launch, cases=tuple(case for case in launch.cases if case.id not in finished))
            for launch in self.plan.launches
        ]
        return [launch for launch in left if launch.cases]

    def command(self, launch: Launch) -> list[str]:
        """The exact command line of a launch; of one in a job that has not started without the nodes' names."""
        cell = launch.cell
        program = [str(self.installation.python), *WORKER, str(self.spool(launch))]
        variables = self.variables(launch)
        if self.system.scheduler == "none":
            return launchers.mpiexec(
                self.flavour,
                self.installation.mpiexec,
                num_ranks=cell.num_processes,
                oversubscribed=self.oversubscribed(launch),
                variables=variables,
                program=program,
            )
        start = launchers.start_on(
            self.system,
            chosen_partition(self.plan.study, self.system),
            nodes=self.nodes[: cell.num_nodes],
            num_ranks=cell.num_processes,
            variables=variables,
            program=program,
            ranks_per_node=self._ranks_per_node(launch),
        )
        return launchers.command_line(
            self.system.launcher,
            start if self.nodes else replace(start, unnamed_nodes=cell.num_nodes),
            mpiexec_path=self.installation.mpiexec,
            flavour=self.flavour,
        )

    def variables(self, launch: Launch) -> dict[str, str]:
        """What a launch sets in its ranks' environment.

        The system's file and its environment have the last word, but for the threads, which the cell has: a published
        number holds for its own placement (`Shape.threads_per_rank`).
        """
        threads = dict.fromkeys(THREAD_VARIABLES, str(launch.cell.threads_per_rank))
        cores = {
            "DLSCALE_CORES_PER_RANK": str(launch.cell.cores_per_rank),
            "DLSCALE_NUM_WORKERS": str(launch.cell.num_ranks),
        }
        if self.plan.shape.ranks_per_node:
            own = launchers.cpus_per_rank(self.system, self._ranks_per_node(launch))
            cores["DLSCALE_CPUS_PER_RANK"] = str(own)
        placed = self.system.placement.variables if self.system.placement else {}
        fixed = {name: value for name, value in placed.items() if name not in THREAD_VARIABLES}
        return threads | cores | ALLOCATOR | QUIET | fixed | self.installation.variables

    def _ranks_per_node(self, launch: Launch) -> int:
        """How many share a node's hardware threads; a reference run has them all."""
        return 1 if launch.cell.control == "whole_machine" else self.plan.shape.ranks_per_node or 1

    def spool(self, launch: Launch) -> Path:
        """Where a launch's ranks write while it runs."""
        return self.spool_folder / launch.id

    def oversubscribed(self, launch: Launch) -> bool:
        """Whether the launch's workers and servers need more cores than there are; a server counts as one."""
        return not self.plan.fits(launch.cell)

    def _checkpoints(self) -> str | None:
        """The folder of the trainings' states, where the study has trainings longer than their windows."""
        return (
            str((self.store.folder / "checkpoints").absolute()) if self.plan.study.rules.is_course else None
        )

    def why_not(self, launch: Launch) -> str | None:
        """Why a launch cannot be started here; None if it can."""
        return self.unusable.get((launch.cell.backend, launch.cell.framework))

    def job(self, launch: Launch) -> Job:
        """A launch, ready to be started now."""
        command = self.command(launch)
        variables = self.variables(launch)
        return Job(
            orders=Orders(
                cases=list(launch.cases),
                rules=self.plan.study.rules,
                launched_at=time.time(),
                seconds=self.plan.seconds([launch]),
                data=str(launch.data.absolute()) if launch.data else None,
                checkpoints=self._checkpoints(),
                skip_bad=self.plan.study.skip_bad,
                patient=self.oversubscribed(launch),
                seed=self.plan.study.seed,
            ),
            command=command,
            spool=self.spool(launch),
            circumstances=Circumstances(
                study=self.store.folder.name,
                system=self.system.name,
                fingerprint=self.fingerprint,
                started_at=supervisor.now(),
                order_seed=self.plan.study.seed,
                command=environment.redact(shlex.join(command)),
                oversubscribed=self.oversubscribed(launch),
                environment_variables=environment.recorded_variables(os.environ | variables),
                configuration=configuration(self.plan.study, self.system),
                allocation=batch_job(os.environ),
            ),
        )


def describe(campaign: Campaign) -> dict[str, object]:
    """The study as study.json keeps it (`StudyFile`): what was asked, and what it became."""
    return {
        "schema": 1,
        "study": campaign.plan.study.model_dump(mode="json"),
        "system": campaign.system.model_dump(mode="json"),
        "environment": campaign.installation.name,
        "fingerprint": campaign.fingerprint.model_dump(mode="json"),
        "num_cores": campaign.plan.num_cores,
        "launches": [
            [case.model_dump(mode="json") for case in launch.cases] for launch in campaign.plan.launches
        ],
        "command": environment.redact(shlex.join(["dlscale", *sys.argv[1:]])),
    }
