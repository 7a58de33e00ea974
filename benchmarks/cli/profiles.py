"""Profiles and calibrations as users name them: stored or of a study, for predictions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from dlscale.analysis.predict.profile import Profile
from dlscale.analysis.predict.published_profiles import (
    PUBLISHED_PRESET,
    load_stored,
    profile_of_file,
    public_profile,
    stored_names,
)
from dlscale.analysis.predict.scenario import Scenario
from dlscale.base.errors import UsageError
from dlscale.benchmarks.cli.options import choose_study
from dlscale.benchmarks.records.files import load_records
from dlscale.benchmarks.records.message_sizes import CAMPAIGN_FILE, latest_run
from dlscale.benchmarks.records.record import Record
from dlscale.benchmarks.systems.system import System
from dlscale.models import load_workload
from dlscale.models.frameworks import FRAMEWORKS

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

    fingerprint = _fingerprint(profiled)
    return [
        calibrated_scenario(scenario, machine, folders, sizes, fingerprint=fingerprint, force=force)
        for scenario in scenarios
    ]


def _fingerprint(folder: Path | None) -> str | None:
    """The code and machine of the only profile in a study; None without one."""
    records = _profiled(load_records(folder)[0]) if folder else []
    digests = {record.fingerprint.digest for record in records}
    return digests.pop() if len(digests) == 1 else None


def _measured(records: Sequence[Record], **wanted: Any) -> Profile:
    # Here, because measured profiles take longer to import than a stored one takes to load.
    from dlscale.analysis.predict.measured_profiles import profile_of

    return profile_of(records, **wanted)


def _profiled(records: Iterable[Record]) -> list[Record]:
    return [record for record in records if record.case.cell.control == "profile"]
