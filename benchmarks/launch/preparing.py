"""Campaigns of a study on a system: here and now, for its jobs, or for a rehearsal.

Everything that can be checked is checked before anything starts.
"""

from __future__ import annotations

import hashlib
import json
import math
from dataclasses import replace
from pathlib import Path

import psutil

from dlscale.base import definitions
from dlscale.base.errors import UsageError
from dlscale.base.launchers import LAUNCHERS
from dlscale.base.quantities import format_size
from dlscale.benchmarks.launch import environment
from dlscale.benchmarks.launch.campaign import Campaign
from dlscale.benchmarks.launch.probe import Probe, Question, commit
from dlscale.benchmarks.records.record import Fingerprint
from dlscale.benchmarks.records.store import Store
from dlscale.benchmarks.study.expand import plan_on
from dlscale.benchmarks.study.plan import Plan, machine_pace, row_carriers
from dlscale.benchmarks.study.study import STUDY_FILE, Study, StudyFile, read_study_file
from dlscale.benchmarks.systems.start import Installation, default_environment, find_installation
from dlscale.benchmarks.systems.system import System
from dlscale.collectives import capabilities
from dlscale.collectives.neighbours import MPI
from dlscale.models.frameworks import GPU_HELP, check_tf32

RANKS_PER_CORE = 4  # beyond, ranks that wait take a machine from everybody on it
# What a rank of a small network holds, measured.
RANK_BYTES = {"torch": 350 << 20, "tensorflow": 800 << 20}


def prepare_campaign(
    study: Study, system: System, *, environment_name: str | None, data: str | None, results: Path
) -> Campaign:
    """A campaign on this machine, now. Raises UsageError for whatever would not work."""
    name = environment_name or default_environment(system)
    plan = replace(plan_on(study, system, environment=name, data=data), pace=machine_pace())
    installation = find_installation(system, name)
    check_capacity(plan)
    campaign = campaign_here(system, installation, plan, folder=results)
    plan, unusable = campaign.plan, campaign.unusable
    if len(unusable) == len(_pairs(plan)):
        raise UsageError(next(iter(unusable.values())))
    if study.every_backend or (campaign.flavour is None and not study.named_backends):
        plan, unusable = _without(plan, unusable), {}
    store = Store(_folder(results / system.name, study, digests=(plan.digest, campaign.fingerprint.digest)))
    campaign = replace(campaign, plan=plan, unusable=unusable, store=store, spool_folder=store.spool_folder)
    if text := _why_new(campaign):
        return replace(campaign, plan=replace(plan, warnings=(*plan.warnings, text)))
    return campaign


def campaign_here(system: System, installation: Installation, plan: Plan, *, folder: Path) -> Campaign:
    """That plan with what the environment says of itself on this machine, its records in `folder`."""
    question = Question(
        pairs=_pairs(plan),
        options=dict(plan.study.backend_options),
        gpus=plan.study.frameworks if plan.study.device == "gpu" else [],
    )
    report = environment.probe(installation, question)
    system, line = environment.with_found_launcher(system, installation, report)
    has_mpi = LAUNCHERS[system.launcher].needs_mpi
    flavour = environment.check_mpi(installation, report, launcher=system.launcher) if has_mpi else None
    plan = _in_installed_frameworks(plan, installation, report)
    plan = replace(plan, warnings=(*([line] if line else ()), *plan.warnings))
    unusable = {pair: reason for pair in _pairs(plan) if (reason := report.problems.get("/".join(pair)))}
    if not has_mpi:
        unusable |= _over_mpi(plan, system.launcher)
    if question.gpus:
        check_gpus(report, plan, environment=installation.name)
    store = Store(folder)
    return Campaign(
        system=system,
        installation=installation,
        flavour=flavour,
        fingerprint=_fingerprint(report, plan.study, system),
        plan=plan,
        unusable=unusable,
        store=store,
        spool_folder=store.spool_folder,
    )


def campaign_for_jobs(
    study: Study, system: System, *, environment_name: str | None, data: str | None, results: Path
) -> Campaign:
    """A campaign that jobs will run: what compute nodes have is asked there, what is installed is asked here.

    Raises UsageError for whatever can be known to be wrong.
    """
    name = environment_name or default_environment(system)
    plan = plan_on(study, system, environment=name, data=data)
    installation = find_installation(system, name)
    report = environment.probe(installation)
    plan = _in_installed_frameworks(plan, installation, report)
    fingerprint = _fingerprint(report, plan.study, system)
    software = json.dumps([fingerprint.commit, fingerprint.versions], sort_keys=True)
    folder = _folder(results / system.name, study, digests=(plan.digest, software))
    return _not_started_here(folder, plan, system=system, installation=installation, fingerprint=fingerprint)


def campaign_for_rehearsal(
    study: Study, system: System, *, environment_name: str | None, data: str | None, results: Path
) -> Campaign:
    """A campaign on a system that this machine is not: nothing is asked, and nothing can be started."""
    name = environment_name or ("site" if "site" in system.environments else next(iter(system.environments)))
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
    plan = plan_on(study, system, environment=name, data=data)
    folder = results / system.name / f"rehearsal-{study.name}-{plan.digest[:8]}"
    fingerprint = Fingerprint(digest="", commit=commit(), versions={}, node={})
    return _not_started_here(folder, plan, system=system, installation=installation, fingerprint=fingerprint)


def check_capacity(plan: Plan) -> None:
    """Raises UsageError for a launch of more ranks than this machine's cores, or its memory, can take."""
    free = psutil.virtual_memory().available
    for cell in (launch.cell for launch in plan.launches):
        size = RANK_BYTES[cell.framework]
        by_cores, by_memory = plan.num_cores * RANKS_PER_CORE, free // size
        if cell.num_processes <= min(by_cores, by_memory):
            continue
        asked = f"{cell.num_ranks} ranks" + f" and {cell.num_servers} servers" * (cell.num_servers > 0)
        taken = (
            f"on {plan.num_cores} cores, more than {RANKS_PER_CORE} per core"
            if cell.num_processes > by_cores
            else f"in {cell.framework} need {format_size(cell.num_processes * size)} of memory, and "
            f"{format_size(free)} are free"
        )
        raise UsageError(f"{asked} {taken}; ask for at most {min(by_cores, by_memory)} --ranks")


def check_gpus(report: Probe, plan: Plan, *, environment: str) -> None:
    """Raises UsageError unless every framework sees a GPU for every rank of a node, with TF32 if a cell asks for it."""
    cells = [case.cell for launch in plan.launches for case in launch.cases]
    ranks_per_node = max((math.ceil(cell.num_ranks / cell.num_nodes) for cell in cells), default=0)
    tf32 = any(cell.precision == "tf32" for cell in cells)
    for gpus in report.gpus:
        what = f"{gpus.framework} {gpus.version} of environment {environment}"
        if not gpus.names:
            raise UsageError(f"device gpu was asked for, but {what} sees no GPU; {GPU_HELP}")
        check_tf32(what, gpus.without_tf32 if tf32 else ())
        if ranks_per_node > len(gpus.names):
            raise UsageError(
                f"{ranks_per_node} ranks per node were asked for on device gpu, and {what} sees "
                f"{len(gpus.names)} (one each); give at most --ranks {len(gpus.names)}"
            )


def differences(file: StudyFile, campaign: Campaign) -> list[str]:
    """What is another code, version or machine than that study's, one by one: `torch 2.12.0, now 2.13.0`."""
    was, now = file.fingerprint, campaign.fingerprint
    code = [f"commit {was.commit[:12]}, now {now.commit[:12]}"] if was.commit != now.commit else []
    before, after = {**was.versions, **was.node}, {**now.versions, **now.node}
    return code + [
        f"{name} {before.get(name, 'absent')}, now {after.get(name, 'absent')}"
        for name in sorted({*before, *after})
        if before.get(name) != after.get(name)
    ]


def _pairs(plan: Plan) -> list[tuple[str, str]]:
    return sorted({(launch.cell.backend, launch.cell.framework) for launch in plan.launches})


def _over_mpi(plan: Plan, launcher: str) -> dict[tuple[str, str], str]:
    """The pairs that need ranks of MPI, with the reason. Raises UsageError where samples' rows go over MPI."""
    if carried := row_carriers(launch.cell for launch in plan.launches).get(MPI):
        raise UsageError(
            f"split with {', '.join(carried)} sends rows over MPI, which {launcher} does not start; leave --split out"
        )
    return {
        (backend, framework): f"{backend} needs ranks of MPI, which {launcher} does not start"
        for backend, framework in _pairs(plan)
        if capabilities(backend).needs_mpi
    }


def _in_installed_frameworks(plan: Plan, installation: Installation, report: Probe) -> Plan:
    """The plan without frameworks that `all` included and the environment has not, with a warning for each.

    Raises UsageError where a named framework is missing, or every one.
    """
    asked = plan.study.frameworks
    installed = [framework for framework in asked if framework in report.frameworks]
    if len(installed) == len(asked):
        return plan
    if not plan.study.every_framework or not installed:
        environment.check_frameworks(installation, report, asked)
    warnings = [
        f"{framework} is left out: environment {installation.name} does not have it; "
        f"{environment.framework_remedy(framework)} there"
        for framework in asked
        if framework not in installed
    ]
    return replace(
        plan,
        study=plan.study.model_copy(update={"frameworks": installed}),
        launches=tuple(launch for launch in plan.launches if launch.cell.framework in installed),
        warnings=(*plan.warnings, *warnings),
    )


def _without(plan: Plan, unusable: dict[tuple[str, str], str]) -> Plan:
    """The plan without what cannot be used here, and a warning for each backend and framework that is left out."""
    left = [
        launch for launch in plan.launches if (launch.cell.backend, launch.cell.framework) not in unusable
    ]
    warnings = [f"{' in '.join(pair)} is left out: {reason}" for pair, reason in unusable.items()]
    return replace(plan, launches=tuple(left), warnings=(*plan.warnings, *warnings))


def _fingerprint(report: Probe, study: Study, system: System) -> Fingerprint:
    return report.fingerprint(frameworks=study.frameworks, backends=study.backends, launcher=system.launcher)


def _folder(results: Path, study: Study, *, digests: tuple[str, str]) -> Path:
    """A study's folder: its name changes with either of the digests."""
    digest = hashlib.sha256("-".join(digests).encode()).hexdigest()[:8]
    return results / f"{study.name}-{digest}"


def _why_new(campaign: Campaign) -> str:
    """Why a study's records go into a new folder though there is one of the same plan; empty if there is none."""
    folder = campaign.store.folder
    if folder.exists():
        return ""
    for path in sorted(folder.parent.glob(f"{campaign.plan.study.name}-*/{STUDY_FILE}")):
        try:
            file = read_study_file(path.parent)
        except UsageError:
            continue
        if file.plan_digest == campaign.plan.digest:
            changed = "; ".join(differences(file, campaign)) or "its system's definition"
            return f"a new folder, as {path.parent.name} of the same plan was measured with something else: {changed}"
    return ""


def _not_started_here(
    folder: Path, plan: Plan, *, system: System, installation: Installation, fingerprint: Fingerprint
) -> Campaign:
    store = Store(folder)
    return Campaign(
        system=system,
        installation=installation,
        flavour="mpich" if installation.mpi == "detect" else installation.mpi,
        fingerprint=fingerprint,
        plan=plan,
        unusable={},
        store=store,
        spool_folder=store.spool_folder / "here",  # beside those of the jobs, which are not ours to clear
    )
