"""Campaigns of a study on a system: here and now, for its jobs, or for a rehearsal.

Everything that can be checked is checked before anything starts.
"""

from __future__ import annotations

import hashlib
import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Literal

import psutil

from dlscale.base import definitions
from dlscale.base.errors import UsageError
from dlscale.base.launchers import LAUNCHERS, Flavour
from dlscale.base.quantities import format_size
from dlscale.benchmarks.launch import environment
from dlscale.benchmarks.launch.campaign import Campaign
from dlscale.benchmarks.launch.probe import Probe, Question, commit
from dlscale.benchmarks.records.record import Fingerprint
from dlscale.benchmarks.records.store import Store
from dlscale.benchmarks.study.expand import plan_on
from dlscale.benchmarks.study.plan import Plan, machine_pace
from dlscale.benchmarks.study.study import Study
from dlscale.benchmarks.systems.start import Installation, default_environment, find_installation
from dlscale.benchmarks.systems.system import System
from dlscale.collectives import capabilities
from dlscale.collectives.neighbours import MPI, carrier_of
from dlscale.models.frameworks import GPU_HELP

Where = Literal["here", "jobs", "rehearsal"]
RANKS_PER_CORE = 4  # beyond, ranks that wait take a machine from everybody on it
# What a rank of a small network holds, measured.
RANK_BYTES = {"torch": 350 << 20, "tensorflow": 800 << 20}


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
        name = environment_name or default_environment(system)
        installation = find_installation(system, name)
    plan = plan_on(study, system, environment=name, data=data)
    if where == "here":
        check_capacity(plan)
        plan = replace(plan, pace=machine_pace())
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
    fingerprint = Fingerprint(digest="", commit=commit(), versions={}, node={})
    name = f"rehearsal-{study.name}-{plan.digest[:8]}"
    if where != "rehearsal":
        gpus = study.frameworks if study.device == "gpu" else []
        question = Question(pairs=_pairs(plan), options=dict(study.backend_options), gpus=gpus)
        report = environment.probe(installation, question if is_here else Question())
        if is_here:
            system, line = environment.with_found_launcher(system, installation, report)
            has_mpi, launcher = LAUNCHERS[system.launcher].needs_mpi, system.launcher
            flavour = environment.check_mpi(installation, report, launcher=launcher) if has_mpi else None
            plan = replace(plan, warnings=(*filter(None, [line]), *plan.warnings))
        if folder is None:
            plan = usable_part(plan, report, installation, launcher=system.launcher)
            check_gpus(report, plan)
        fingerprint = report.fingerprint(system.launcher)
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


def check_capacity(plan: Plan) -> None:
    """Raises UsageError for a launch of more ranks than this machine's cores, or its memory, can take."""
    free, cores = psutil.virtual_memory().available, plan.shape.num_cores
    for cell in (launch.cell for launch in plan.launches):
        most = min(cores * RANKS_PER_CORE, free // RANK_BYTES[cell.framework])
        if math.ceil(cell.num_processes / cell.num_nodes) > most:
            servers = f" and {cell.num_servers} servers" * (cell.num_servers > 0)
            raise UsageError(
                f"{cell.num_ranks} ranks{servers} in {cell.framework} are too many for {cores} cores and "
                f"{format_size(free)} of free memory; ask for at most {most} --ranks"
            )


def check_gpus(report: Probe, plan: Plan) -> None:
    """Raises UsageError unless every framework sees a GPU for every rank of a node."""
    cells = [launch.cell for launch in plan.launches]
    ranks_per_node = max((math.ceil(cell.num_ranks / cell.num_nodes) for cell in cells), default=0)
    for gpus in report.gpus:
        if not gpus.names:
            raise UsageError(f"{gpus.framework} {gpus.version} sees no GPU; {GPU_HELP}")
        if ranks_per_node > len(gpus.names):
            raise UsageError(
                f"{ranks_per_node} ranks per node were asked for on device gpu, and {gpus.framework} {gpus.version} "
                f"sees {len(gpus.names)}; start one rank per GPU; {GPU_HELP}"
            )


def _pairs(plan: Plan) -> list[tuple[str, str]]:
    return sorted({(launch.cell.backend, launch.cell.framework) for launch in plan.launches})


def usable_part(plan: Plan, report: Probe, installation: Installation, *, launcher: str) -> Plan:
    """The plan without what nobody named and the environment does not have, with a warning for each.

    Raises UsageError for what the user named, or where nothing is left.
    """
    study, needs_mpi, warnings = plan.study, LAUNCHERS[launcher].needs_mpi, dict[str, None]()
    for cell in (it.cell for it in plan.launches if it.cell.split > 1 and not needs_mpi):
        if carrier_of(cell.backend, framework=cell.framework) == MPI and capabilities(cell.backend).exchanges:
            raise UsageError(
                f"split with {cell.backend} sends rows over MPI, which {launcher} does not start; leave --split out"
            )
    left = _pairs(plan)
    for backend, framework in _pairs(plan):
        what, named = f"{backend} in {framework}", not study.every_backend
        reason = report.problems.get(f"{backend}/{framework}", "")
        if framework not in report.frameworks:
            what, named = framework, not study.every_framework
            remedy = environment.framework_remedy(framework)
            reason = f"environment {installation.name} has no {framework}; {remedy} there"
        elif capabilities(backend).needs_mpi and not needs_mpi:
            reason = f"{backend} needs ranks of MPI, which {launcher} does not start"
        if reason:
            left.remove((backend, framework))
            if named or not left:
                raise UsageError(reason)
            warnings[f"{what} is left out: {reason}"] = None
    frameworks = [name for name in study.frameworks if name in {framework for _, framework in left}]
    return replace(
        plan,
        study=study.model_copy(update={"frameworks": frameworks}),
        launches=tuple(it for it in plan.launches if (it.cell.backend, it.cell.framework) in left),
        warnings=(*plan.warnings, *warnings),
    )
