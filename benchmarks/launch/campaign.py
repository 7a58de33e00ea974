"""A campaign: a plan tied to an environment of a machine and to a folder; here, for jobs, or for a rehearsal.

Everything that can be checked is checked before anything starts.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import shlex
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

import psutil

from dlscale.base import definitions
from dlscale.base.errors import UsageError
from dlscale.base.files import locked, make_folder
from dlscale.base.launchers import LAUNCHERS, Flavour
from dlscale.base.quantities import Count, Quantity, TextFact, format_size
from dlscale.base.schedulers import SCHEDULERS
from dlscale.base.strings import redact
from dlscale.base.variables import JOB, LAUNCH, passed_on
from dlscale.benchmarks.launch import environment, own_models, signals, supervisor
from dlscale.benchmarks.launch.probe import Probe, Question, commit
from dlscale.benchmarks.launch.supervisor import PreparedLaunch
from dlscale.benchmarks.rank.spec import LaunchSpec
from dlscale.benchmarks.records.record import (
    GATES_VERSION,
    Configuration,
    Fingerprint,
    LaunchMetadata,
    Record,
)
from dlscale.benchmarks.records.spool import boot_id
from dlscale.benchmarks.records.store import LOCK, Store
from dlscale.benchmarks.study.expand import expand
from dlscale.benchmarks.study.plan import Launch, Plan, chosen_partition, machine_pace
from dlscale.benchmarks.study.study import Study
from dlscale.benchmarks.systems.start import (
    Installation,
    cpus_per_rank,
    find_installation,
    start_on,
)
from dlscale.benchmarks.systems.system import System, facts
from dlscale.collectives import capabilities
from dlscale.collectives.neighbours import MPI, carrier_of
from dlscale.models.frameworks import GPU_HELP

WORKER = ("-P", "-m", "dlscale.benchmarks.rank.worker")
# glibc gives large blocks back to the system and takes them again in every step: docs/decisions/0006.
ALLOCATOR = {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": "-1"}
QUIET = {"TF_CPP_MIN_LOG_LEVEL": "2"}  # errors only: the rest would bury the log of a failed rank
THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
Where = Literal["here", "jobs", "rehearsal"]
RANKS_PER_CORE = 4  # beyond, ranks that wait take a machine from everybody on it
# What a rank of a small network holds, measured.
RANK_BYTES = {"torch": 350 << 20, "tensorflow": 800 << 20}


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
        """The launches that are left, in order, each with those of its cases that have no good record yet.

        Raises UsageError for an invalid record.
        """
        finished = {record.case.id for record in self.store.load() if record.good}
        left = [
            replace(launch, cases=tuple(case for case in launch.cases if case.id not in finished))
            for launch in self.plan.launches
        ]
        return [launch for launch in left if launch.cases]

    def collect_leftovers(self) -> None:
        """Records of the launches that a killed dlscale left in the spool folder, which is made. Raises UsageError."""
        make_folder(self.spool_folder)
        planned = {case.id for launch in self.plan.launches for case in launch.cases}
        if left := planned.intersection(os.listdir(self.spool_folder)):
            supervisor.collect_leftovers(self.spool_folder, self.store, planned=left)

    def command(self, launch: Launch) -> list[str]:
        """The exact command line of a launch, without the nodes' names where its job has not started."""
        cell, spool = launch.cell, self.spool_folder / launch.id
        has_jobs, study = self.system.has_jobs, self.plan.study
        start = start_on(
            self.system,
            chosen_partition(study, self.system) if has_jobs else None,
            nodes=self.nodes[: cell.num_nodes],
            num_ranks=cell.num_processes,
            variables=self.variables(launch),
            program=[str(self.installation.python), *WORKER, str(spool)],
            ranks_per_node=self._ranks_per_node(launch) if has_jobs else cell.num_processes,
        )
        unnamed = cell.num_nodes if has_jobs and not self.nodes else 0
        start = replace(
            start,
            folder=str(spool),
            unnamed_nodes=unnamed,
            mpiexec=str(self.installation.mpiexec),
            flavour=self.flavour or "mpich",
            oversubscribed=not has_jobs and self.plan.sharing(cell) > 1,
        )
        return LAUNCHERS[self.system.launcher].command(start)

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

    def run(self, launch: Launch) -> list[Record]:
        """The records of a launch that is run now."""
        command, inherited = self.command(launch), passed_on(JOB if self.system.has_jobs else LAUNCH)
        study, store, cell, fabric = self.plan.study, self.store, launch.cell, self.system.fabric
        oversubscribed = self.plan.sharing(cell) > 1
        ids = {name: os.environ.get(scheduler.id_variable) for name, scheduler in SCHEDULERS.items()}
        spec = LaunchSpec(
            cases=list(launch.cases),
            rules=study.rules,
            launched_at=time.monotonic(),
            boot_id=boot_id(),
            seconds=self.plan.seconds([launch]),
            budgeted=study.budget is not None,
            data=str(launch.data.absolute()) if launch.data else None,
            checkpoints=str(store.checkpoints_folder.absolute()) if study.rules.checkpoint_every else None,
            own=own_models.place_of(cell.own, cell.workload, folder=store.folder) if cell.own else None,
            skip_bad=study.skip_bad,
            patient=oversubscribed,
            # Of weights and of the samples' order; trainings to a target have another in every block.
            seed=study.seed + (launch.cases[0].block if study.target else 0),
        )
        # What was asked for, after all defaults; of the network what the system's file states, in base units.
        text = json.dumps(study.model_dump(mode="json"), sort_keys=True)
        configuration = Configuration(
            study_digest=hashlib.sha256(text.encode()).hexdigest()[:12],
            budget_seconds=study.budget,
            rules=study.rules.model_dump(),
            fabric={
                name: fact.number if isinstance(fact, Quantity) else fact.value
                for name, fact in (facts(fabric) if fabric else ())
                if isinstance(fact, Quantity | Count | TextFact)
            },
        )
        metadata = LaunchMetadata(
            study=store.folder.name,
            system=self.system.name,
            fingerprint=self.fingerprint,
            started_at=datetime.now(UTC).isoformat(timespec="seconds"),
            order_seed=study.seed,
            command=redact(shlex.join(command)),
            oversubscribed=oversubscribed,
            environment_variables=environment.recorded_variables(inherited, own=self.variables(launch)),
            configuration=configuration,
            batch_job=next((f"{name} {job_id}" for name, job_id in ids.items() if job_id), None),
            gates_version=GATES_VERSION,
        )
        prepared = PreparedLaunch(
            spec=spec,
            metadata=metadata,
            spool=self.spool_folder / launch.id,
            command=command,
            environment=inherited,
        )
        return supervisor.supervise(prepared, store)


@contextmanager
def open_campaign(campaign: Campaign, facts: Mapping[str, object]) -> Iterator[list[Launch]]:
    """The campaign's folder is ours alone, what a killed dlscale left there is recorded; gives what is to run.

    study.json (`StudyFile`) has what was asked, what it became, and the `facts`. Signals are deferred inside: launches
    look at them. Raises UsageError if the folder cannot be used, another dlscale holds it, or it has corrupt records.
    """
    store, plan = campaign.store, campaign.plan
    description: dict[str, object] = {
        "schema": 1,
        "study": plan.study.model_dump(mode="json"),
        "system": campaign.system.model_dump(mode="json"),
        "environment": campaign.installation.name,
        "plan_digest": plan.digest,
        "fingerprint": campaign.fingerprint.model_dump(mode="json"),
        "num_cores": plan.shape.num_cores,
        "launches": [[case.model_dump(mode="json") for case in launch.cases] for launch in plan.launches],
        "command": redact(shlex.join(["dlscale", *sys.argv[1:]])),
    }
    store.open(description | dict(facts))
    held = f"another dlscale is measuring into {store.folder}; wait for it, or stop it first"
    with signals.deferred(), locked(store.folder / LOCK, held=held):
        if plan.study.own_files:
            own_models.keep_copies(plan.study, store.folder)
        campaign.collect_leftovers()
        yield campaign.todo()


def prepare_campaign(
    study: Study,
    system: System,
    *,
    where: Where = "here",
    environment_name: str | None,
    data: str | None,
    results: Path,
) -> Campaign:
    """A campaign of launches here and now, of jobs that will run it, or of a system that this machine is not.

    What compute nodes have is asked there, what is installed is asked here; for a rehearsal nothing is asked. Raises
    UsageError for whatever can be known to be wrong.
    """
    if where == "rehearsal":
        site = "site" if "site" in system.environments else next(iter(system.environments))
        name = environment_name or site
        definitions.one_of(f"environment on {system.name}", name, system.environments)
        stated = system.environments[name]
        installation = Installation(
            name=name,
            prefix=Path(stated.prefix),
            python=Path(stated.python or "python"),
            mpiexec=Path(stated.mpiexec or "mpiexec"),
            mpi=stated.mpi,
            variables=stated.variables,
        )
    else:
        installation = find_installation(system, environment_name)
    plan = expand(study, system, environment=installation.name, data=data)
    if where == "here":
        plan = replace(plan, pace=machine_pace())
        free, cores = psutil.virtual_memory().available, plan.shape.num_cores
        for cell in (launch.cell for launch in plan.launches):
            most = min(cores * RANKS_PER_CORE, free // RANK_BYTES[cell.framework])
            if math.ceil(cell.num_processes / cell.num_nodes) > most:
                servers = f" and {cell.num_servers} servers" * (cell.num_servers > 0)
                raise UsageError(
                    f"{cell.num_ranks} ranks{servers} in {cell.framework} are too many for {cores} cores and "
                    f"{format_size(free)} of free memory; ask for at most {most} --ranks"
                )
    return campaign_of(plan, system, installation, where=where, results=results / system.name)


def campaign_of(
    plan: Plan,
    system: System,
    installation: Installation,
    *,
    where: Where,
    results: Path = Path(),
    folder: Path | None = None,
) -> Campaign:
    """The plan with what the environment says of itself.

    Its folder is in `results`, and is another one for another plan, code, version or (here) machine; in a job it is the
    study's `folder`. There a launch that cannot be started is a failure, and no mistake of anybody.
    """
    study, is_here = plan.study, where == "here"
    flavour: Flavour | None = "mpich" if installation.mpi == "detect" else installation.mpi
    if where == "rehearsal":
        fingerprint = Fingerprint(digest="", commit=commit(), versions={}, node={})
        name = f"rehearsal-{study.name}-{plan.digest[:8]}"
    else:
        question = Question()
        if is_here:
            pairs = sorted({(launch.cell.backend, launch.cell.framework) for launch in plan.launches})
            gpus = study.frameworks if study.device == "gpu" else []
            question = Question(pairs=pairs, options=dict(study.backend_options), gpus=gpus)
        report = environment.probe(installation, question)
        if is_here:
            system, flavour, line = environment.with_found_launcher(system, installation, report)
            plan = replace(plan, warnings=(*filter(None, [line]), *plan.warnings))
        if folder is None:
            plan = usable_part(plan, report, installation, launcher=system.launcher)
        fingerprint = environment.fingerprint(report, system.launcher)
        software = json.dumps([fingerprint.commit, fingerprint.versions], sort_keys=True)
        digests = f"{plan.digest}-{fingerprint.digest if is_here else software}"
        name = f"{study.name}-{hashlib.sha256(digests.encode()).hexdigest()[:8]}"
    store = Store(folder or results / name)
    return Campaign(
        system=system,
        installation=installation,
        flavour=flavour,
        fingerprint=fingerprint,
        plan=plan,
        store=store,
        # Apart from the spools of jobs, which are not ours to clear.
        spool_folder=store.spool_folder if is_here else store.spool_folder / "here",
    )


def usable_part(plan: Plan, report: Probe, installation: Installation, *, launcher: str) -> Plan:
    """The plan without what nobody named and the environment does not have, with a warning for each.

    Raises UsageError for what the user named, where nothing is left, and for more ranks on a node than GPUs.
    """
    study, needs_mpi, warnings = plan.study, LAUNCHERS[launcher].needs_mpi, dict[str, None]()
    splits = any(launch.cell.split > 1 for launch in plan.launches)
    pairs = sorted({(launch.cell.backend, launch.cell.framework) for launch in plan.launches})
    left = list(pairs)
    for backend, framework in pairs:
        what, named = f"{backend} in {framework}", not study.every_backend
        reason = report.problems.get(f"{backend}/{framework}", "")
        if framework not in report.frameworks:
            what, named = framework, not study.every_framework
            remedy = environment.framework_remedy(framework)
            reason = f"environment {installation.name} has no {framework}; {remedy} there"
        elif not needs_mpi and (
            capabilities(backend).needs_mpi
            or (
                splits and capabilities(backend).exchanges and carrier_of(backend, framework=framework) == MPI
            )
        ):
            reason = f"{backend} needs ranks of MPI, which {launcher} does not start"
        if reason:
            left.remove((backend, framework))
            if named or not left:
                raise UsageError(reason)
            warnings[f"{what} is left out: {reason}"] = None
    launches = tuple(it for it in plan.launches if (it.cell.backend, it.cell.framework) in left)
    for gpus in report.gpus:
        ranks = max((math.ceil(it.cell.num_ranks / it.cell.num_nodes) for it in launches), default=0)
        if not gpus.names:
            raise UsageError(f"{gpus.framework} {gpus.version} sees no GPU; {GPU_HELP}")
        if ranks > len(gpus.names):
            raise UsageError(
                f"{ranks} ranks per node were asked for on device gpu, and {gpus.framework} {gpus.version} sees "
                f"{len(gpus.names)}; start one rank per GPU; {GPU_HELP}"
            )
    frameworks = [name for name in study.frameworks if name in {framework for _, framework in left}]
    return replace(
        plan,
        study=study.model_copy(update={"frameworks": frameworks}),
        launches=launches,
        warnings=(*plan.warnings, *warnings),
    )
