"""Sleep by a profile (`--set compute=profile:STUDY`): measured or stored moments become numbers of the study."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from pathlib import Path

from dlscale.analysis.predict.measured_profiles import profile_of
from dlscale.analysis.predict.profile import Profile, checked
from dlscale.analysis.predict.published_profiles import load_stored, stored_names
from dlscale.base.errors import UsageError
from dlscale.benchmarks.cli.options import named_folder, study_folders
from dlscale.benchmarks.cli.request import ByProfile
from dlscale.benchmarks.records.files import load_records
from dlscale.benchmarks.records.record import Cell, Record
from dlscale.benchmarks.study.study import Study
from dlscale.benchmarks.systems.system import load_system
from dlscale.models.slept import Slept, slept_key

DIGITS = 6  # of seconds: a microsecond


def with_profiles(study: Study, asked: ByProfile, cells: Iterable[Cell], *, results: Path) -> Study:
    """The study whose `cells` sleep by the profile that was asked for, each by its own.

    Raises UsageError if one of them has none: of its workload, preset, framework, precision and local batch.
    """
    stored = _is_stored(asked)
    records = [] if stored else _profile_records(asked, results)
    slept: dict[str, Slept] = {}
    for cell in cells:
        key = _key(cell)
        if key not in slept:
            slept[key] = slept_by(_stored(asked, cell) if stored else _measured(asked, records, cell))
    return study.model_copy(update={"slept_by_profile": slept})


def slept_by(profile: Profile) -> Slept:
    """The sleep that a profile stands for, up to its last gradient; the update is computed."""
    forward = round(checked(profile).forward_seconds, DIGITS)
    ready = {
        gradient.name: max(0.0, round(gradient.ready_seconds - forward, DIGITS))
        for gradient in profile.gradients
    }
    backward = max(ready.values())
    text = json.dumps([forward, backward, ready], sort_keys=True)
    return Slept(
        forward_seconds=forward,
        backward_seconds=backward,
        source=profile.source,
        digest=hashlib.sha256(text.encode()).hexdigest()[:12],
        ready=ready,
    )


def _key(cell: Cell) -> str:
    return slept_key(
        workload=cell.workload,
        preset=cell.preset,
        framework=cell.framework,
        precision=cell.precision,
        local_batch=cell.local_batch,
    )


def _is_stored(asked: ByProfile) -> bool:
    """Whether it is a stored profile that was asked for: without a name, or by that of a system that has any."""
    return not asked.name or any(name.startswith(f"{asked.name}-") for name in stored_names())


def _stored(asked: ByProfile, cell: Cell) -> Profile:
    ending = f"-{cell.workload}"
    systems = [name.removesuffix(ending) for name in stored_names() if name.endswith(ending)]
    if asked.name:
        systems = [asked.name]  # which `load_stored` refuses if it has none of the workload
    if len(systems) != 1:
        raise UsageError(
            f"{asked.option}: {len(systems)} stored profiles of {cell.workload}; stored are: "
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
        raise _mismatch(asked, cell, f"stored of {systems[0]}", [found])
    return profile


def _measured(asked: ByProfile, records: Sequence[Record], cell: Cell) -> Profile:
    found = list(dict.fromkeys(_key(record.case.cell) for record in records))
    if _key(cell) not in found:
        raise _mismatch(asked, cell, "measured there", found)
    return profile_of(
        records,
        cell.workload,
        cell.framework,
        preset=cell.preset,
        local_batch=cell.local_batch,
        precision=cell.precision,
    )


def _profile_records(asked: ByProfile, results: Path) -> list[Record]:
    """Records of profiles of computed steps, from the latest study of that name that has any.

    An emulated study of the same name, which sleeps by them, is none. Raises UsageError if there is no such study.
    """
    latest = named_folder(results, asked.name)
    others = [folder for folder in reversed(study_folders(results)) if folder.name.startswith(asked.name)]
    for folder in [latest] if latest == Path(asked.name) else others:
        records, _ = load_records(folder)
        cells = [record.case.cell for record in records]
        found = [
            record
            for record, cell in zip(records, cells, strict=True)
            if cell.control == "profile" and not cell.slept
        ]
        if found:
            return found
    return []


def _mismatch(asked: ByProfile, cell: Cell, whose: str, found: Sequence[str]) -> UsageError:
    return UsageError(
        f"{asked.option}: no profile of {_key(cell)}; {whose}: {'; '.join(found) or 'none'}; give --workloads, "
        "--preset, --frameworks and --batch of a profile, or measure one: dlscale run weak-scaling "
        "--set controls=profile"
    )
