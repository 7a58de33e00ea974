"""The profile of a node as a study has measured it, by its control `profile`.

How ranks differ for good is in the trainings over `none`, where no rank waits for another. A rank's difference in a
launch is log(its time / the geometric mean over ranks). Of that, what two launches of the same ranks on the same nodes
have in common lasts; the rest is the launch's. With d[b] the differences of a rank in its launches b on P ranks, the
variance of what lasts is

    sum over ranks and pairs of launches b, c of d[b] d[c]  /  (number of these pairs x (1 - 1/P))

(1 - 1/P because the mean of a launch has a part of each rank.)
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from dlscale.analysis.findings.stragglers import hosts_of, relative_seconds
from dlscale.analysis.launches import MeasuredCase, select_attempts
from dlscale.analysis.predict.profile import Gradient, Profile
from dlscale.base.errors import UsageError
from dlscale.benchmarks.records.profile import MIN_PROFILED_STEPS, StepProfile
from dlscale.benchmarks.records.record import Record

# What two profiles of one workload in one framework can differ in, and what a prediction must therefore say.
CHOICES = (
    *(
        "preset",
        "local_batch",
        "precision",
        "compiled",
        "threads_per_rank",
        "data",
    ),
)
MIN_RANKS = 4  # in a launch: the spread of fewer is not known to half of itself


def profile_of(records: Iterable[Record], workload: str, framework: str, **wanted: Any) -> Profile:
    """The profile that these records of one study have of a workload in a framework; over launches, medians.

    `wanted` are values of CHOICES, for a study with several profiles; None leaves one open. Moments are those of
    stamped steps, scaled so that the step is as long as the mean one without stamps: then a resampled step is as long
    as a measured one. Raises UsageError if there is no profile, or several, or if its launches failed, are of different
    code or machines, or have too few steps.
    """
    chosen = {name: value for name, value in wanted.items() if value is not None}
    what = f"{workload} in {framework}"
    if chosen:
        what += f" ({', '.join(f'{name} {value}' for name, value in chosen.items())})"
    of_cell = {"control": "profile", "workload": workload, "framework": framework, **chosen}
    measured = select_attempts(records)
    cases = [
        case for case in measured if all(getattr(case.cell, name) == value for name, value in of_cell.items())
    ]
    if not cases:
        raise UsageError(
            f"no profile of {what}; measure one: dlscale run weak-scaling --workloads {workload} "
            f"--frameworks {framework} --set controls=profile"
        )
    _check_one_cell(cases, what)
    good = [(case.record, case.record.profile) for case in cases if case.good and case.record.profile]
    if not good:
        failure = cases[0].record.failure
        why = failure.message if failure else "its steps were not finished"
        raise UsageError(
            f"profile of {what}: none of {len(cases)} launches is good ({why}); run the study again"
        )
    origins: dict[str, list[str]] = {
        "systems": sorted({record.system for record, _ in good}),
        "kinds of evidence": sorted({record.evidence for record, _ in good}),
        "fingerprints": sorted({record.fingerprint.digest for record, _ in good}),
    }
    for name, values in origins.items():
        if len(values) > 1:
            raise UsageError(
                f"profile of {what}: its launches are of {len(values)} {name} ({', '.join(values)}), which make no one "
                "profile; give a study of one"
            )
    variation, source = rank_variation(measured, good[0][0])
    return replace(_combined(good, what), rank_variation=variation, rank_variation_source=source)


def rank_variation(measured: Iterable[MeasuredCase], profiled: Record) -> tuple[float | None, str]:
    """(coefficient of variation over ranks, what it is from), or None and what there is none for.

    `measured` are the cases of the study, `profiled` is a record of the profile whose computation counts.
    """
    differences: dict[tuple[str, str, int], list[float]] = defaultdict(list)  # by cell, node and rank
    num_launches: dict[str, int] = defaultdict(int)
    num_ranks: dict[str, int] = {}
    for case in measured:
        if not (case.good and _computes_alike(case.record, profiled)):
            continue
        times = np.log(np.median(relative_seconds(case.record), axis=1))
        num_launches[case.cell_id] += 1
        num_ranks[case.cell_id] = len(times)
        for rank, host in enumerate(hosts_of(case.record)):
            differences[case.cell_id, host, rank].append(float(times[rank] - times.mean()))
    common, num_pairs = 0.0, 0.0
    for (cell, _, _), own in differences.items():
        common += sum(own) ** 2 - sum(value**2 for value in own)
        num_pairs += len(own) * (len(own) - 1) * (1 - 1 / num_ranks[cell])
    if not num_pairs:
        return None, (
            f"the study has no two launches of backend none on the same {MIN_RANKS} ranks or more with cores of "
            "their own"
        )
    launches = ", ".join(f"{count} on {num_ranks[cell]} ranks" for cell, count in num_launches.items())
    return math.sqrt(math.expm1(max(0.0, common / num_pairs))), f"launches of none: {launches}"


def _computes_alike(record: Record, profiled: Record) -> bool:
    """Whether a record has the times of several ranks that compute as the profile's does without waiting."""
    cell, own = record.case.cell, profiled.case.cell
    names = {"workload", "framework", *CHOICES} - {"local_batch"}
    return (
        (cell.control, cell.backend, cell.split) == ("train", "none", 1)
        and cell.num_ranks >= MIN_RANKS
        and not record.oversubscribed
        and bool(hosts_of(record))
        and all(getattr(cell, name) == getattr(own, name) for name in names)
        and (record.system, record.evidence, record.fingerprint.digest)
        == (profiled.system, profiled.evidence, profiled.fingerprint.digest)
    )


def _check_one_cell(cases: Sequence[MeasuredCase], what: str) -> None:
    if len({case.cell_id for case in cases}) == 1:
        return
    differing = {
        name: values
        for name in CHOICES
        if len(values := list(dict.fromkeys(str(getattr(case.cell, name)) for case in cases))) > 1
    }
    found = "; ".join(f"{name} {', '.join(values)}" for name, values in differing.items())
    raise UsageError(f"several profiles of {what}: {found or 'of several cells'}; say which one")


def _combined(good: Sequence[tuple[Record, StepProfile]], what: str) -> Profile:
    records, profiles = [record for record, _ in good], [profile for _, profile in good]
    steps = tuple(seconds for profile in profiles for seconds in profile.plain_seconds)
    if len(steps) < MIN_PROFILED_STEPS:
        raise UsageError(
            f"profile of {what}: {len(steps)} steps, of which {MIN_PROFILED_STEPS} are needed; run the study again"
        )
    backward = float(np.median([profile.backward[-1].median for profile in profiles]))
    update = float(np.median([profile.update.median for profile in profiles]))
    scale = float(np.mean(steps)) / (backward + update)

    def scaled(moments: Iterable[float]) -> float:
        return scale * float(np.median(list(moments)))

    ready = [{each.name: each.ready.median for each in profile.gradients} for profile in profiles]
    if any(moments.keys() != ready[0].keys() for moments in ready):
        raise UsageError(
            f"profile of {what}: its launches have different gradients; run it again in a new folder"
        )
    passed = [end.median for end in profiles[0].backward[:-1]]
    gradients = [
        Gradient(
            name=each.name,
            num_bytes=each.num_bytes,
            ready_seconds=scaled(moments[each.name] for moments in ready),
            objective=bisect_left(passed, each.ready.median),
        )
        for each in profiles[0].gradients
    ]
    cell = records[0].case.cell
    fixed = [cost for profile in profiles if (cost := fixed_cost(profile, cell.local_batch)) is not None]
    middle = float(np.median(fixed)) if fixed else 0.0
    return Profile(
        workload=cell.workload,
        preset=cell.preset,
        framework=cell.framework,
        local_batch=cell.local_batch,
        forward_seconds=scaled(profile.forward[0].median for profile in profiles),
        backward_seconds=scale * backward,
        update_seconds=scale * update,
        gradients=tuple(sorted(gradients, key=lambda gradient: gradient.ready_seconds)),
        step_seconds=steps,
        fixed_seconds=min(middle, scale * backward),
        fixed_factors=(min(fixed) / middle, max(fixed) / middle) if middle else (1.0, 1.0),
        evidence=records[0].evidence,
        source=f"{records[0].study}, {cell.id}",
        derived=(
            f"moments within a step: medians of stamped steps, times {scale:.3f}, by which the mean step without "
            "stamps is longer",
            _fixed_text(profiles[0], fixed, cell.local_batch),
        ),
    )


def fixed_cost(profile: StepProfile, local_batch: int) -> float | None:
    """Seconds of a step beside its samples and its update, by the straight line through two batches; None of one."""
    if profile.second is None:
        return None
    here, there = (float(np.median(steps)) for steps in (profile.plain_seconds, profile.second.seconds))
    ratio = profile.second.local_batch / local_batch
    return max(0.0, (ratio * here - there) / (ratio - 1) - profile.update.median)


def _fixed_text(profile: StepProfile, fixed: Sequence[float], local_batch: int) -> str:
    if profile.second is None:
        return "computing in proportion to the samples (the profile has no second batch)"
    least, most = (f"{1e3 * cost:.3g}" for cost in (min(fixed), max(fixed)))
    return (
        f"{least if least == most else f'{least} to {most}'} ms of a step whatever its batch, from steps of "
        f"{local_batch} and {profile.second.local_batch} samples"
    )
