"""From launches to the jobs that a scheduler is given, and what they cost."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby

from dlscale.benchmarks.plan import Launch, Plan
from dlscale.benchmarks.record import Case
from dlscale.benchmarks.system import Policy
from dlscale.benchmarks.units import format_seconds
from dlscale.collectives import capabilities
from dlscale.models.errors import UsageError

START_SECONDS = 60.0  # of a job: modules, staging, the first look at its nodes
WARN_SECONDS = 120  # before the end of its wall time a job is told to stop


@dataclass(frozen=True, slots=True, kw_only=True)
class JobPlan:
    """One job: its launches in order, the canary's at both ends."""

    index: int
    launches: tuple[Launch, ...]
    num_nodes: int  # as many as its largest launch needs, or the partition gives; others run on the first ones of them
    seconds: float  # wall time that it asks for

    @property
    def name(self) -> str:
        """Unique within a study, and safe as a file name."""
        return f"job-{self.index:03d}"

    @property
    def billed_node_hours(self) -> float:
        """All nodes for the whole wall time: the most that a centre charges."""
        return self.num_nodes * self.seconds / 3600


def cut(
    plan: Plan,
    launches: Sequence[Launch],
    policy: Policy,
    *,
    limit: float | None,
    min_nodes: int = 1,
    first_index: int = 0,
) -> tuple[tuple[JobPlan, ...], tuple[str, ...]]:
    """The jobs that run `launches` of `plan`, and warnings. `limit`: seconds that a job may have; None: any.
    `min_nodes`: of a job, as the partition demands or bills.

    A training that is saved may take more than one job: the first is given here, `resume` cuts the next.

    A tier's blocks stay whole where that is possible, so that what is compared runs in one job. Raises UsageError if a
    single launch with its canaries does not fit into a job.
    """
    jobs: list[JobPlan] = []
    warnings: list[str] = []
    for _, of_tier in groupby(launches, key=lambda launch: launch.cases[0].block // plan.study.launches):
        blocks = [tuple(block) for _, block in groupby(of_tier, key=lambda launch: launch.cases[0].block)]
        sizes = max((launch.cell for block in blocks for launch in block), key=lambda cell: cell.num_nodes)
        share = -(-len(blocks) // min(plan.study.allocations, len(blocks)))
        units: list[tuple[Launch, ...]] = blocks
        longest = max(_seconds(plan, block, policy) for block in blocks)
        if limit is not None and longest > limit:
            units = [(launch,) for block in blocks for launch in block]
            share = len(units)
            warnings.append(
                f"a block on up to {sizes.num_nodes} nodes needs {format_seconds(longest)}, more than the "
                f"{format_seconds(limit)} of a job: its cases run in several jobs, and across jobs nothing is paired"
            )
        for members in _filled(plan, units, share, policy, limit):
            index = first_index + len(jobs)
            seconds = _seconds(plan, members, policy)
            if limit is not None and seconds > limit:
                warnings.append(
                    f"{members[0].id} needs {format_seconds(seconds)}, more than the {format_seconds(limit)} of a job: "
                    f"about {math.ceil(seconds / limit)} jobs, each from the last checkpoint on; "
                    "`dlscale resume` submits the next when one has ended"
                )
            jobs.append(
                JobPlan(
                    index=index,
                    launches=_with_canaries(plan, members, index),
                    num_nodes=max(min_nodes, *(launch.cell.num_nodes for launch in members)),
                    seconds=seconds if limit is None else min(seconds, limit),
                )
            )
    return tuple(jobs), tuple(warnings)


def _filled(
    plan: Plan, units: Sequence[tuple[Launch, ...]], share: int, policy: Policy, limit: float | None
) -> Iterable[tuple[Launch, ...]]:
    """The units in order, as many to a job as its time and its share allow."""
    members: list[Launch] = []
    count, seconds = 0, 0.0
    for unit in units:
        needed = _seconds(plan, unit, policy)
        least = _seconds(plan, unit, policy, to_end=False)
        if limit is not None and least > limit:
            raise UsageError(
                f"a job of {format_seconds(limit)} is too short: {unit[0].id} with the canaries at both ends needs "
                f"{format_seconds(least)}; ask for a longer --walltime, or for {_shorter(plan)}"
            )
        more = policy.margin * plan.seconds(unit)
        if count and (count == share or (limit is not None and seconds + more > limit)):
            yield tuple(members)
            members, count = [], 0
        members += unit
        count, seconds = count + 1, seconds + more if count else needed
    yield tuple(members)


def _seconds(plan: Plan, launches: Sequence[Launch], policy: Policy, *, to_end: bool = True) -> float:
    """Wall time for those launches with a canary at both ends, margin and warning included."""
    estimate = plan.seconds if to_end else plan.least_seconds
    return WARN_SECONDS + policy.margin * (
        START_SECONDS + estimate([*launches, *[_canary(plan, launches, 0)] * 2])
    )


def _shorter(plan: Plan) -> str:
    """What makes a launch shorter."""
    if plan.study.rules.train_steps:
        return "checkpoints at shorter intervals (--checkpoint-every)"
    return "fewer windows (--budget)"


def _with_canaries(plan: Plan, launches: tuple[Launch, ...], index: int) -> tuple[Launch, ...]:
    return (_canary(plan, launches, 2 * index), *launches, _canary(plan, launches, 2 * index + 1))


def _canary(plan: Plan, launches: Sequence[Launch], block: int) -> Launch:
    """The same training on the job's largest number of nodes, at its beginning and at its end: has anything changed?

    Its backend is the first of the study's that exchanges gradients, so that the network is looked at, too.
    """
    order = [*sorted(plan.study.backends, key=lambda name: not capabilities(name).exchanges)]
    # A reference on the whole machine may be of a backend that the study does not compare.
    compared = [launch for launch in launches if launch.cell.backend in order] or launches
    order += [launch.cell.backend for launch in launches]
    largest = max(
        compared,
        key=lambda launch: (launch.cell.num_nodes, launch.cell.num_ranks, -order.index(launch.cell.backend)),
    )
    cell = largest.cell.model_copy(update={"control": "canary"})
    return Launch(cases=(Case(cell=cell, block=block, position=0),), data=largest.data)
