"""Permutation tests for slowness: is one of several hosts or ranks slow in launch after launch, and is a link slow?

A host or rank that is slow by itself is compared with the others in each launch, corrected for all of them.

A slow link does not show in one launch: ranks that exchange gradients wait for each other, so every window ends on all
ranks at the same time. But launches on different nodes can be compared: was the exchange longer whenever a host took
part? The launches of one batch job share nodes and neighbours, so a job counts once. Hosts that always ran together
cannot be distinguished.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np
from numpy.typing import NDArray

from dlscale.analysis.statistics import Interval, block_ratio

ALPHA = 0.05  # the chance that any host or rank is called slow if none is
BAND = 0.02  # a smaller slowdown is no reason to replace a node
NUM_DRAWS = 1999
_SEED = 2018  # the same records, the same p


@dataclass(frozen=True, slots=True, kw_only=True)
class Slow:
    """A host or rank that looks slower than the others by BAND or more.

    `p_value` is the chance that any of them is this slow if all are alike; `fewest_blocks` is the number of launches
    with which it can fall to `alpha` at all.
    """

    name: str
    slower: Interval  # than the median of the others: 0.1 is 10 %
    p_value: float
    alpha: float
    fewest_blocks: int

    @property
    def certain(self) -> bool:
        """Whether it is significant, corrected for all hosts or ranks that were compared."""
        return self.p_value <= self.alpha


def slow_ones(blocks: Sequence[Mapping[str, float]], *, alpha: float = ALPHA) -> list[Slow]:
    """The hosts or ranks that are slower than the others; `blocks` have their times in each launch, in any unit.

    If all are alike, the times of a launch are exchangeable: one that is slow in one launch is no more likely to be
    slow in the next. So the times within each launch are permuted, and one is significantly slow if its sum over
    launches of log(time / median) exceeds the largest sum of any in all but `alpha` of the permutations (Westfall
    & Young's maximum). A disturbance of a single launch, however large, does not add up. With U alike in B launches,
    one of them is the slowest every time with probability U^(1 - B), so few launches are not enough.
    """
    blocks = [block for block in blocks if len(block) > 1]
    names = sorted(set().union(*blocks)) if blocks else []
    slower = {name: _slower(name, blocks) for name in names}
    if not any(interval.center >= BAND for interval in slower.values()):
        return []
    p_values = _p_values(blocks, names)
    fewest = fewest_blocks(min(map(len, blocks)), alpha=alpha)
    return [
        Slow(name=name, slower=slower[name], p_value=p_values[name], alpha=alpha, fewest_blocks=fewest)
        for name in names
        if slower[name].center >= BAND
    ]


def fewest_blocks(num_compared: int, *, alpha: float = ALPHA) -> int:
    """The fewest launches with which one of `num_compared` can be significantly slow."""
    blocks = 2
    while float(num_compared) ** (1 - blocks) > alpha:
        blocks += 1
    return blocks


def _slower(name: str, blocks: Sequence[Mapping[str, float]]) -> Interval:
    own: dict[Hashable, float] = {index: block[name] for index, block in enumerate(blocks) if name in block}
    others: dict[Hashable, float] = {
        index: median(time for other, time in block.items() if other != name)
        for index, block in enumerate(blocks)
        if name in block
    }
    return block_ratio(own, others).excess()


def _p_values(blocks: Sequence[Mapping[str, float]], names: Sequence[str]) -> dict[str, float]:
    places = {name: index for index, name in enumerate(names)}
    generator = np.random.default_rng(_SEED)
    observed, dealt = np.zeros(len(names)), np.zeros((NUM_DRAWS, len(names)))
    counts = np.zeros(len(names))
    for block in blocks:
        columns = [places[name] for name in block]
        logs: NDArray[np.float64] = np.log(list(block.values()))
        logs -= np.median(logs)
        observed[columns] += logs
        counts[columns] += 1
        dealt[:, columns] += generator.permuted(np.tile(logs, (NUM_DRAWS, 1)), axis=1)
    # One that took part in more launches has a larger sum by chance, too.
    scale = np.sqrt(counts)
    largest = (dealt / scale).max(axis=1)
    least = observed / scale - 1e-12  # tolerance for rounding: equal sums count as equal
    return {
        name: float((1 + np.sum(largest >= least[index])) / (1 + NUM_DRAWS)) for name, index in places.items()
    }


_LINK_SEED = 2018


@dataclass(frozen=True, slots=True, kw_only=True)
class JobTimes:
    """The launches of one batch job, or one launch without a job: the hosts, and the cost of the exchange.

    `ratio`: the backend's step over that of the latest rank of `none` in the same block.
    """

    hosts: frozenset[str]
    ratio: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SlowLink:
    """Hosts with which steps are longer by BAND or more than without them; several always ran together."""

    hosts: tuple[str, ...]
    slower: Interval
    p_value: float

    @property
    def certain(self) -> bool:
        """Whether it is significant, corrected for all groups of hosts."""
        return self.p_value <= ALPHA


def slow_links(jobs: Sequence[JobTimes]) -> list[SlowLink]:
    """The groups of hosts with which the exchange takes longer.

    A group's statistic is the mean log ratio of the jobs with it minus that of the jobs without it, scaled by the
    standard error for these numbers of jobs. Its p value is that of the maximum over all groups when the jobs' ratios
    are permuted.
    """
    groups = _host_groups(jobs)
    if not groups:
        return []
    logs = np.log([job.ratio for job in jobs])
    present = np.array(list(groups.values()), bool)  # [groups][jobs]
    generator = np.random.default_rng(_LINK_SEED)
    dealt = generator.permuted(np.tile(logs, (NUM_DRAWS, 1)), axis=1)
    observed = _statistics(logs[None, :], present)[0]
    largest = _statistics(dealt, present).max(axis=1)
    links = []
    for index, (hosts, there) in enumerate(groups.items()):
        ratios: dict[bool, dict[Hashable, float]] = {True: {}, False: {}}
        for number, (job, with_) in enumerate(zip(jobs, there, strict=True)):
            ratios[with_][number] = job.ratio
        slower = block_ratio(ratios[True], ratios[False]).excess()
        if slower.center >= BAND:
            p_value = float((1 + np.sum(largest >= observed[index] - 1e-12)) / (1 + NUM_DRAWS))
            links.append(SlowLink(hosts=hosts, slower=slower, p_value=p_value))
    return links


def why_no_slow_links(jobs: Sequence[JobTimes]) -> str:
    """The reason why these jobs cannot show a slow link, whatever they measured; empty if they can."""
    groups = _host_groups(jobs)
    if not groups:
        return "all launches ran on the same nodes, and ranks that exchange wait for each other"
    least = min(1 / math.comb(len(jobs), sum(there)) for there in groups.values())
    if least > ALPHA:
        return f"{len(jobs)} jobs on different nodes are too few to tell one host from chance"
    return ""


def why_no_network(boot_ids: Mapping[str, str]) -> str:
    """The reason why nothing goes over a network; empty if something does. `boot_ids`: host -> its machine."""
    if len(boot_ids) < 2:
        return "all ranks are on one node, and there is no link between nodes"
    if len(set(boot_ids.values())) < len(boot_ids):
        return "nodes share a machine, and there is no link between them"
    return ""


def _host_groups(jobs: Sequence[JobTimes]) -> dict[tuple[str, ...], tuple[bool, ...]]:
    """Hosts -> in which jobs they took part, grouped if in the same ones; hosts of all jobs are left out."""
    patterns: dict[tuple[bool, ...], list[str]] = {}
    for host in sorted(frozenset().union(*(job.hosts for job in jobs))):
        patterns.setdefault(tuple(host in job.hosts for job in jobs), []).append(host)
    return {tuple(hosts): there for there, hosts in patterns.items() if any(there) and not all(there)}


def _statistics(logs: NDArray[np.float64], present: NDArray[np.bool_]) -> NDArray[np.float64]:
    """The scaled differences of mean log ratios, [draws][groups], from the log ratios, [draws][jobs]."""
    num_with = present.sum(axis=1)
    num_without = present.shape[1] - num_with
    differences: NDArray[np.float64] = logs @ present.T / num_with - logs @ (~present).T / num_without
    differences /= np.sqrt(1 / num_with + 1 / num_without)
    return differences
