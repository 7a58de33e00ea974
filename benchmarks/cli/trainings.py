"""Which trainings are predicted, for `dlscale predict` and for rehearsals: profiles, scenarios, calibrations."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from dlscale.analysis.predict.profile import Profile
from dlscale.analysis.predict.public_profiles import (
    PUBLISHED_PRESET,
    profile_of_file,
    public_profile,
    stored_profile,
)
from dlscale.analysis.predict.scenario import Scenario
from dlscale.base.errors import UsageError
from dlscale.benchmarks.cli.options import choose_study
from dlscale.benchmarks.records.record import Record
from dlscale.benchmarks.records.store import load_records
from dlscale.benchmarks.study.expand import num_servers
from dlscale.benchmarks.study.study import check_servers
from dlscale.benchmarks.systems.system import System
from dlscale.models import load_workload
from dlscale.models.frameworks import FRAMEWORKS

LATEST_RUN = "collectives"


def servers_of(text: str) -> Callable[[int], int]:
    """Ranks -> servers, of a number or a ratio to the ranks. Raises UsageError."""
    try:
        check_servers([text])
    except ValueError as error:
        raise UsageError(f"--set servers: {error}") from None
    return lambda num_ranks: num_servers(text, num_ranks)


def public_profiles(
    machine: System,
    workload: str,
    *,
    frameworks: Sequence[str] | None,
    preset: str | None,
    device: str | None = None,
    ranks_per_node: int | None = None,
) -> Iterator[Profile]:
    """A profile per framework, stored or derived from what is public. Raises UsageError.

    The framework is by default that of the stored profile, else the one that a study uses on the system.
    """
    if not frameworks:
        stored, stated = stored_profile(machine, workload), machine.defaults and machine.defaults.frameworks
        frameworks = [stored.framework if stored else (stated or FRAMEWORKS)[0]]
    shared = ranks_per_node or (machine.placement.ranks_per_node if machine.placement else 1)
    for framework in frameworks:
        load_workload(workload).check_framework(framework)
        usual = preset or PUBLISHED_PRESET
        yield public_profile(machine, workload, usual, framework, device=device, ranks_per_node=shared)


def measured_profiles(
    folder: Path, workload: str, *, frameworks: Sequence[str] | None, preset: str | None
) -> Iterator[Profile]:
    """A profile per framework that the study in `folder` has measured. Raises UsageError."""
    from dlscale.analysis.predict.measured import profile_of  # takes longer to import than a stored one

    records = _profiled(folder)
    cells = [record.case.cell for record in records]
    found = {cell.framework for cell in cells if cell.workload == workload}
    for framework in frameworks or sorted(found) or FRAMEWORKS[:1]:
        yield profile_of(records, workload, framework, preset=preset)


def stated_profile(path: Path, machine: System, **asked: Sequence[str] | None) -> Profile:
    """The profile that a file of the user's states, each number with its source.

    `asked` are the workloads, frameworks and presets that were, None for any. Raises UsageError for a file that is not
    of these or of another machine.
    """
    profile = profile_of_file(str(path), machine, "stated")
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
    from dlscale.benchmarks.records.message_sizes import CAMPAIGN_FILE, latest_run  # 0.1 s

    if name == LATEST_RUN:
        return latest_run(results)
    runs = (Path(name), results / LATEST_RUN / name)
    found = next((folder for folder in runs if (folder / CAMPAIGN_FILE).is_file()), None)
    return found or choose_study(results, name)


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
    from dlscale.analysis.predict.calibrating import calibrated_scenario  # the fit's libraries take long

    digests = {record.fingerprint.digest for record in _profiled(profiled)} if profiled else set()
    fingerprint = digests.pop() if len(digests) == 1 else None
    return [
        calibrated_scenario(scenario, machine, folders, sizes, fingerprint=fingerprint, force=force)
        for scenario in scenarios
    ]


def _profiled(folder: Path) -> list[Record]:
    return [record for record in load_records(folder)[0] if record.case.cell.control == "profile"]
