"""From what was asked to a campaign: everything is checked that can be, before anything starts."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from dlscale.benchmarks import definition, environment, gpus, supervisor
from dlscale.benchmarks.anchors import sample_seconds
from dlscale.benchmarks.campaign import Campaign, describe
from dlscale.benchmarks.expand import expand
from dlscale.benchmarks.plan import Launch, Plan
from dlscale.benchmarks.probe import Probe
from dlscale.benchmarks.record import Fingerprint, Record
from dlscale.benchmarks.sizes import shape
from dlscale.benchmarks.store import Store
from dlscale.benchmarks.study import Study
from dlscale.benchmarks.supervisor import refuse, run_job
from dlscale.benchmarks.system import Installation, System, default_environment, find_installation
from dlscale.models.errors import UsageError
from dlscale.models.files import make_folder


def prepare(
    study: Study, system: System, *, environment_name: str | None, data: str | None, results: Path
) -> Campaign:
    """A campaign on this machine, now. Raises UsageError for whatever would not work."""
    name = environment_name or default_environment(system)
    installation = find_installation(system, name)
    plan = _plan(study, system, environment=name, data=data)
    campaign = here(system, installation, plan, folder=results)
    if len(campaign.unusable) == len(_pairs(plan)):
        raise UsageError(next(iter(campaign.unusable.values())))
    if study.every_backend:
        campaign = replace(campaign, plan=_without(plan, campaign.unusable), unusable={})
    digest = environment.combine(campaign.plan.digest, campaign.fingerprint.digest)
    store = Store(results / system.name / f"{study.name}-{digest}")
    return replace(campaign, store=store, spool_folder=store.spool_folder)


def here(system: System, installation: Installation, plan: Plan, *, folder: Path) -> Campaign:
    """That plan with what the environment says of itself on this machine, its records in `folder`."""
    found = environment.probe(installation, _pairs(plan))
    flavour = environment.check_mpi(installation, found, launcher=system.launcher)
    environment.check_frameworks(installation, found, plan.study.frameworks)
    found = gpus.checked(installation, found, plan)
    store = Store(folder)
    return Campaign(
        system=system,
        installation=installation,
        flavour=flavour,
        fingerprint=found.fingerprint(environment.commit()),
        plan=plan,
        unusable=_unusable(plan, found),
        store=store,
        spool_folder=store.spool_folder,
    )


def _plan(study: Study, system: System, *, environment: str, data: str | None) -> Plan:
    plan = expand(study, environment=environment, shape=shape(study, system), data=data, policy=system.policy)
    return replace(plan, sample_seconds=sample_seconds(system.name))


def _pairs(plan: Plan) -> list[tuple[str, str]]:
    return sorted({(launch.cell.backend, launch.cell.framework) for launch in plan.launches})


def _unusable(plan: Plan, found: Probe) -> dict[tuple[str, str], str]:
    return {pair: found.problems["/".join(pair)] for pair in _pairs(plan) if "/".join(pair) in found.problems}


def _without(plan: Plan, unusable: dict[tuple[str, str], str]) -> Plan:
    """The plan without what cannot be used here, and a warning for each backend and framework that is left out."""
    left = [
        launch for launch in plan.launches if (launch.cell.backend, launch.cell.framework) not in unusable
    ]
    warnings = [f"{' in '.join(pair)} is left out: {reason}" for pair, reason in unusable.items()]
    return replace(plan, launches=tuple(left), warnings=(*plan.warnings, *warnings))


@contextmanager
def opened(
    campaign: Campaign, facts: Mapping[str, object], *, max_attempts: int | None = None
) -> Iterator[list[Launch]]:
    """The campaign's folder is ours alone, what a killed dlscale left there is recorded; gives what is to run.

    `facts` go into study.json; cases that failed `max_attempts` times are not run again. Raises UsageError if the
    folder cannot be used, another dlscale holds it, or it has corrupt records.
    """
    store = campaign.store
    store.open(describe(campaign) | dict(facts))
    with store.lock():
        make_folder(campaign.spool_folder)
        supervisor.collect_leftovers(campaign.spool_folder, store)
        yield campaign.todo(store.summaries(), max_attempts=max_attempts)


def given_up(campaign: Campaign, todo: Sequence[Launch]) -> list[str]:
    """The cases that have no good record and that are not tried again: they failed too often."""
    tried = {case.id for launch in todo for case in launch.cases}
    left = campaign.todo(campaign.store.summaries())
    return [case.id for launch in left for case in launch.cases if case.id not in tried]


def run_launch(campaign: Campaign, launch: Launch) -> list[Record]:
    """Run one launch, or say in its records why it cannot be started here."""
    reason = campaign.why_not(launch)
    job = campaign.job(launch)
    return refuse(job, campaign.store, reason) if reason else run_job(job, campaign.store)


def for_jobs(
    study: Study, system: System, *, environment_name: str | None, data: str | None, results: Path
) -> Campaign:
    """A campaign that jobs will run: what compute nodes have is asked there, what is installed is asked here.

    Raises UsageError for whatever can be known to be wrong.
    """
    name = environment_name or default_environment(system)
    installation = find_installation(system, name)
    plan = _plan(study, system, environment=name, data=data)
    found = environment.probe(installation)
    environment.check_frameworks(installation, found, study.frameworks)
    fingerprint = found.fingerprint(environment.commit())
    software = json.dumps([fingerprint.code_digest, fingerprint.versions], sort_keys=True)
    return _with_folder(
        results / system.name / f"{study.name}-{environment.combine(plan.digest, software)}",
        system=system,
        installation=installation,
        fingerprint=fingerprint,
        plan=plan,
    )


def rehearsal(
    study: Study, system: System, *, environment_name: str | None, data: str | None, results: Path
) -> Campaign:
    """A campaign on a system that this machine is not: nothing is asked, and nothing can be started."""
    name = environment_name or ("site" if "site" in system.environments else next(iter(system.environments)))
    definition.one_of(f"environment on {system.name}", name, system.environments)
    one = system.environments[name]
    plan = _plan(study, system, environment=name, data=data)
    return _with_folder(
        results / system.name / f"rehearsal-{study.name}-{plan.digest[:8]}",
        system=system,
        installation=Installation(
            name=name,
            prefix=Path(one.prefix),
            python=Path(one.python or "python"),
            mpiexec=Path(one.mpiexec or "mpiexec"),
            mpi=one.mpi,
            variables=one.variables,
        ),
        fingerprint=Fingerprint(digest="", code_digest="", commit=environment.commit(), versions={}, node={}),
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
