"""What the ring is meant to reach, and whether it did: a verdict per goal, with its numbers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from dlscale.analysis.collectives.rows import Row, fastest
from dlscale.analysis.collectives.times import PEER, RING, RING_SHARED, UNSYNCHRONISED
from dlscale.analysis.collectives.validity import Check
from dlscale.analysis.collectives.words import by_size, size
from dlscale.analysis.statistics import Interval
from dlscale.analysis.words import number

KIB, MIB = 2**10, 2**20
MODE = "hot"  # goals are judged where all benchmarks measure; the table has the others
RANKS, CROWDED_RANKS = 2, 4
CROWDED_FACTOR, COLLAPSE_FACTOR, COLLAPSE_SECONDS = 3.0, 10.0, 1e-3

Word = Literal["met", "missed", "not judged", "reported"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """A goal and what was found."""

    goal: str
    verdict: Word
    found: str


@dataclass(frozen=True, slots=True, kw_only=True)
class _Found:
    """The ring against something, at a size."""

    message_bytes: int
    ratio: Interval
    against: str


def judge(rows: Sequence[Row], checks: Sequence[Check], *, num_cpus: int) -> list[Verdict]:
    """A verdict for each goal on a node; a goal that needs what was not measured says so."""
    at = [row for row in rows if row.mode == MODE and row.num_ranks == RANKS]
    void = _void(checks)
    return [
        _at_least(1.1, "1 to 32 MiB: at least 1.1 times the best tuned peer",
                  _against_best(at, 1 * MIB, 32 * MIB, _anybody), void),
        _at_least(0.85, "1 to 32 MiB: at least 0.85 of the same loads and stores without waiting",
                  _against_unsynchronised(at, 1 * MIB, 32 * MIB), ""),
        _at_least(1.8, "64 to 256 MiB: at least 1.8 times the best tuned peer",
                  _against_best(at, 64 * MIB, 256 * MIB, _anybody), void),
        _at_least(0.8, "64 to 256 MiB: at least 0.8 of the memory bound",
                  _of_bound(at, 64 * MIB, 256 * MIB), ""),
        _at_least(1.0, "4 to 256 KiB: at least equal to the best tuned peer but Intel MPI",
                  _against_best(at, 4 * KIB, 256 * KIB, lambda row: row.backend != "intelmpi"), void),
        _reported("4 to 256 KiB: beside Intel MPI",
                  _against_best(at, 4 * KIB, 256 * KIB, lambda row: row.backend == "intelmpi")),
        _at_least(3.0, "25 MiB and more: at least 3 times MPICH's default",
                  _against_best(at, 25 * MIB, 2**62, _is_default_mpich), void),
        _crowded_time(rows, num_cpus),
        _collapse(rows, num_cpus),
    ]  # fmt: skip


def _at_least(threshold: float, goal: str, found: dict[str, list[_Found]], void: str) -> Verdict:
    """Met if the ring in ordinary memory reaches it at every size that was measured."""
    ordinary = found.get("ordinary", [])
    if not ordinary:
        return Verdict(goal=goal, verdict="not judged", found="not measured")
    worst = min(ordinary, key=lambda one: one.ratio.center)
    met = worst.ratio.center >= threshold
    text = f"at worst {_words(worst)}"
    low, high = worst.ratio.low, worst.ratio.high
    if low is None or high is None:
        text += ", without an interval"
    elif low < threshold <= high:
        text += ", and the interval holds the goal"
    missed = [size(one.message_bytes) for one in ordinary if one.ratio.center < threshold]
    if missed and len(missed) < len(ordinary):
        text += f"; missed at {', '.join(missed)}"
    if shared := found.get("shared", []):
        worst_shared = min(shared, key=lambda one: one.ratio.center)
        text += f"; in memory of its own {_words(worst_shared)}"
    return Verdict(goal=goal, verdict="met" if met else "missed", found=text + (f"; {void}" if void else ""))


def _reported(goal: str, found: dict[str, list[_Found]]) -> Verdict:
    lines = [by_size(one.message_bytes, one.ratio) for one in found.get("ordinary", [])]
    if not lines:
        return Verdict(goal=goal, verdict="not judged", found="not measured")
    return Verdict(goal=goal, verdict="reported", found=f"{', '.join(lines)} times its rate")


def _words(found: _Found) -> str:
    return f"{by_size(found.message_bytes, found.ratio)} ({found.against})"


def _against_best(
    rows: Sequence[Row], first: int, last: int, wanted: Callable[[Row], bool]
) -> dict[str, list[_Found]]:
    """The ring's rate over that of the fastest of those wanted, size by size."""
    found: dict[str, list[_Found]] = {"ordinary": [], "shared": []}
    for num_bytes in sorted({row.message_bytes for row in rows if first <= row.message_bytes <= last}):
        peers = [row for row in rows if row.role == PEER and row.message_bytes == num_bytes and wanted(row)]
        best = fastest(peers)
        if best is None:
            continue
        for kind, speedup in (("ordinary", best.ring_speedup), ("shared", best.shared_speedup)):
            if speedup:
                against = f"{best.title}, {best.setting}"
                found[kind].append(_Found(message_bytes=num_bytes, ratio=speedup, against=against))
    return found


def _against_unsynchronised(rows: Sequence[Row], first: int, last: int) -> dict[str, list[_Found]]:
    found = [
        _Found(message_bytes=row.message_bytes, ratio=row.ring_speedup, against="the same without waiting")
        for row in rows
        if row.role == UNSYNCHRONISED and row.ring_speedup and first <= row.message_bytes <= last
    ]
    return {"ordinary": found}


def _of_bound(rows: Sequence[Row], first: int, last: int) -> dict[str, list[_Found]]:
    found: dict[str, list[_Found]] = {"ordinary": [], "shared": []}
    kinds = {RING: "ordinary", RING_SHARED: "shared"}
    for row in rows:
        if row.role in kinds and row.fraction_of_bound and first <= row.message_bytes <= last:
            found[kinds[row.role]].append(
                _Found(message_bytes=row.message_bytes, ratio=row.fraction_of_bound, against="of the bound")
            )
    return found


def _anybody(row: Row) -> bool:
    return row.role == PEER


def _is_default_mpich(row: Row) -> bool:
    """At either thread level: the faster of the two counts."""
    return row.backend == "mpich" and row.setting.startswith("default")


def _crowded_time(rows: Sequence[Row], num_cpus: int) -> Verdict:
    goal = "4 ranks on 2 cores, 25 MiB: at most 3 times the time of 2 ranks"
    two, four = (_ring_seconds(rows, ranks).get(25 * MIB) for ranks in (RANKS, CROWDED_RANKS))
    if not two or not four or num_cpus != RANKS:
        return Verdict(goal=goal, verdict="not judged", found=_needed(num_cpus, " and 25MiB among SIZES"))
    met = four / two <= CROWDED_FACTOR
    text = f"{number(1e3 * four)} ms and {number(1e3 * two)} ms: {number(four / two)} times"
    return Verdict(goal=goal, verdict="met" if met else "missed", found=text)


def _collapse(rows: Sequence[Row], num_cpus: int) -> Verdict:
    goal = "4 ranks on 2 cores: nowhere more than 10 times the time of 2 ranks and 1 ms"
    two, four = (_ring_seconds(rows, ranks) for ranks in (RANKS, CROWDED_RANKS))
    both = sorted(set(two) & set(four))
    if not both or num_cpus != RANKS:
        return Verdict(goal=goal, verdict="not judged", found=_needed(num_cpus, ""))
    collapsed = [one for one in both if four[one] > COLLAPSE_FACTOR * two[one] + COLLAPSE_SECONDS]
    worst = max(both, key=lambda one: four[one] / two[one])
    text = (
        f"at worst {number(four[worst] / two[worst])} times, {number(1e3 * four[worst])} ms, at {size(worst)}"
    )
    if collapsed:
        text += f"; collapses at {', '.join(map(size, collapsed))}"
    return Verdict(goal=goal, verdict="missed" if collapsed else "met", found=text)


def _needed(num_cpus: int, more: str) -> str:
    return (
        f"needs 2 cores, and this machine has {num_cpus}" if num_cpus != RANKS else f"needs RANKS=2,4{more}"
    )


def _ring_seconds(rows: Sequence[Row], num_ranks: int) -> dict[int, float]:
    at = (row for row in rows if (row.role, row.num_ranks, row.mode) == (RING, num_ranks, MODE))
    return {row.message_bytes: row.seconds.center for row in at if row.seconds}


def _void(checks: Sequence[Check]) -> str:
    bad = dict.fromkeys(one.backend for one in checks if not one.valid)
    return f"void: {', '.join(bad)} not shown to be within 5 % of IMB-MPI1" if bad else ""
