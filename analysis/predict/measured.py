"""The profile of a node as a study has measured it, by its control `profile`."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from dlscale.analysis.load import Study
from dlscale.analysis.predict.network import input_of
from dlscale.analysis.predict.profile import Gradient, Profile
from dlscale.analysis.text import seconds_text
from dlscale.base.errors import UsageError
from dlscale.benchmarks.records.record import MIN_PROFILED_STEPS, Record, StepProfile

# What two profiles of one workload in one framework can differ in, and what a prediction must therefore say.
CHOICES = ("preset", "local_batch", "precision", "compiled", "threads_per_rank", "data")


def profile_of(records: Iterable[Record], workload: str, framework: str, **wanted: Any) -> Profile:
    """The one profile that a study's records have of a workload in a framework; over launches, medians.

    `wanted` are values of CHOICES; None leaves one open. Moments are those of stamped steps, scaled so that a resampled
    step is as long as the mean one without stamps. Raises UsageError, too, for launches of different code or machines.
    """
    chosen = {name: value for name, value in wanted.items() if value is not None}
    what = f"{workload} in {framework}"
    if chosen:
        what += f" ({', '.join(f'{name} {value}' for name, value in chosen.items())})"
    study = Study([record for record in records if record.case.cell.control == "profile"])
    found = study.launches
    for name, value in {"workload": workload, "framework": framework, **chosen}.items():
        found = found[found[name] == value]
    if not len(found):
        raise UsageError(
            f"no profile of {what}; measure one: dlscale run weak-scaling --workloads {workload} "
            f"--frameworks {framework} --set controls=profile"
        )
    differing = {name: list(dict.fromkeys(found[name].astype(str))) for name in CHOICES}
    several = [f"{name} {', '.join(values)}" for name, values in differing.items() if len(values) > 1]
    if found["id"].nunique() > 1:
        raise UsageError(
            f"several profiles of {what}: {'; '.join(several) or 'of several cells'}; say which one"
        )
    launched = zip((study.records[number] for number in found["number"]), found["why"], strict=True)
    own = [(record, record.profile) for record, why in launched if not why and record.profile]
    if not own:
        why = found["why"].iloc[0] or "its steps were not finished"
        raise UsageError(
            f"profile of {what}: none of {len(found)} launches is good ({why}); run the study again"
        )
    alike = [record for record in study.records if record.good and record.case.cell == own[0][0].case.cell]
    for name, values in {
        "systems": {record.system for record in alike},
        "kinds of evidence": {str(record.evidence) for record in alike},
        "fingerprints": {record.fingerprint.digest for record in alike},
    }.items():
        if len(values) > 1:
            raise UsageError(
                f"profile of {what}: its launches are of {len(values)} {name} ({', '.join(sorted(values))}), which "
                "make no one profile; give a study of one"
            )
    return _combined(own, what)


def _combined(good: Sequence[tuple[Record, StepProfile]], what: str) -> Profile:
    record, first = good[0]
    cell, profiles = record.case.cell, [profile for _, profile in good]
    steps = tuple(seconds for profile in profiles for seconds in profile.plain_seconds)
    if len(steps) < MIN_PROFILED_STEPS:
        raise UsageError(
            f"profile of {what}: {len(steps)} steps, of which {MIN_PROFILED_STEPS} are needed; run the study again"
        )
    ready = [{each.name: each.ready.median for each in profile.gradients} for profile in profiles]
    if any(moments.keys() != ready[0].keys() for moments in ready):
        raise UsageError(
            f"profile of {what}: its launches have different gradients; run it again in a new folder"
        )
    backward, update, forward = (
        float(np.median(moments))
        for moments in zip(
            *((it.backward[-1].median, it.update.median, it.forward[0].median) for it in profiles),
            strict=True,
        )
    )
    scale = float(np.mean(steps)) / (backward + update)
    passed = [end.median for end in first.backward[:-1]]
    gradients = [
        Gradient(
            name=each.name,
            num_bytes=each.num_bytes,
            ready_seconds=scale * float(np.median([moments[each.name] for moments in ready])),
            objective=bisect_left(passed, each.ready.median),
        )
        for each in first.gradients
    ]
    fixed = [cost for profile in profiles if (cost := fixed_cost(profile, cell.local_batch)) is not None]
    middle = float(np.median(fixed)) if fixed else 0.0
    mean = float(np.mean(steps))
    source = f"{record.study}, {cell.id}"
    beside, of_batches = "none", "the profile has no second batch"
    if fixed and first.second:
        beside = f"{seconds_text(min(fixed))} to {seconds_text(max(fixed))}"
        of_batches = f"steps of {cell.local_batch} and {first.second.local_batch} samples"
    told = (
        ("time of a step", seconds_text(mean), record.evidence, f"{len(steps)} steps of {source}"),
        ("moments within a step", f"times {scale:.3f}", record.evidence, "stamped steps, longer than others"),
        ("part of a step that does not depend on the batch", beside, record.evidence, of_batches),
    )
    return Profile(
        workload=cell.workload,
        preset=cell.preset,
        framework=cell.framework,
        local_batch=cell.local_batch,
        forward_seconds=scale * forward,
        backward_seconds=scale * backward,
        update_seconds=scale * update,
        gradients=tuple(sorted(gradients, key=lambda gradient: gradient.ready_seconds)),
        step_seconds=steps,
        fixed_seconds=min(middle, scale * backward),
        fixed_factors=(min(fixed) / middle, max(fixed) / middle) if middle else (1.0, 1.0),
        evidence=record.evidence,
        source=source,
        origins=tuple(input_of(*each) for each in told),
    )


def fixed_cost(profile: StepProfile, local_batch: int) -> float | None:
    """Seconds of a step beside its samples and its update, by the straight line through two batches; None of one."""
    if profile.second is None:
        return None
    here, there = (float(np.median(steps)) for steps in (profile.plain_seconds, profile.second.seconds))
    ratio = profile.second.local_batch / local_batch
    return max(0.0, (ratio * here - there) / (ratio - 1) - profile.update.median)
