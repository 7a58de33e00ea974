"""Stragglers: the list of slow hosts and ranks, each with its verdict: late, slow link, or not known.

* **late**: slow by itself, in `none`, where no rank waits for another. It is the host (its cores, memory, power, or the
  way to its samples) and no link.
* **slow link**: not slow in `none`, but with it the exchange takes longer (`slowness`). Where ranks do not wait for
  each other (asynchronous training), a rank's own steps show it: it is slow over the backend and not in `none`.
* **not known**: looks slow, but the launches cannot show whether it is; the reason is given.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from rich.console import RenderableType
from rich.markup import escape

from dlscale.analysis.families import Family, family_of
from dlscale.analysis.findings import slowness
from dlscale.analysis.findings.rank_times import by_cell, hosts_of, relative_seconds
from dlscale.analysis.findings.slowness import ALPHA, Slow, slow_ones
from dlscale.analysis.records import Block, options_text, times_of
from dlscale.analysis.render.text import interval_columns, share_text
from dlscale.analysis.statistics import Interval
from dlscale.benchmarks.records.record import Cell, Record

# Of ALPHA, where ranks of the hosts are asked for as well: so much that 6 launches can tell one of two hosts.
HOST_ALPHA = 0.04
Verdict = Literal["late", "slow link", "not known"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Suspect:
    """A host, or a rank of one; several hosts if they were always there together. `backend` is where it was seen."""

    hosts: tuple[str, ...]
    rank: int | None  # None: hosts as a whole
    backend: str
    slower: Interval  # than the median of the others, as a fraction
    p_value: float  # for all who were compared
    verdict: Verdict
    reason: str  # of "not known"; else empty


@dataclass(frozen=True, slots=True, kw_only=True)
class Stragglers:
    """What is known of one family on one number of ranks. `links`: backend -> why it cannot show a slow link."""

    family: Family
    num_ranks: int
    num_nodes: int
    evidence: str
    num_blocks: int  # launches of `none`
    hosts: tuple[str, ...]
    suspects: tuple[Suspect, ...]
    links: Mapping[str, str]


def stragglers(records: Iterable[Record]) -> tuple[Stragglers, ...]:
    """One for each number of ranks of which `none` was measured, by family and ranks."""
    groups: dict[tuple[Family, int, str], dict[str, list[Record]]] = {}
    for launches in by_cell(records):
        first = launches[0]
        cell = first.case.cell
        key = (family_of(cell, system=first.system), cell.num_ranks, first.evidence)
        name = _name(cell)
        groups.setdefault(key, {}).setdefault(name, []).extend(launches)
    return tuple(
        _stragglers(family, num_ranks, evidence, members)
        for (family, num_ranks, evidence), members in sorted(groups.items(), key=lambda item: item[0])
        if "none" in members
    )


def _stragglers(
    family: Family, num_ranks: int, evidence: str, members: dict[str, list[Record]]
) -> Stragglers:
    alone = members["none"]
    late = list(_late(alone, backend="none"))
    known = {host for one in late if one.verdict == "late" for host in one.hosts}
    reasons: dict[str, str] = {}
    found: list[Suspect] = []
    for backend, launches in members.items():
        if backend != "none":
            suspects, reasons[backend] = _linked(backend, launches, alone)
            found += [one for one in suspects if not known & set(one.hosts)]
    return Stragglers(
        family=family,
        num_ranks=num_ranks,
        num_nodes=alone[0].case.cell.num_nodes,
        evidence=evidence,
        num_blocks=len(alone),
        hosts=tuple(dict.fromkeys(host for record in alone for host in hosts_of(record))),
        suspects=(*late, *found),
        links={backend: reason for backend, reason in reasons.items() if reason},
    )


def _late(launches: Sequence[Record], *, backend: str) -> Iterator[Suspect]:
    """Hosts, if there are several, and then ranks of other hosts than those."""
    placed = [record for record in launches if hosts_of(record)]
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
    """Each host's or rank's time beside the others': the median over windows.

    A host is as slow as its middle rank, of two middle ones the faster: one slow rank does not make a slow host.
    """
    relative = np.median(relative_seconds(record), axis=1)
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
    verdict: Verdict = "late" if slow.certain else "not known"
    return Suspect(
        hosts=(host,),
        rank=rank,
        backend=backend,
        slower=slow.slower,
        p_value=slow.p_value,
        verdict=verdict,
        reason=reason,
    )


def _linked(backend: str, launches: Sequence[Record], alone: Sequence[Record]) -> tuple[list[Suspect], str]:
    """Hosts that are slow over a backend only, and why there can be none; of `launches` over it, `alone` over none."""
    boot_ids = {one.node: one.boot_id for record in launches for one in record.ranks}
    if reason := slowness.why_no_network(boot_ids):
        return [], reason
    if any(window.rank_steps for record in launches for window in record.windows):
        slow = [one for one in _late(launches, backend=backend) if one.rank is None]
        return [_as_link(one) for one in slow], ""
    jobs = _jobs(launches, alone)
    if reason := slowness.why_no_slow_links(jobs):
        return [], reason
    return [
        Suspect(
            hosts=one.hosts,
            rank=None,
            backend=backend,
            slower=one.slower,
            p_value=one.p_value,
            verdict="slow link" if one.certain and len(one.hosts) == 1 else "not known",
            reason=_why(one),
        )
        for one in slowness.slow_links(jobs)
    ], ""


def _why(link: slowness.SlowLink) -> str:
    if not link.certain:
        return f"not the same from job to job (p = {link.p_value:.2g})"
    return "they always ran together" if len(link.hosts) > 1 else ""


def _as_link(one: Suspect) -> Suspect:
    return replace(one, verdict="slow link") if one.verdict == "late" else one


def _jobs(launches: Sequence[Record], alone: Sequence[Record]) -> list[slowness.JobTimes]:
    """The launches over a backend beside `none` in their blocks; those of one batch job together."""
    base: dict[Block, Record] = {(record.study, record.case.block): record for record in alone}
    found: dict[tuple[str, frozenset[str]], list[float]] = {}
    for record in launches:
        beside = base.get((record.study, record.case.block))
        if beside is None or not hosts_of(record):
            continue
        times = times_of(beside)
        ratio = times_of(record).world / (times.latest or times.world)
        job = record.allocation.job_id if record.allocation else f"{record.study} {record.case.block}"
        found.setdefault((job, frozenset(hosts_of(record))), []).append(ratio)
    return [
        slowness.JobTimes(hosts=hosts, ratio=float(np.exp(np.mean(np.log(ratios)))))
        for (_, hosts), ratios in found.items()
    ]


def _name(cell: Cell) -> str:
    options = options_text(cell)
    return f"{cell.backend} ({options})" if options else cell.backend


def straggler_sentences(one: Stragglers, *, with_links: bool = True) -> list[str]:
    """One for each suspect; one that says so if nobody is late; and, `with_links`, what cannot be known of links."""
    ranks = f"{one.num_ranks} ranks"
    kind = "" if one.evidence == "measured" else f" ({one.evidence})"
    found = [f"{_subject(suspect)} on {ranks}{kind}: {_verdict_text(suspect)}." for suspect in one.suspects]
    if not any(suspect.verdict == "late" for suspect in one.suspects):
        whose = f"{len(one.hosts)} hosts" if len(one.hosts) > 1 else f"{ranks} of one host"
        found.append(f"none of the {whose} is surely late{kind}, by {one.num_blocks} launches of none.")
    reasons: dict[str, list[str]] = {}
    for backend, reason in one.links.items() if with_links else ():
        reasons.setdefault(reason, []).append(backend)
    found += [
        f"slow links on {ranks}, by {', '.join(backends)}: not known; {reason}."
        for reason, backends in reasons.items()
    ]
    return found


def render_stragglers(found: Iterable[Stragglers]) -> Iterator[RenderableType]:
    """For the numbers of ranks of one family, links only on the most; nothing without any."""
    found = list(found)
    told = [sentence for one in found for sentence in straggler_sentences(one, with_links=one is found[-1])]
    if not told:
        return
    yield "[bold]Late ranks and slow hosts[/bold]"
    for sentence in told:
        yield escape(sentence)
    yield ""


def _subject(one: Suspect) -> str:
    if one.rank is not None:
        return f"rank {one.rank} ({one.hosts[0]})"
    return f"host{'s' * (len(one.hosts) > 1)} {', '.join(one.hosts)}"


def _verdict_text(one: Suspect) -> str:
    if one.verdict == "not known":
        return f"{_slower(one.slower)} over {one.backend}, but whether it is slow is not known: {one.reason}"
    where = "in none, where nobody waits" if one.backend == "none" else f"over {one.backend}, and not in none"
    return f"{one.verdict}, {_slower(one.slower)} {where}"


def _slower(slower: Interval) -> str:
    """`8.1 % [7.2, 9.0] slower`."""
    return f"{share_text(slower)} slower"


def straggler_rows(found: Iterable[Stragglers]) -> list[dict[str, Any]]:
    """One flat row per suspect. `slower` is a fraction of the others' time; `rank` None means whole hosts."""
    return [_straggler_row(one, suspect) for one in found for suspect in one.suspects]


def _straggler_row(one: Stragglers, suspect: Suspect) -> dict[str, Any]:
    family = one.family
    return {
        "system": family.system,
        "workload": family.workload,
        "preset": family.preset,
        "framework": family.framework,
        "environment": family.environment,
        "scaling_mode": family.scaling_mode,
        "precision": family.precision,
        "num_ranks": one.num_ranks,
        "num_nodes": one.num_nodes,
        "evidence": one.evidence,
        "backend": suspect.backend,
        "host": ", ".join(suspect.hosts),
        "rank": suspect.rank,
        **interval_columns("slower", suspect.slower),
        "p_value": suspect.p_value,
        "verdict": suspect.verdict,
        "reason": suspect.reason or None,
    }
