"""Profiles and calibrations as users name them: stored or of a study, for predictions and for sleep as computation."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from dlscale.analysis.predict.profile import Profile, slept_by
from dlscale.analysis.predict.published_profiles import (
    PUBLISHED_PRESET,
    load_stored,
    profile_of_file,
    public_profile,
    stored_names,
)
from dlscale.analysis.predict.scenario import Scenario
from dlscale.base.errors import UsageError
from dlscale.benchmarks.cli.options import choose_study, study_folders
from dlscale.benchmarks.records.cell import Cell
from dlscale.benchmarks.records.files import load_records
from dlscale.benchmarks.records.message_sizes import CAMPAIGN_FILE, latest_run
from dlscale.benchmarks.records.record import Record
from dlscale.benchmarks.study.study import Study
from dlscale.benchmarks.systems.system import System, load_system
from dlscale.models import load_workload
from dlscale.models.frameworks import FRAMEWORKS
from dlscale.models.slept import ByProfile, Slept, slept_key

LATEST_RUN = "collectives"


def profiles_of(
    machine: System,
    workload: str,
    folder: Path | None = None,
    *,
    frameworks: Sequence[str] | None,
    preset: str | None,
    device: str | None = None,
    ranks_per_node: int | None = None,
) -> Iterator[Profile]:
    """A profile per framework: of the study in `folder`, else stored, else derived from what is public.

    `machine` has all that predictions need. Raises UsageError.
    """
    facts = load_workload(workload)
    if folder is None:
        placement = machine.placement
        shared = ranks_per_node or (placement.ranks_per_node if placement else 1)
        for framework in frameworks or [_usual_framework(machine, workload)]:
            facts.check_framework(framework)
            usual = preset or PUBLISHED_PRESET
            yield public_profile(machine, workload, usual, framework, device=device, ranks_per_node=shared)
        return
    records, _ = load_records(folder)
    cells = [record.case.cell for record in _profiled(records)]
    found = {cell.framework for cell in cells if cell.workload == workload}
    for framework in frameworks or sorted(found) or FRAMEWORKS[:1]:
        own: dict[str, Any] = {"workload": workload, "framework": framework, "preset": preset}
        yield _measured(records, **own)


def _usual_framework(machine: System, workload: str) -> str:
    """That of the stored profile, else the one that a study uses on the system."""
    if f"{machine.name}-{workload}" in stored_names():
        return load_stored(machine, workload).framework
    stated = machine.defaults.frameworks if machine.defaults else None
    return (stated or FRAMEWORKS)[0]


def stated_profile(path: Path, machine: System, **asked: Sequence[str] | None) -> Profile:
    """The profile that a file of the user's states, each number with its source.

    `asked` are the workloads, frameworks and presets that were, None for any. Raises UsageError for a file that is not
    of these or of another machine.
    """
    profile = replace(profile_of_file(str(path), machine), evidence="stated")
    for option, names in asked.items():
        own = getattr(profile, option.removesuffix("s"))
        if names and list(names) != [own]:
            raise UsageError(
                f"--profile {path} is of {option.removesuffix('s')} {own}, and --{option} is {','.join(names)}; "
                "leave one of the two out"
            )
    return profile


def calibrating_folder(results: Path, name: str) -> Path:
    """The folder of a study or of a collectives run, by path or name; `collectives` is the latest run.

    Raises UsageError for what is neither.
    """
    if name == LATEST_RUN:
        return latest_run(results)
    for folder in (Path(name), results / LATEST_RUN / name):
        if (folder / CAMPAIGN_FILE).is_file():
            return folder
    return choose_study(results, name)


def calibrated(
    scenarios: Iterable[Scenario],
    sizes: Sequence[int],
    machine: System,
    folders: Sequence[Path],
    *,
    profiled: Path | None,
    force: bool,
) -> list[Scenario]:
    """The scenarios on the network that these folders calibrate, with the code of the study that was profiled."""
    # Here, because the fit takes longer to import than a prediction takes.
    from dlscale.analysis.predict.calibration_records import calibrated_scenario
    from dlscale.benchmarks.launch.configuration import stated_emulation, stated_fabric

    links, fingerprint = {**stated_fabric(machine), **stated_emulation(machine)}, _fingerprint(profiled)
    return [
        calibrated_scenario(
            scenario, machine, folders, sizes, links=links, fingerprint=fingerprint, force=force
        )
        for scenario in scenarios
    ]


def _fingerprint(folder: Path | None) -> str | None:
    """The code and machine of the only profile in a study; None without one."""
    records = _profiled(load_records(folder)[0]) if folder else []
    digests = {record.fingerprint.digest for record in records}
    return digests.pop() if len(digests) == 1 else None


def with_profiles(study: Study, named: ByProfile, cells: Iterable[Cell], *, results: Path) -> Study:
    """The study whose `cells` sleep by the profile that was `named`, each by its own.

    Raises UsageError if one of them has none: of its workload, preset, framework, precision and local batch.
    """
    # A stored profile has no name, or that of its system.
    is_stored = not named.name or any(name.startswith(f"{named.name}-") for name in stored_names())
    records = [] if is_stored else _computed_profiles(named.name, results)
    slept: dict[str, Slept] = {}
    for cell in cells:
        key = _key(cell)
        if key not in slept:
            profile = _stored_for(named, cell) if is_stored else _measured_for(named, records, cell)
            slept[key] = slept_by(profile)
    return study.model_copy(update={"slept_by_profile": slept})


def _stored_for(named: ByProfile, cell: Cell) -> Profile:
    ending = f"-{cell.workload}"
    systems = [name.removesuffix(ending) for name in stored_names() if name.endswith(ending)]
    if named.name:
        systems = [named.name]  # which `load_stored` refuses if it has none of the workload
    if len(systems) != 1:
        raise UsageError(
            f"{named.option}: {len(systems)} stored profiles of {cell.workload}; stored are: "
            f"{', '.join(stored_names())}; give the system of one, or a study that measured control profile: "
            "--set compute=profile:STUDY"
        )
    profile = load_stored(load_system(systems[0]), cell.workload)
    found = slept_key(
        workload=profile.workload,
        preset=profile.preset,
        framework=profile.framework,
        precision="fp32",
        local_batch=profile.local_batch,
    )
    if found != _key(cell):
        raise _mismatch(named, cell, f"stored of {systems[0]}", [found])
    return profile


def _measured_for(named: ByProfile, records: Sequence[Record], cell: Cell) -> Profile:
    found = list(dict.fromkeys(_key(record.case.cell) for record in records))
    if _key(cell) not in found:
        raise _mismatch(named, cell, "measured there", found)
    own: dict[str, Any] = {"workload": cell.workload, "framework": cell.framework, "preset": cell.preset}
    return _measured(records, **own, local_batch=cell.local_batch, precision=cell.precision)


def _measured(records: Sequence[Record], **wanted: Any) -> Profile:
    # Here, because measured profiles take longer to import than a stored one takes to load.
    from dlscale.analysis.predict.measured_profiles import profile_of

    return profile_of(records, **wanted)


def _computed_profiles(name: str, results: Path) -> list[Record]:
    """Records of profiles of computed steps, from the latest study of that name that has any.

    An emulated study of the same name, which sleeps by them, is none. Raises UsageError if there is no such study.
    """
    latest = choose_study(results, name)
    others = [folder for folder in reversed(study_folders(results)) if folder.name.startswith(name)]
    for folder in [latest] if latest == Path(name) else others:
        records, _ = load_records(folder)
        if found := [record for record in _profiled(records) if not record.case.cell.slept]:
            return found
    return []


def _profiled(records: Iterable[Record]) -> list[Record]:
    return [record for record in records if record.case.cell.control == "profile"]


def _key(cell: Cell) -> str:
    return slept_key(
        workload=cell.workload,
        preset=cell.preset,
        framework=cell.framework,
        precision=cell.precision,
        local_batch=cell.local_batch,
    )


def _mismatch(named: ByProfile, cell: Cell, whose: str, found: Sequence[str]) -> UsageError:
    return UsageError(
        f"{named.option}: no profile of {_key(cell)}; {whose}: {'; '.join(found) or 'none'}; give --workloads, "
        "--preset, --frameworks and --batch of a profile, or measure one: dlscale run weak-scaling "
        "--set controls=profile"
    )
