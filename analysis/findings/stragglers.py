"""Stragglers: hosts and ranks that are slow in `none`, where no rank waits for another, in launch after launch.

The cause of a late host is the host (its cores, memory, power, or the path to its samples). One that only looks
slow is "not known", with the reason. A permutation test compares each with the others, corrected for all of them.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median as plain_median
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from dlscale.analysis.declare import Sentence, family_tags
from dlscale.analysis.families import Family
from dlscale.analysis.finding import Finding
from dlscale.analysis.launches import CellLaunches, MeasuredCase, good_launches
from dlscale.analysis.records import attributes
from dlscale.analysis.statistics import Interval, block_ratio, median
from dlscale.analysis.text import interval_columns, plural, share_text, workload_title
from dlscale.benchmarks.records.record import Record

ALPHA = 0.05  # the chance that any host or rank is called slow if none is
BAND = 0.02  # a smaller slowdown is no reason to replace a node
NUM_DRAWS = 1999
_SEED = 2018  # the same records, the same p
# The part of ALPHA for hosts if their ranks are tested as well: enough to detect one of two hosts in 6 launches.
HOST_ALPHA = 0.04
Verdict = Literal["late", "not known"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Suspect:
    """A host, or a rank of one."""

    host: str
    rank: int | None  # None: the host as a whole
    slower: Interval  # than the median of the others, as a fraction
    p_value: float  # corrected for all that were compared
    verdict: Verdict
    reason: str  # of "not known"; else empty


@dataclass(frozen=True, slots=True, kw_only=True)
class Stragglers:
    """The stragglers of one family on one number of ranks."""

    family: Family
    num_ranks: int
    num_nodes: int
    evidence: str
    num_blocks: int  # launches of `none`
    hosts: tuple[str, ...]
    suspects: tuple[Suspect, ...]


def hosts_of(record: Record) -> tuple[str, ...]:
    """The node of each rank; empty if the record does not name them all."""
    nodes = tuple(rank.node for rank in sorted(record.ranks, key=lambda rank: rank.rank))
    return nodes if len(nodes) == record.case.cell.num_ranks else ()


def relative_seconds(record: Record) -> NDArray[np.float64]:
    """[P][W]: each rank's seconds per own step over the median over ranks, in each steady window.

    In asynchronous training, a rank that took no step in a window counts as if it had taken one.
    """
    windows = record.counted
    steps = windows.num_steps[:, np.newaxis]  # [W][1]
    if windows.rank_steps is not None:
        steps = windows.rank_steps
    own = windows.seconds / np.maximum(steps, 1)
    relative: NDArray[np.float64] = (own / median(own, keepdims=True)).T
    return relative


def stragglers(measured: Iterable[CellLaunches]) -> tuple[Stragglers, ...]:
    """The stragglers for each number of ranks on which `none` was measured, by family and ranks."""
    groups: dict[tuple[Family, int, int, str], list[MeasuredCase]] = {}
    for launches in good_launches(measured, controls={"train"}):
        cell = launches.cell
        if cell.num_ranks > 1 and cell.backend == "none":
            key = launches.family, cell.num_ranks, cell.split, launches.evidence
            groups.setdefault(key, []).extend(launches.cases)
    return tuple(
        Stragglers(
            family=family,
            num_ranks=num_ranks,
            num_nodes=alone[0].cell.num_nodes,
            evidence=evidence,
            num_blocks=len(alone),
            hosts=tuple(dict.fromkeys(host for case in alone for host in hosts_of(case.record))),
            suspects=tuple(_suspects(alone)),
        )
        for (family, num_ranks, _, evidence), alone in sorted(groups.items(), key=lambda item: item[0])
    )


def _suspects(launches: Sequence[MeasuredCase]) -> Iterator[Suspect]:
    """The slow hosts, if there are several hosts, then the slow ranks of the remaining hosts."""
    placed = [case.record for case in launches if hosts_of(case.record)]
    several = len({host for record in placed for host in hosts_of(record)}) > 1
    shared = any(len(set(hosts_of(record))) < len(hosts_of(record)) for record in placed)
    whole: set[str] = set()
    if several:
        alpha = HOST_ALPHA if shared else ALPHA
        for slow in slow_ones([_times(record, of_hosts=True) for record in placed], alpha=alpha):
            whole |= {slow.name} if slow.certain else set()
            yield _suspect(slow, slow.name, None, len(placed))
    if several and not shared:
        return  # a host's only rank is the host
    alpha = ALPHA - HOST_ALPHA if several else ALPHA
    for slow in slow_ones([_times(record, of_hosts=False) for record in placed], alpha=alpha):
        host, _, rank = slow.name.rpartition(" ")
        if host not in whole and (slow.certain or not several):
            yield _suspect(slow, host, int(rank), len(placed))


def _times(record: Record, *, of_hosts: bool) -> dict[str, float]:
    """Each host's or rank's time relative to the others: the median over windows.

    A host's time is the median of its ranks', the lower of two middle ones: one slow rank does not make a slow host.
    """
    relative = median(relative_seconds(record))
    hosts = hosts_of(record)
    if not of_hosts:
        return {f"{host} {rank}": float(relative[rank]) for rank, host in enumerate(hosts)}
    members = {host: [rank for rank, other in enumerate(hosts) if other == host] for host in hosts}
    return {host: float(np.quantile(relative[ranks], 0.5, method="lower")) for host, ranks in members.items()}


def _suspect(slow: Slow, host: str, rank: int | None, num_blocks: int) -> Suspect:
    reason = ""
    if not slow.certain and num_blocks < slow.fewest_blocks:
        reason = f"{num_blocks} launches; {slow.fewest_blocks} are needed to tell it from chance"
    elif not slow.certain:
        reason = f"not the same from launch to launch (p = {slow.p_value:.2g})"
    return Suspect(
        host=host,
        rank=rank,
        slower=slow.slower,
        p_value=slow.p_value,
        verdict="late" if slow.certain else "not known",
        reason=reason,
    )


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
        index: plain_median(time for other, time in block.items() if other != name)
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


def straggler_sentences(group: Stragglers) -> list[str]:
    """A sentence for each suspect, and one if none is late."""
    ranks = f"{group.num_ranks} ranks"
    kind = "" if group.evidence == "measured" else f" ({group.evidence})"
    sentences = [
        f"{_subject(suspect)} on {ranks}{kind}: {_verdict_text(suspect)}." for suspect in group.suspects
    ]
    if not any(suspect.verdict == "late" for suspect in group.suspects):
        whose = plural(len(group.hosts), "host") if len(group.hosts) > 1 else ranks
        who = f"neither of the {whose}" if whose.startswith("2 ") else f"none of the {whose}"
        launches = plural(group.num_blocks, "launch")
        sentences.append(f"{who} is consistently late{kind} ({launches} without communication).")
    return sentences


def _subject(suspect: Suspect) -> str:
    return f"host {suspect.host}" if suspect.rank is None else f"rank {suspect.rank} ({suspect.host})"


def _verdict_text(suspect: Suspect) -> str:
    slower = f"{share_text(suspect.slower)} slower without communication"
    if suspect.verdict == "late":
        return f"late, {slower}, where no rank waits"
    return f"{slower}, but whether it is slow is not known: {suspect.reason}"


def straggler_rows(groups: Iterable[Stragglers]) -> list[dict[str, Any]]:
    """One flat row per suspect. `slower` is a fraction of the others' time; `rank` None means the whole host."""
    return [_row(group.family, group, suspect) for group in groups for suspect in group.suspects]


def _row(family: Family, group: Stragglers, suspect: Suspect) -> dict[str, Any]:
    return {
        **attributes(family, "system workload preset framework environment scaling_mode precision"),
        **attributes(group, "num_ranks num_nodes evidence"),
        **attributes(suspect, "host rank p_value verdict"),
        **interval_columns("slower", suspect.slower),
        "reason": suspect.reason or None,
    }


def _sentences(groups: Iterable[Stragglers]) -> Iterator[Sentence]:
    """Sentences about the stragglers of each family on its most ranks."""
    last: dict[tuple[Family, str], Stragglers] = {}
    for group in groups:
        last[group.family, group.evidence] = group  # ordered by ranks
    for group in last.values():
        strong = any(suspect.verdict != "not known" for suspect in group.suspects)
        name = f"{workload_title(group.family.workload)} ({group.family.framework})"
        tags = family_tags(group.family)
        for sentence in straggler_sentences(group):
            yield Sentence(text=f"{name}, {sentence}", strong=strong, tags=tags)


FINDING = Finding(
    name="late",
    title="Stragglers and slow hosts",
    compute=lambda study: stragglers(study.launches),
    sentences=_sentences,
    data=lambda groups: {"late": straggler_rows(groups)},
    under="waterfalls",
)
FINDINGS = (FINDING,)
