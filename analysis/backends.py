"""Backends beside each other on the same ranks: what each adds to the computation, and which adds less.

The computation is a step over backend `none` on as many ranks: the same machine, shared by the same trainings,
that do not communicate. What a step takes longer over another backend is its exposed communication, and a
difference between two backends is told as a share of the computation, for that is what a user waits for.
docs/metrics.md has the whole story.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from dlscale.analysis.family import Family
from dlscale.analysis.frame import options_text
from dlscale.analysis.launches import Launches
from dlscale.analysis.statistics import (
    LEVEL,
    MIN_BLOCKS,
    Interval,
    block_difference,
    block_ratio,
    median_interval,
)
from dlscale.benchmarks.record import Cell

RESOLVABLE = 0.3  # exposed communication over computation; below, what differs is mostly not the exchange
BAND = 0.02  # of the computation: a difference within is none that anybody would change backends for

Verdict = Literal["alike", "faster", "slower", "not slower", "open", "not resolvable", "insufficient data"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Contender:
    """A backend on some ranks, and beside it the fastest other one there."""

    cell: Cell
    exchange: str  # "in line", "overlapped" or "mixed"; empty where no launch said it
    seconds_per_step: Interval | None  # None if no launch gave a number
    exposed: Interval | None  # communication as a share of the computation; None without a block in common
    peer: Cell | None  # the other backend with the least exposed communication
    difference: Interval | None  # (this - peer) / computation; negative where this is faster
    communication: float | None  # exposed communication of the slower of the two
    verdict: Verdict
    reason: str  # of "insufficient data"; else empty


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """All backends that exchange gradients in one family on one number of ranks; two or more."""

    family: Family
    num_ranks: int
    num_nodes: int
    evidence: str
    computation: Interval | None  # seconds per step over `none` on as many ranks; None if not measured
    contenders: tuple[Contender, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Entry:
    launches: Launches  # good ones of one kind of evidence; may be none
    seconds: dict[Hashable, float]  # block -> per step
    exposed: Interval | None


def compare_backends(measured: Iterable[Launches]) -> tuple[Comparison, ...]:
    """Every family's backends on every number of ranks above 1 where two or more were tried.

    Kinds of evidence are compared among themselves only. A backend whose launches all failed is a contender
    without numbers.
    """
    groups: dict[tuple[Family, int, int, str], list[Launches]] = {}
    for launches in measured:
        cell = launches.cell
        if cell.control == "train" and cell.num_ranks > 1:
            for kind in launches.kinds:
                key = (launches.family, cell.num_ranks, cell.num_nodes, kind)
                groups.setdefault(key, []).append(launches.only(kind))
    found = []
    for (family, num_ranks, num_nodes, kind), members in sorted(groups.items(), key=lambda item: item[0]):
        exchanging = [one for one in members if one.cell.backend != "none"]
        if len(exchanging) < 2:
            continue
        alone = _computation(members)
        found.append(
            Comparison(
                family=family,
                num_ranks=num_ranks,
                num_nodes=num_nodes,
                evidence=kind,
                computation=median_interval(list(alone.values())) if alone else None,
                contenders=_contenders(sorted(exchanging, key=_order), alone),
            )
        )
    return tuple(found)


def judge(difference: Interval, communication: float, *, apart: bool) -> Verdict:
    """What a difference, as a share of the computation, says; negative is faster.

    "alike" lies within BAND on both sides for certain, "not slower" on the slower side only. "faster" and
    "slower" need `apart` besides: that it is no chance find among many pairs.
    """
    low, high = difference.low, difference.high
    if low is None or high is None:
        return "insufficient data"
    if communication < RESOLVABLE:
        return "not resolvable"
    if low > -BAND and high < BAND:
        return "alike"
    if apart and high < 0:
        return "faster"
    if apart and low > 0:
        return "slower"
    return "not slower" if high < BAND else "open"


def _computation(members: Iterable[Launches]) -> dict[Hashable, float]:
    """Seconds per step of the ranks that do not communicate, by block; empty if not measured."""
    alone = [one for one in members if one.cell.backend == "none" and not one.cases.empty]
    return min(alone, key=_order).by_block("seconds_per_step") if alone else {}


def _contenders(members: Sequence[Launches], alone: dict[Hashable, float]) -> tuple[Contender, ...]:
    entries = []
    for launches in members:
        seconds = launches.by_block("seconds_per_step")
        paired = seconds.keys() & alone.keys()
        exposed = block_ratio(seconds, alone).excess() if paired else None
        entries.append(_Entry(launches=launches, seconds=seconds, exposed=exposed))
    return tuple(_contender(entry, entries, alone) for entry in entries)


def _contender(entry: _Entry, entries: Sequence[_Entry], alone: dict[Hashable, float]) -> Contender:
    others = [other for other in entries if other is not entry and other.exposed]
    peer = min(others, key=_cost, default=None)
    difference = communication = None
    verdict: Verdict = "insufficient data"
    reason = _why_nothing(entry, peer, alone)
    if peer and not reason:
        difference = block_difference(entry.seconds, peer.seconds, alone)
        communication = max(_cost(entry), _cost(peer))
        verdict = judge(difference, communication, apart=_apart(entry, peer, entries, alone))
        if verdict == "insufficient data":
            reason = f"{difference.n} of the {MIN_BLOCKS} blocks that an interval needs"
    launches = entry.launches
    return Contender(
        cell=launches.cell,
        exchange=launches.exchange,
        seconds_per_step=median_interval(list(entry.seconds.values())) if entry.seconds else None,
        exposed=entry.exposed,
        peer=peer.launches.cell if peer else None,
        difference=difference,
        communication=communication,
        verdict=verdict,
        reason=reason,
    )


def _apart(entry: _Entry, peer: _Entry, entries: Sequence[_Entry], alone: dict[Hashable, float]) -> bool:
    """Whether 0 is outside an interval that holds for all pairs of backends together (Bonferroni).

    The peer was chosen by looking at all: of four equal backends some pair's own 95 % interval leaves 0 out in
    one study of five.
    """
    num_pairs = math.comb(sum(one.exposed is not None for one in entries), 2)
    level = 1 - (1 - LEVEL) / num_pairs
    strict = block_difference(entry.seconds, peer.seconds, alone, level=level)
    return strict.low is not None and strict.high is not None and (strict.low > 0 or strict.high < 0)


def _cost(entry: _Entry) -> float:
    return entry.exposed.center if entry.exposed else math.inf


def _why_nothing(entry: _Entry, peer: _Entry | None, alone: dict[Hashable, float]) -> str:
    """Why there is no difference at all; empty if there is one."""
    if not alone:
        return "none on as many ranks was not measured"
    if not entry.seconds:
        return "every launch failed"
    if entry.exposed is None:
        return "no block in common with none on as many ranks"
    if peer is None:
        return "no other backend gave a number"
    if not entry.seconds.keys() & peer.seconds.keys() & alone.keys():
        return f"no block in common with {peer.launches.cell.backend}"
    return ""


def _order(launches: Launches) -> tuple[object, ...]:
    cell = launches.cell
    return cell.backend, options_text(cell), cell.num_servers
