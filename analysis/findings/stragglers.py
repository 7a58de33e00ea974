"""Stragglers: the slow hosts and ranks, each with its verdict: late, slow link, or not known.

* **late**: slow by itself, in `none`, where no rank waits for another. The cause is the host (its cores, memory, power,
  or the path to its samples) and not a link.
* **slow link**: not slow in `none`, but the exchange takes longer with it (`slowness`). In asynchronous training, where
  ranks do not wait for each other, a rank's own steps show it: it is slow over the backend and not in `none`.
* **not known**: looks slow, but the launches cannot show whether it is; the reason is given.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from dlscale.analysis.declare import Sentence, family_tags
from dlscale.analysis.families import Family
from dlscale.analysis.finding import Finding
from dlscale.analysis.findings import slowness
from dlscale.analysis.findings.slowness import ALPHA, Slow, slow_ones
from dlscale.analysis.launches import CellLaunches, MeasuredCase, good_launches
from dlscale.analysis.records import attributes, has_rank_steps, steady_windows
from dlscale.analysis.statistics import Interval, median
from dlscale.analysis.text import backend_name, interval_columns, plural, share_text, workload_title
from dlscale.benchmarks.records.record import Record

# The part of ALPHA for hosts if their ranks are tested as well: enough to detect one of two hosts in 6 launches.
HOST_ALPHA = 0.04
Verdict = Literal["late", "slow link", "not known"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Suspect:
    """A host, or a rank of one; several hosts if they always ran together. `backend` is the one that showed it."""

    hosts: tuple[str, ...]
    rank: int | None  # None: hosts as a whole
    backend: str
    slower: Interval  # than the median of the others, as a fraction
    p_value: float  # corrected for all that were compared
    verdict: Verdict
    reason: str  # of "not known"; else empty


@dataclass(frozen=True, slots=True, kw_only=True)
class Stragglers:
    """The stragglers of one family on one number of ranks. `links`: backend -> why it cannot show a slow link."""

    family: Family
    num_ranks: int
    num_nodes: int
    evidence: str
    num_blocks: int  # launches of `none`
    hosts: tuple[str, ...]
    suspects: tuple[Suspect, ...]
    links: Mapping[str, str]


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
    if has_rank_steps(record):
        steps = np.array(
            [window.rank_steps or [window.num_steps] for window in steady_windows(record)]
        )  # [W][P]
    own = windows.seconds / np.maximum(steps, 1)
    relative: NDArray[np.float64] = (own / median(own, keepdims=True)).T
    return relative


def stragglers(measured: Iterable[CellLaunches]) -> tuple[Stragglers, ...]:
    """The stragglers for each number of ranks on which `none` was measured, by family and ranks."""
    groups: dict[tuple[Family, int, int, str], dict[str, list[MeasuredCase]]] = {}
    for launches in good_launches(measured, controls={"train"}):
        cell = launches.cell
        if cell.num_ranks > 1:
            members = groups.setdefault((launches.family, cell.num_ranks, cell.split, launches.evidence), {})
            name = backend_name(cell) if cell.backend != "none" else "none"  # with whatever is split
            members.setdefault(name, []).extend(launches.cases)
    return tuple(
        _stragglers(family, num_ranks, evidence, members)
        for (family, num_ranks, _, evidence), members in sorted(groups.items(), key=lambda item: item[0])
        if "none" in members
    )


def _stragglers(
    family: Family, num_ranks: int, evidence: str, members: dict[str, list[MeasuredCase]]
) -> Stragglers:
    alone = members["none"]
    late = list(_late(alone, backend="none"))
    known = {host for suspect in late if suspect.verdict == "late" for host in suspect.hosts}
    reasons: dict[str, str] = {}
    linked: list[Suspect] = []
    for backend, launches in members.items():
        if backend != "none":
            suspects, reasons[backend] = _linked(backend, launches, alone)
            linked += [suspect for suspect in suspects if not known & set(suspect.hosts)]
    return Stragglers(
        family=family,
        num_ranks=num_ranks,
        num_nodes=alone[0].cell.num_nodes,
        evidence=evidence,
        num_blocks=len(alone),
        hosts=tuple(dict.fromkeys(host for case in alone for host in hosts_of(case.record))),
        suspects=(*late, *linked),
        links={backend: reason for backend, reason in reasons.items() if reason},
    )


def _late(launches: Sequence[MeasuredCase], *, backend: str) -> Iterator[Suspect]:
    """The slow hosts, if there are several hosts, then the slow ranks of the remaining hosts."""
    placed = [case.record for case in launches if hosts_of(case.record)]
    several = len({host for record in placed for host in hosts_of(record)}) > 1
    shared = any(len(set(hosts_of(record))) < len(hosts_of(record)) for record in placed)
    whole: set[str] = set()
    if several:
        alpha = HOST_ALPHA if shared else ALPHA
        for slow in slow_ones([_times(record, of_hosts=True) for record in placed], alpha=alpha):
            whole |= {slow.name} if slow.certain else set()
            yield _suspect(slow, slow.name, None, backend, len(placed))
    if several and not shared:
        return  # a host's only rank is the host
    alpha = ALPHA - HOST_ALPHA if several else ALPHA
    for slow in slow_ones([_times(record, of_hosts=False) for record in placed], alpha=alpha):
        host, _, rank = slow.name.rpartition(" ")
        if host not in whole and (slow.certain or not several):
            yield _suspect(slow, host, int(rank), backend, len(placed))


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


def _suspect(slow: Slow, host: str, rank: int | None, backend: str, num_blocks: int) -> Suspect:
    reason = ""
    if not slow.certain and num_blocks < slow.fewest_blocks:
        reason = f"{num_blocks} launches; {slow.fewest_blocks} are needed to tell it from chance"
    elif not slow.certain:
        reason = f"not the same from launch to launch (p = {slow.p_value:.2g})"
    return Suspect(
        hosts=(host,),
        rank=rank,
        backend=backend,
        slower=slow.slower,
        p_value=slow.p_value,
        verdict="late" if slow.certain else "not known",
        reason=reason,
    )


def _linked(
    backend: str, launches: Sequence[MeasuredCase], alone: Sequence[MeasuredCase]
) -> tuple[list[Suspect], str]:
    """The hosts that are slow only over a backend, or why there can be none; `alone` are the launches of `none`."""
    boot_ids = {rank.node: rank.boot_id for case in launches for rank in case.record.ranks}
    if reason := slowness.why_no_network(boot_ids):
        return [], reason
    if any(has_rank_steps(case.record) for case in launches):
        slow = [suspect for suspect in _late(launches, backend=backend) if suspect.rank is None]
        return [replace(one, verdict="slow link") if one.verdict == "late" else one for one in slow], ""
    jobs = _jobs(launches, alone)
    if reason := slowness.why_no_slow_links(jobs):
        return [], reason
    return [
        Suspect(
            hosts=link.hosts,
            rank=None,
            backend=backend,
            slower=link.slower,
            p_value=link.p_value,
            verdict="slow link" if link.certain and len(link.hosts) == 1 else "not known",
            reason=_why(link),
        )
        for link in slowness.slow_links(jobs)
    ], ""


def _why(link: slowness.SlowLink) -> str:
    if not link.certain:
        return f"not the same from job to job (p = {link.p_value:.2g})"
    return "they always ran together" if len(link.hosts) > 1 else ""


def _jobs(launches: Sequence[MeasuredCase], alone: Sequence[MeasuredCase]) -> list[slowness.JobTimes]:
    """The launches over a backend relative to `none` in the same blocks, grouped by batch job."""
    base = {case.block: case for case in alone}
    by_job: dict[tuple[str, frozenset[str]], list[float]] = {}
    for case in launches:
        reference, hosts = base.get(case.block), hosts_of(case.record)
        if reference is None or not hosts:
            continue
        ratio = case.world / (reference.latest or reference.world)
        allocation = case.record.allocation
        job = allocation.job_id if allocation else " ".join(map(str, case.block))
        by_job.setdefault((job, frozenset(hosts)), []).append(ratio)
    return [
        slowness.JobTimes(hosts=hosts, ratio=float(np.exp(np.mean(np.log(ratios)))))
        for (_, hosts), ratios in by_job.items()
    ]


def straggler_sentences(group: Stragglers, *, with_links: bool = True) -> list[str]:
    """A sentence for each suspect, one if none is late, and, with `with_links`, what is not known about links.

    Ranks of one node have no link between them, which goes without saying.
    """
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
    reasons: dict[str, list[str]] = {}
    for backend, reason in group.links.items() if with_links and len(group.hosts) > 1 else ():
        reasons.setdefault(reason, []).append(backend)
    sentences += [
        f"slow links on {ranks}, by {', '.join(backends)}: not known; {reason}."
        for reason, backends in reasons.items()
    ]
    return sentences


def _subject(suspect: Suspect) -> str:
    if suspect.rank is not None:
        return f"rank {suspect.rank} ({suspect.hosts[0]})"
    return f"host{'s' * (len(suspect.hosts) > 1)} {', '.join(suspect.hosts)}"


def _verdict_text(suspect: Suspect) -> str:
    alone = suspect.backend == "none"
    where = "without communication" if alone else f"over {suspect.backend}"
    slower = f"{share_text(suspect.slower)} slower {where}"
    if suspect.verdict == "not known":
        return f"{slower}, but whether it is slow is not known: {suspect.reason}"
    return (
        f"{suspect.verdict}, {slower}, {'where no rank waits' if alone else 'and not without communication'}"
    )


def straggler_rows(groups: Iterable[Stragglers]) -> list[dict[str, Any]]:
    """One flat row per suspect. `slower` is a fraction of the others' time; `rank` None means whole hosts."""
    return [_row(group.family, group, suspect) for group in groups for suspect in group.suspects]


def _row(family: Family, group: Stragglers, suspect: Suspect) -> dict[str, Any]:
    return {
        **attributes(family, "system workload preset framework environment scaling_mode precision"),
        **attributes(group, "num_ranks num_nodes evidence"),
        **attributes(suspect, "backend rank p_value verdict"),
        "host": ", ".join(suspect.hosts),
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
