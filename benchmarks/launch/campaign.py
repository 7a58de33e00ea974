"""A campaign: a plan tied to an environment of a machine and to a folder.

It knows what a launch needs to be started, which launches are left, and what records keep of the configuration.
"""

from __future__ import annotations

import hashlib
import json
import os
import shlex
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from dlscale.base import launchers, redaction
from dlscale.base.files import make_folder
from dlscale.base.launchers import Flavour
from dlscale.base.quantities import Count, Quantity, TextFact
from dlscale.base.variables import JOB, LAUNCH, passed_on
from dlscale.benchmarks.launch import own_models, signals, supervisor
from dlscale.benchmarks.launch.environment import recorded_variables
from dlscale.benchmarks.launch.supervisor import PreparedLaunch
from dlscale.benchmarks.rank.process import boot_id
from dlscale.benchmarks.rank.spec import LaunchSpec
from dlscale.benchmarks.records.nodes import batch_job
from dlscale.benchmarks.records.record import (
    GATES_VERSION,
    Configuration,
    Fingerprint,
    LaunchMetadata,
    Record,
)
from dlscale.benchmarks.records.store import Store
from dlscale.benchmarks.study.plan import Launch, Plan
from dlscale.benchmarks.study.sizes import chosen_partition
from dlscale.benchmarks.study.study import Study
from dlscale.benchmarks.systems.start import Installation, cpus_per_rank, start_on
from dlscale.benchmarks.systems.system import System, facts

WORKER = ("-P", "-m", "dlscale.benchmarks.rank.worker")
# glibc gives large blocks back to the system and takes them again in every step: docs/decisions/0006.
ALLOCATOR = {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": "-1"}
QUIET = {"TF_CPP_MIN_LOG_LEVEL": "2"}  # errors only: the rest would bury the log of a failed rank
THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")


@dataclass(frozen=True, slots=True, kw_only=True)
class Campaign:
    """A plan tied to an environment of this machine and to a folder."""

    system: System
    installation: Installation
    flavour: Flavour | None  # of MPI; None where ranks start without it
    fingerprint: Fingerprint
    plan: Plan
    store: Store
    spool_folder: Path
    nodes: tuple[str, ...] = ()  # of the job that this runs in; none: this machine alone

    def todo(self) -> list[Launch]:
        """The launches that are left, in order, each with those of its cases that have no good record yet."""
        finished = self.store.finished()
        left = [
            replace(launch, cases=tuple(case for case in launch.cases if case.id not in finished))
            for launch in self.plan.launches
        ]
        return [launch for launch in left if launch.cases]

    @property
    def planned(self) -> set[str]:
        """The ids of all its cases."""
        return {case.id for launch in self.plan.launches for case in launch.cases}

    def command(self, launch: Launch) -> list[str]:
        """The exact command line of a launch, without the nodes' names where its job has not started."""
        cell, spool = launch.cell, self.spool_folder / launch.id
        program = [str(self.installation.python), *WORKER, str(spool)]
        variables = self.variables(launch)
        has_jobs, study = self.system.has_jobs, self.plan.study
        start = start_on(
            self.system,
            chosen_partition(study, self.system) if has_jobs else None,
            nodes=self.nodes[: cell.num_nodes],
            num_ranks=cell.num_processes,
            variables=variables,
            program=program,
            ranks_per_node=self._ranks_per_node(launch) if has_jobs else cell.num_processes,
        )
        unnamed = cell.num_nodes if has_jobs and not self.nodes else 0
        return launchers.command_line(
            self.system.launcher,
            replace(start, folder=str(spool), unnamed_nodes=unnamed),
            mpiexec_path=self.installation.mpiexec,
            flavour=self.flavour,
            oversubscribed=not has_jobs and self.plan.sharing(cell) > 1,
        )

    def variables(self, launch: Launch) -> dict[str, str]:
        """What a launch sets in its ranks' environment.

        The system's file and its environment have the last word, but for the threads, which the cell has: a published
        number holds for its own placement (`Shape.threads_per_rank`); and for variables that the study names.
        """
        threads = dict.fromkeys(THREAD_VARIABLES, str(launch.cell.threads_per_rank))
        cores = {
            "DLSCALE_CORES_PER_RANK": str(launch.cell.cores_per_rank),
            "DLSCALE_NUM_WORKERS": str(launch.cell.num_ranks),
        }
        if self.plan.shape.ranks_per_node:
            own = cpus_per_rank(self.system, self._ranks_per_node(launch))
            cores["DLSCALE_CPUS_PER_RANK"] = str(own)
        placed = self.system.placement.variables if self.system.placement else {}
        fixed = {name: value for name, value in placed.items() if name not in THREAD_VARIABLES}
        return (
            threads | cores | ALLOCATOR | QUIET | fixed | self.installation.variables | launch.cell.variables
        )

    def _ranks_per_node(self, launch: Launch) -> int:
        """How many share a node's hardware threads; a reference run has them all."""
        return 1 if launch.cell.control == "whole_machine" else self.plan.shape.ranks_per_node or 1

    def prepare(self, launch: Launch) -> PreparedLaunch:
        """A launch, ready to be started now."""
        command, inherited = self.command(launch), passed_on(JOB if self.system.has_jobs else LAUNCH)
        study, store, cell = self.plan.study, self.store, launch.cell
        oversubscribed = self.plan.sharing(cell) > 1
        return PreparedLaunch(
            spec=LaunchSpec(
                cases=list(launch.cases),
                rules=study.rules,
                launched_at=time.monotonic(),
                boot_id=boot_id(),
                seconds=self.plan.seconds([launch]),
                budgeted=study.budget is not None,
                data=str(launch.data.absolute()) if launch.data else None,
                checkpoints=str(store.checkpoints_folder.absolute())
                if study.rules.checkpoint_every
                else None,
                own=own_models.place_of(cell.own, cell.workload, folder=store.folder) if cell.own else None,
                skip_bad=study.skip_bad,
                patient=oversubscribed,
                # Of weights and of the samples' order; trainings to a target have another in every block.
                seed=study.seed + (launch.cases[0].block if study.target else 0),
            ),
            command=command,
            spool=self.spool_folder / launch.id,
            environment=inherited,
            metadata=LaunchMetadata(
                study=store.folder.name,
                system=self.system.name,
                fingerprint=self.fingerprint,
                started_at=supervisor.now(),
                order_seed=study.seed,
                command=redaction.redact(shlex.join(command)),
                oversubscribed=oversubscribed,
                environment_variables=recorded_variables(inherited, own=self.variables(launch)),
                configuration=configuration(study, self.system),
                batch_job=batch_job(os.environ),
                gates_version=GATES_VERSION,
            ),
        )

    def run(self, launch: Launch) -> list[Record]:
        """The records of a launch that is run now."""
        return supervisor.supervise(self.prepare(launch), self.store)


def configuration(study: Study, system: System) -> Configuration:
    """What records keep of what was asked for, after all defaults: the study by digest, rules, the stated network.

    The network is that of the system's file, quantities in base units; empty where it states nothing.
    """
    text = json.dumps(study.model_dump(mode="json"), sort_keys=True)
    return Configuration(
        study_digest=hashlib.sha256(text.encode()).hexdigest()[:12],
        budget_seconds=study.budget,
        rules=study.rules.model_dump(),
        fabric={
            name: fact.number if isinstance(fact, Quantity) else fact.value
            for name, fact in (facts(system.fabric) if system.fabric else ())
            if isinstance(fact, Quantity | Count | TextFact)
        },
    )


def describe_campaign(campaign: Campaign) -> dict[str, object]:
    """The study as study.json keeps it (`StudyFile`): what was asked, and what it became."""
    return {
        "schema": 1,
        "study": campaign.plan.study.model_dump(mode="json"),
        "system": campaign.system.model_dump(mode="json"),
        "environment": campaign.installation.name,
        "plan_digest": campaign.plan.digest,
        "fingerprint": campaign.fingerprint.model_dump(mode="json"),
        "num_cores": campaign.plan.shape.num_cores,
        "launches": [
            [case.model_dump(mode="json") for case in launch.cases] for launch in campaign.plan.launches
        ],
        "command": redaction.redact(shlex.join(["dlscale", *sys.argv[1:]])),
    }


@contextmanager
def open_campaign(campaign: Campaign, facts: Mapping[str, object]) -> Iterator[list[Launch]]:
    """The campaign's folder is ours alone, what a killed dlscale left there is recorded; gives what is to run.

    `facts` go into study.json. Signals are deferred inside: launches look at them. Raises UsageError if the folder
    cannot be used, another dlscale holds it, or it has corrupt records.
    """
    store = campaign.store
    store.open(describe_campaign(campaign) | dict(facts))
    with signals.deferred(), store.lock():
        if campaign.plan.study.own_files:
            own_models.keep_copies(campaign.plan.study, store.folder)
        make_folder(campaign.spool_folder)
        supervisor.collect_leftovers(campaign.spool_folder, store, planned=campaign.planned)
        yield campaign.todo()
