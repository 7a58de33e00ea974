"""Profiles: where the time of a step of one rank goes, and how much of an exchange backpropagation could hide.

Control `profile` stamps every other step. Each moment is the median over a launch's stamped steps, and over launches
their median. An exchange can begin with the first gradient, and what is computed after that can hide it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dlscale.analysis.declare import Column, TableOf, shown_number, tags_of
from dlscale.analysis.finding import Finding
from dlscale.analysis.launches import CellLaunches, good_launches
from dlscale.analysis.records import attributes
from dlscale.analysis.statistics import Interval, median_interval
from dlscale.analysis.text import interval_columns, number, workload_title
from dlscale.benchmarks.records.cell import Cell
from dlscale.benchmarks.records.profile import Quantiles, StepProfile


@dataclass(frozen=True, slots=True, kw_only=True)
class StepParts:
    """The parts of a step of one cell with control `profile`, in seconds; medians over launches."""

    cell: Cell
    evidence: str
    num_launches: int
    num_steps: int  # with stamps, over all launches
    num_gradients: int
    num_bytes: int  # of all gradients
    step_seconds: float  # whole, without stamps
    fetching_seconds: float
    forward_seconds: float  # of all passes
    backward_seconds: float
    update_seconds: float
    first_ready_seconds: float  # from the start of the step
    last_ready_seconds: float
    median_ready_seconds: float  # when half of the bytes are complete
    stamps: Interval  # steps with stamps over steps without

    @property
    def hideable_seconds(self) -> float:
        """The seconds of computation that follow the first complete gradient, without the update."""
        return self.last_ready_seconds - self.first_ready_seconds


def step_parts(measured: Iterable[CellLaunches]) -> list[StepParts]:
    """One per cell with a profile and kind of evidence."""
    return [
        _parts(launches, profiles)
        for launches in good_launches(measured, controls={"profile"})
        if (profiles := [record.profile for record in launches.records if record.profile])
    ]


def stamped_over_plain(profiles: Sequence[StepProfile]) -> Interval:
    """What stamps cost: the median over rounds of four steps, two of either kind, with its interval.

    Rounds of one launch are neighbours, so the interval is that of these launches, not of further ones.
    """
    return median_interval([stamped / plain for profile in profiles for plain, stamped in _rounds(profile)])


def _rounds(profile: StepProfile) -> list[tuple[float, float]]:
    """Seconds of the (plain, stamped) steps of each round; of what is no round, all together."""
    plain, stamped = np.array(profile.plain_seconds), np.array(profile.stamped_seconds)
    if len(plain) != len(stamped) or len(plain) % 2 or not len(plain):
        return [(float(plain.mean()), float(stamped.mean()))]
    pairs = np.column_stack([plain.reshape(-1, 2).sum(axis=1), stamped.reshape(-1, 2).sum(axis=1)])
    return [(float(one), float(other)) for one, other in pairs]


def _parts(launches: CellLaunches, profiles: Sequence[StepProfile]) -> StepParts:
    def median(value: Callable[[StepProfile], float]) -> float:
        return float(np.median([value(profile) for profile in profiles]))

    return StepParts(
        cell=launches.cell,
        evidence=launches.evidence,
        num_launches=len(profiles),
        num_steps=sum(len(profile.stamped_seconds) for profile in profiles),
        num_gradients=len(profiles[0].gradients),
        num_bytes=sum(gradient.num_bytes for gradient in profiles[0].gradients),
        step_seconds=median(lambda profile: float(np.median(profile.plain_seconds))),
        fetching_seconds=median(lambda profile: profile.fetched.median),
        forward_seconds=median(_forward),
        backward_seconds=median(lambda profile: _between(profile.forward, profile.backward)),
        update_seconds=median(lambda profile: profile.update.median),
        first_ready_seconds=median(lambda profile: profile.gradients[0].ready.median),
        last_ready_seconds=median(lambda profile: profile.gradients[-1].ready.median),
        median_ready_seconds=median(_half_of_the_bytes),
        stamps=stamped_over_plain(profiles),
    )


def _forward(profile: StepProfile) -> float:
    """A pass begins with the batch, or when the backward pass before it has ended."""
    begins = [profile.fetched, *profile.backward[:-1]]
    return _between(begins, profile.forward)


def _between(begins: Sequence[Quantiles], ends: Sequence[Quantiles]) -> float:
    return sum(end.median - begin.median for begin, end in zip(begins, ends, strict=True))


def _half_of_the_bytes(profile: StepProfile) -> float:
    complete = np.cumsum([gradient.num_bytes for gradient in profile.gradients])
    return profile.gradients[int(np.searchsorted(complete, complete[-1] / 2))].ready.median


def to_profile_row(parts: StepParts) -> dict[str, Any]:
    """The row of a profile; times in seconds."""
    return {
        **attributes(parts.cell, "workload preset framework local_batch precision"),
        **attributes(parts, "evidence num_launches num_steps num_gradients num_bytes"),
        **attributes(parts, "step_seconds fetching_seconds forward_seconds backward_seconds update_seconds"),
        **attributes(parts, "first_ready_seconds median_ready_seconds last_ready_seconds hideable_seconds"),
        **interval_columns("stamps_ratio", parts.stamps),
    }


def _milliseconds(value: Callable[[StepParts], float]) -> Callable[[StepParts], Any]:
    return lambda parts: shown_number(1e3 * value(parts), "{:.3g}".format)


LEGEND = (
    "Medians over stamped steps of 1 rank without communication, and over launches. First, last: from the start of the "
    "step until the first and the last gradient were complete; half: those with half of the bytes. Can hide: "
    "from the first to the last, the most of an exchange that backpropagation can hide. Stamps: steps with them over "
    "steps without, in turns."
)
PROFILES = TableOf[StepParts](
    name="profiles",
    caption="Where the time of a step goes, on 1 rank without communication",
    columns=(
        Column("workload", lambda parts: workload_title(parts.cell.workload), numeric=False),
        Column("framework", lambda parts: parts.cell.framework, numeric=False),
        Column("batch", lambda parts: parts.cell.local_batch),
        Column("gradients", lambda parts: number(parts.num_bytes / 1e6), unit="MB", detail=True),
        Column("step", _milliseconds(lambda parts: parts.step_seconds), unit="ms"),
        Column("fetch", _milliseconds(lambda parts: parts.fetching_seconds), unit="ms"),
        Column("forward", _milliseconds(lambda parts: parts.forward_seconds), unit="ms"),
        Column("backward", _milliseconds(lambda parts: parts.backward_seconds), unit="ms"),
        Column("update", _milliseconds(lambda parts: parts.update_seconds), unit="ms"),
        Column("first", _milliseconds(lambda parts: parts.first_ready_seconds), unit="ms"),
        Column("half", _milliseconds(lambda parts: parts.median_ready_seconds), unit="ms", detail=True),
        Column("last", _milliseconds(lambda parts: parts.last_ready_seconds), unit="ms"),
        Column("can hide", _milliseconds(lambda parts: parts.hideable_seconds), unit="ms"),
        Column("stamps", lambda parts: parts.stamps),
        Column("steps", lambda parts: parts.num_steps, detail=True),
    ),
    data=to_profile_row,
    legend=LEGEND,
    tags=lambda parts: tags_of(parts.cell),
)

FINDINGS = (
    Finding(
        name="profiles", title="Inside a step", compute=lambda study: step_parts(study.cells), table=PROFILES
    ),
)
