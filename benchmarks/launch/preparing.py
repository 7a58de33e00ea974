"""Campaigns of a study on a system: here and now, for its jobs, or for a rehearsal.

Everything that can be checked is checked before anything starts.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import psutil

from dlscale.base import definitions
from dlscale.base.errors import UsageError
from dlscale.base.launchers import LAUNCHERS
from dlscale.base.quantities import format_size
from dlscale.benchmarks.launch import environment, gpus
from dlscale.benchmarks.launch.campaign import Campaign
from dlscale.benchmarks.launch.probe import Probe, commit
from dlscale.benchmarks.records.record import Fingerprint
from dlscale.benchmarks.records.store import Store
from dlscale.benchmarks.study.expand import plan_on
from dlscale.benchmarks.study.plan import Plan, machine_pace, row_carriers
from dlscale.benchmarks.study.study import STUDY_FILE, Study, StudyFile, read_study_file
from dlscale.benchmarks.systems.start import Installation, default_environment, find_installation
from dlscale.benchmarks.systems.system import System
from dlscale.collectives import capabilities
from dlscale.collectives.neighbours import MPI


def prepare_campaign(
    study: Study, system: System, *, environment_name: str | None, data: str | None, results: Path
) -> Campaign:
    """A campaign on this machine, now. Raises UsageError for whatever would not work."""
    name = environment_name or default_environment(system)
    plan = replace(plan_on(study, system, environment=name, data=data), pace=machine_pace())
    installation = find_installation(system, name)
    check_capacity(plan)
    campaign = campaign_here(system, installation, plan, folder=results)
    if len(campaign.unusable) == len(_pairs(campaign.plan)):
        raise UsageError(next(iter(campaign.unusable.values())))
    if study.every_backend or (campaign.flavour is None and not study.named_backends):
        campaign = replace(campaign, plan=_without(campaign.plan, campaign.unusable), unusable={})
    digest = environment.combine(campaign.plan.digest, campaign.fingerprint.digest)
    store = Store(results / system.name / f"{study.name}-{digest}")
    campaign = replace(campaign, store=store, spool_folder=store.spool_folder)
    if text := _why_new(campaign):
        warnings = (*campaign.plan.warnings, text)
        campaign = replace(campaign, plan=replace(campaign.plan, warnings=warnings))
    return campaign


RANKS_PER_CORE = 4  # beyond, ranks that wait take a machine from everybody on it
# What a rank of a small network holds, measured.
RANK_BYTES = {"torch": 350 << 20, "tensorflow": 800 << 20}


def check_capacity(plan: Plan) -> None:
    """Raises UsageError for a launch of more ranks than this machine's cores, or its memory, can take."""
    free = psutil.virtual_memory().available
    for cell in (launch.cell for launch in plan.launches):
        size = RANK_BYTES[cell.framework]
        by_cores, by_memory = plan.num_cores * RANKS_PER_CORE, free // size
        if cell.num_processes <= min(by_cores, by_memory):
            continue
        asked = f"{cell.num_ranks} ranks" + f" and {cell.num_servers} servers" * (cell.num_servers > 0)
        found = (
            f"on {plan.num_cores} cores, more than {RANKS_PER_CORE} per core"
            if cell.num_processes > by_cores
            else f"in {cell.framework} need {format_size(cell.num_processes * size)} of memory, and "
            f"{format_size(free)} are free"
        )
        raise UsageError(f"{asked} {found}; ask for at most {min(by_cores, by_memory)} --ranks")


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


def campaign_here(system: System, installation: Installation, plan: Plan, *, folder: Path) -> Campaign:
    """That plan with what the environment says of itself on this machine, its records in `folder`."""
    probe = environment.probe(installation, _pairs(plan), plan.study.backend_options)
    system, line = environment.with_found_launcher(system, installation, probe)
    has_mpi = LAUNCHERS[system.launcher].needs_mpi
    flavour = environment.check_mpi(installation, probe, launcher=system.launcher) if has_mpi else None
    plan = _in_installed_frameworks(plan, installation, probe)
    plan = replace(plan, warnings=(*([line] if line else ()), *plan.warnings))
    over_mpi = row_carriers(launch.cell for launch in plan.launches).get(MPI)
    if over_mpi and not has_mpi:
        raise UsageError(
            f"split with {', '.join(over_mpi)} sends rows over MPI, which {system.launcher} does not start; "
            "leave --split out"
        )
    probe = gpus.with_gpus(installation, probe, plan)
    store = Store(folder)
    return Campaign(
        system=system,
        installation=installation,
        flavour=flavour,
        fingerprint=_fingerprint(probe, plan.study, system),
        plan=plan,
        unusable=_unusable_pairs(plan, probe, system),
        store=store,
        spool_folder=store.spool_folder,
    )


def _pairs(plan: Plan) -> list[tuple[str, str]]:
    return sorted({(launch.cell.backend, launch.cell.framework) for launch in plan.launches})


def _unusable_pairs(plan: Plan, probe: Probe, system: System) -> dict[tuple[str, str], str]:
    problems = {}
    for backend, framework in _pairs(plan):
        reason = probe.problems.get(f"{backend}/{framework}")
        if capabilities(backend).needs_mpi and not LAUNCHERS[system.launcher].needs_mpi:
            reason = f"{backend} needs ranks of MPI, which {system.launcher} does not start"
        if reason:
            problems[backend, framework] = reason
    return problems


def _in_installed_frameworks(plan: Plan, installation: Installation, probe: Probe) -> Plan:
    """The plan without frameworks that `all` included and the environment has not, with a warning for each.

    Raises UsageError where a named framework is missing, or every one.
    """
    asked = plan.study.frameworks
    installed = [framework for framework in asked if framework in probe.frameworks]
    if not plan.study.every_framework or not installed:
        environment.check_frameworks(installation, probe, asked)
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


def campaign_for_jobs(
    study: Study, system: System, *, environment_name: str | None, data: str | None, results: Path
) -> Campaign:
    """A campaign that jobs will run: what compute nodes have is asked there, what is installed is asked here.

    Raises UsageError for whatever can be known to be wrong.
    """
    name = environment_name or default_environment(system)
    plan = plan_on(study, system, environment=name, data=data)
    installation = find_installation(system, name)
    probe = environment.probe(installation)
    plan = _in_installed_frameworks(plan, installation, probe)
    fingerprint = _fingerprint(probe, plan.study, system)
    software = json.dumps([fingerprint.commit, fingerprint.versions], sort_keys=True)
    return _with_folder(
        results / system.name / f"{study.name}-{environment.combine(plan.digest, software)}",
        system=system,
        installation=installation,
        fingerprint=fingerprint,
        plan=plan,
    )


def campaign_for_rehearsal(
    study: Study, system: System, *, environment_name: str | None, data: str | None, results: Path
) -> Campaign:
    """A campaign on a system that this machine is not: nothing is asked, and nothing can be started."""
    name = environment_name or ("site" if "site" in system.environments else next(iter(system.environments)))
    definitions.one_of(f"environment on {system.name}", name, system.environments)
    stated = system.environments[name]
    plan = plan_on(study, system, environment=name, data=data)
    return _with_folder(
        results / system.name / f"rehearsal-{study.name}-{plan.digest[:8]}",
        system=system,
        installation=Installation(
            name=name,
            prefix=Path(stated.prefix),
            python=Path(stated.python or "python"),
            mpiexec=Path(stated.mpiexec or "mpiexec"),
            mpi=stated.mpi,
            variables=stated.variables,
        ),
        fingerprint=Fingerprint(digest="", commit=commit(), versions={}, node={}),
        plan=plan,
    )


def _with_folder(
    folder: Path, *, system: System, installation: Installation, fingerprint: Fingerprint, plan: Plan
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


def _fingerprint(probe: Probe, study: Study, system: System) -> Fingerprint:
    return probe.fingerprint(
        frameworks=study.frameworks,
        backends=study.backends,
        launcher=system.launcher,
    )
