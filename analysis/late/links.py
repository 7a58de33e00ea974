"""What records say of slow links: hosts that are not late, but whose presence makes steps over a backend longer.

Ranks that exchange wait for each other, so each of their windows ends on all ranks at once, and the times of one launch
do not show whose link it was. What can be compared are launches on different nodes: was the exchange longer whenever a
host took part? Launches of one batch job share its nodes and its neighbours, so a job counts once. Hosts that were
always there together cannot be told apart. All of that needs several nodes on machines of their own, and jobs enough.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dlscale.analysis.late.slowness import ALPHA, BAND, NUM_DRAWS
from dlscale.analysis.statistics import Interval, block_ratio

_SEED = 2018


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """The launches of one batch job, or one launch without any: who took part, and how long its exchange made a step.

    `ratio`: the step over the backend by that of the latest rank of `none` beside it.
    """

    hosts: frozenset[str]
    ratio: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SlowLink:
    """Hosts with whom steps are longer by BAND or more than without them; several were always there together."""

    hosts: tuple[str, ...]
    slower: Interval
    p_value: float

    @property
    def certain(self) -> bool:
        """Whether it is beyond chance, all groups of hosts taken together."""
        return self.p_value <= ALPHA


def slow_links(jobs: Sequence[Job]) -> list[SlowLink]:
    """The groups of hosts with whom the exchange takes longer.

    A group's statistic is the mean log ratio of the jobs with it minus that of the jobs without it, in units of what
    so many and so many differ by; its p value is that of the largest one over all groups, when the jobs' ratios are
    dealt out anew.
    """
    groups = _groups(jobs)
    if not groups:
        return []
    logs = np.log([job.ratio for job in jobs])
    present = np.array(list(groups.values()), bool)  # [groups][jobs]
    generator = np.random.default_rng(_SEED)
    dealt = generator.permuted(np.tile(logs, (NUM_DRAWS, 1)), axis=1)
    observed = _statistics(logs[None, :], present)[0]
    largest = _statistics(dealt, present).max(axis=1)
    found = []
    for index, (hosts, there) in enumerate(groups.items()):
        ratios: dict[bool, dict[Hashable, float]] = {True: {}, False: {}}
        for number, (job, with_) in enumerate(zip(jobs, there, strict=True)):
            ratios[with_][number] = job.ratio
        slower = block_ratio(ratios[True], ratios[False]).excess()
        if slower.center >= BAND:
            p_value = float((1 + np.sum(largest >= observed[index] - 1e-12)) / (1 + NUM_DRAWS))
            found.append(SlowLink(hosts=hosts, slower=slower, p_value=p_value))
    return found


def why_not(jobs: Sequence[Job]) -> str:
    """Why the jobs cannot show a slow link, whatever they measured; empty if they can."""
    groups = _groups(jobs)
    if not groups:
        return "all launches ran on the same nodes, and ranks that exchange wait for each other"
    least = min(1 / math.comb(len(jobs), sum(there)) for there in groups.values())
    if least > ALPHA:
        return f"{len(jobs)} jobs on different nodes are too few to tell one host from chance"
    return ""


def no_network(boot_ids: Mapping[str, str]) -> str:
    """Why nothing goes over a network; empty if something does. `boot_ids`: host -> its machine."""
    if len(boot_ids) < 2:
        return "all ranks are on one node, and there is no link between nodes"
    if len(set(boot_ids.values())) < len(boot_ids):
        return "nodes share a machine, and there is no link between them"
    return ""


def _groups(jobs: Sequence[Job]) -> dict[tuple[str, ...], tuple[bool, ...]]:
    """Hosts that took part in the same jobs, in some but not in all."""
    patterns: dict[tuple[bool, ...], list[str]] = {}
    for host in sorted(frozenset().union(*(job.hosts for job in jobs))):
        patterns.setdefault(tuple(host in job.hosts for job in jobs), []).append(host)
    return {tuple(hosts): there for there, hosts in patterns.items() if any(there) and not all(there)}


def _statistics(logs: NDArray[np.float64], present: NDArray[np.bool_]) -> NDArray[np.float64]:
    """[draws][groups] from [draws][jobs]."""
    num_with = present.sum(axis=1)
    num_without = present.shape[1] - num_with
    found: NDArray[np.float64] = logs @ present.T / num_with - logs @ (~present).T / num_without
    found /= np.sqrt(1 / num_with + 1 / num_without)
    return found
