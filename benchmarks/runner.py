"""Runs a plan: launch after launch, skipping what is done, one record per case and attempt."""

from __future__ import annotations

import os
import shlex
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from dlscale.benchmarks import environment, gpus, launchers, supervisor
from dlscale.benchmarks.assemble import Circumstances
from dlscale.benchmarks.expand import expand
from dlscale.benchmarks.launch import Orders
from dlscale.benchmarks.plan import Launch, Plan
from dlscale.benchmarks.record import Fingerprint, Record
from dlscale.benchmarks.sizes import shape
from dlscale.benchmarks.store import Store
from dlscale.benchmarks.study import Study
from dlscale.benchmarks.supervisor import Job
from dlscale.benchmarks.system import Installation, System, default_environment, find_installation
from dlscale.models.errors import UsageError

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

    def todo(self, records: list[Record]) -> list[Launch]:
        """The launches that are left, in order, each with those of its cases that have no good record yet."""
        done = {record.case.id for record in records if record.good}
        left = [
            replace(launch, cases=tuple(case for case in launch.cases if case.id not in done))
            for launch in self.plan.launches
        ]
        return [launch for launch in left if launch.cases]

    def command(self, launch: Launch) -> list[str]:
        """The exact command line of a launch."""
        cell = launch.cell
        return launchers.mpiexec(
            self.flavour,
            self.installation.mpiexec,
            num_ranks=cell.num_processes,
            oversubscribed=self.oversubscribed(launch),
            variables=self.variables(launch),
            program=[str(self.installation.python), *WORKER, str(self.spool(launch))],
        )

    def variables(self, launch: Launch) -> dict[str, str]:
        """What a launch sets in its ranks' environment."""
        threads = dict.fromkeys(THREAD_VARIABLES, str(launch.cell.threads_per_rank))
        cores = {
            "DLSCALE_CORES_PER_RANK": str(launch.cell.cores_per_rank),
            "DLSCALE_NUM_WORKERS": str(launch.cell.num_ranks),
        }
        return threads | cores | ALLOCATOR | QUIET | self.installation.variables

    def spool(self, launch: Launch) -> Path:
        """Where a launch's ranks write while it runs."""
        return self.store.spool_folder / launch.id

    def oversubscribed(self, launch: Launch) -> bool:
        """Whether the launch's workers and servers need more cores than there are; a server counts as one."""
        return not self.plan.fits(launch.cell)

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
            ),
        )


def prepare(
    study: Study, system: System, *, environment_name: str | None, data: str | None, results: Path
) -> Campaign:
    """Check everything that can be checked before anything starts, and expand the study. Raises UsageError."""
    name = environment_name or default_environment(system)
    installation = find_installation(system, name)
    plan = expand(study, environment=name, shape=shape(study, system), data=data, policy=system.policy)
    pairs = sorted({(launch.cell.backend, launch.cell.framework) for launch in plan.launches})
    found = environment.probe(installation, pairs)
    flavour = environment.check_mpi(installation, found)
    environment.check_frameworks(installation, found, study.frameworks)
    found = gpus.checked(installation, found, plan)
    unusable = {pair: found.problems["/".join(pair)] for pair in pairs if "/".join(pair) in found.problems}
    if len(unusable) == len(pairs):
        raise UsageError(next(iter(unusable.values())))
    if study.every_backend:
        plan, unusable = _without(plan, unusable), {}
    fingerprint = found.fingerprint(environment.commit())
    digest = environment.combine(plan.digest, fingerprint.digest)
    return Campaign(
        system=system,
        installation=installation,
        flavour=flavour,
        fingerprint=fingerprint,
        plan=plan,
        unusable=unusable,
        store=Store(results / system.name / f"{study.name}-{digest}"),
    )


def _without(plan: Plan, unusable: dict[tuple[str, str], str]) -> Plan:
    """The plan without what cannot be used here, and a warning for each backend and framework that is left out."""
    left = [
        launch for launch in plan.launches if (launch.cell.backend, launch.cell.framework) not in unusable
    ]
    warnings = [f"{' in '.join(pair)} is left out: {reason}" for pair, reason in unusable.items()]
    return replace(plan, launches=tuple(left), warnings=(*plan.warnings, *warnings))


@contextmanager
def opened(campaign: Campaign) -> Iterator[list[Launch]]:
    """The campaign's folder is ours alone, what a killed dlscale left there is recorded; gives what is to run.

    Raises UsageError if the folder cannot be used, another dlscale holds it, or it has corrupt records.
    """
    store = campaign.store
    store.open(describe(campaign))
    with store.lock():
        supervisor.collect_leftovers(store)
        yield campaign.todo(store.load())


def describe(campaign: Campaign) -> dict[str, object]:
    """The study as study.json keeps it: what was asked, and what it became."""
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
