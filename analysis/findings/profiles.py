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
from dlscale.analysis.statistics import Interval, median_interval
from dlscale.analysis.text import interval_columns, workload_title
from dlscale.benchmarks.records.profile import StepProfile
from dlscale.benchmarks.records.record import Cell

MEGABYTE = 1e6


@dataclass(frozen=True, slots=True, kw_only=True)
class StepParts:
    """The parts of a step of one cell with control `profile`, in seconds; medians over launches."""

    cell: Cell
    evidence: str
    num_launches: int
    num_steps: int  # with stamps, over all launches
    num_gradients: int
    num_bytes: int  # of all gradients
    step: float  # whole, without stamps
    fetching: float
    forward: float  # of all passes
    backward: float
    update: float
    first_ready: float  # from the start of the step
    last_ready: float
    median_ready: float  # when half of the bytes are complete
    stamps: Interval  # steps with stamps over steps without

    @property
    def hideable(self) -> float:
        """The seconds of computation that follow the first complete gradient, without the update."""
        return self.last_ready - self.first_ready


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
        step=median(lambda profile: float(np.median(profile.plain_seconds))),
        fetching=median(lambda profile: profile.fetched.median),
        forward=median(_forward),
        backward=median(
            lambda profile: sum(
                end.median - begin.median
                for begin, end in zip(profile.forward, profile.backward, strict=True)
            )
        ),
        update=median(lambda profile: profile.update.median),
        first_ready=median(lambda profile: profile.gradients[0].ready.median),
        last_ready=median(lambda profile: profile.gradients[-1].ready.median),
        median_ready=median(_half_of_the_bytes),
        stamps=stamped_over_plain(profiles),
    )


def _forward(profile: StepProfile) -> float:
    """A pass begins with the batch, or when the backward pass before it has ended."""
    begins = [profile.fetched, *profile.backward[:-1]]
    return sum(end.median - begin.median for begin, end in zip(begins, profile.forward, strict=True))


def _half_of_the_bytes(profile: StepProfile) -> float:
    complete = np.cumsum([gradient.num_bytes for gradient in profile.gradients])
    return profile.gradients[int(np.searchsorted(complete, complete[-1] / 2))].ready.median


def to_profile_row(parts: StepParts) -> dict[str, Any]:
    """The row of a profile; times in seconds."""
    cell = parts.cell
    return {
        "workload": cell.workload,
        "preset": cell.preset,
        "framework": cell.framework,
        "local_batch": cell.local_batch,
        "precision": cell.precision,
        "evidence": parts.evidence,
        "num_launches": parts.num_launches,
        "num_steps": parts.num_steps,
        "num_gradients": parts.num_gradients,
        "num_bytes": parts.num_bytes,
        "step_seconds": parts.step,
        "fetching_seconds": parts.fetching,
        "forward_seconds": parts.forward,
        "backward_seconds": parts.backward,
        "update_seconds": parts.update,
        "first_ready_seconds": parts.first_ready,
        "median_ready_seconds": parts.median_ready,
        "last_ready_seconds": parts.last_ready,
        "hideable_seconds": parts.hideable,
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
        Column(
            "gradients",
            lambda parts: shown_number(parts.num_bytes / MEGABYTE, "{:.3g}".format),
            unit="MB",
            detail=True,
        ),
        Column("step", _milliseconds(lambda parts: parts.step), unit="ms"),
        Column("fetch", _milliseconds(lambda parts: parts.fetching), unit="ms"),
        Column("forward", _milliseconds(lambda parts: parts.forward), unit="ms"),
        Column("backward", _milliseconds(lambda parts: parts.backward), unit="ms"),
        Column("update", _milliseconds(lambda parts: parts.update), unit="ms"),
        Column("first", _milliseconds(lambda parts: parts.first_ready), unit="ms"),
        Column("half", _milliseconds(lambda parts: parts.median_ready), unit="ms", detail=True),
        Column("last", _milliseconds(lambda parts: parts.last_ready), unit="ms"),
        Column("can hide", _milliseconds(lambda parts: parts.hideable), unit="ms"),
        Column("stamps", lambda parts: parts.stamps),
        Column("steps", lambda parts: parts.num_steps, detail=True),
    ),
    data=to_profile_row,
    legend=LEGEND,
    tags=lambda parts: tags_of(parts.cell),
)

FINDINGS = (
    Finding(
        name="profiles",
        title="Inside a step",
        compute=lambda study: step_parts(study.cells),
        table=PROFILES,
    ),
)
