"""Goals of the ring, and whether it reached them: a verdict per goal, with its numbers; and whether the run is valid.

A run is valid if our measurement of an MPI is the same as that of a benchmark of others (IMB, OSU). If not, it is
void and no goal has a verdict.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from dlscale.analysis.message_sizes.measurements import (
    PEER,
    RING,
    RING_SHARED,
    UNSYNCHRONISED,
    ByBlock,
    MessageSizeRow,
    fastest,
)
from dlscale.analysis.render.text import number, rate, ratio_at_size, size_text
from dlscale.analysis.statistics import LEVEL, Interval, block_ratio
from dlscale.benchmarks.records.message_sizes import MessageSizeLaunch, MessageSizeRun

KIB, MIB = 2**10, 2**20
MODE = "hot"  # goals are judged where all benchmarks measure; the table has the others
RANKS, CROWDED_RANKS = 2, 4
CROWDED_FACTOR, COLLAPSE_FACTOR, COLLAPSE_SECONDS = 3.0, 10.0, 1e-3

GoalWord = Literal["met", "missed", "not judged", "reported"]


@dataclass(frozen=True, slots=True, kw_only=True)
class GoalVerdict:
    """A goal and what was found."""

    goal: str
    verdict: GoalWord
    found: str


@dataclass(frozen=True, slots=True, kw_only=True)
class _Found:
    """The ring against something, at a size."""

    message_bytes: int
    ratio: Interval
    against: str


def judge_goals(
    rows: Sequence[MessageSizeRow], checks: Sequence[ValidityCheck], *, num_cpus: int
) -> list[GoalVerdict]:
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


def _at_least(threshold: float, goal: str, found: dict[str, list[_Found]], void: str) -> GoalVerdict:
    """Met if the ring in ordinary memory reaches it at every size that was measured."""
    ordinary = found.get("ordinary", [])
    if not ordinary:
        return GoalVerdict(goal=goal, verdict="not judged", found="not measured")
    worst = min(ordinary, key=lambda one: one.ratio.center)
    met = worst.ratio.center >= threshold
    text = f"at worst {_goal_words(worst)}"
    low, high = worst.ratio.low, worst.ratio.high
    if low is None or high is None:
        text += ", without an interval"
    elif low < threshold <= high:
        text += ", and the interval holds the goal"
    missed = [size_text(one.message_bytes) for one in ordinary if one.ratio.center < threshold]
    if missed and len(missed) < len(ordinary):
        text += f"; missed at {', '.join(missed)}"
    if shared := found.get("shared", []):
        worst_shared = min(shared, key=lambda one: one.ratio.center)
        text += f"; in memory of its own {_goal_words(worst_shared)}"
    return GoalVerdict(
        goal=goal, verdict="met" if met else "missed", found=text + (f"; {void}" if void else "")
    )


def _reported(goal: str, found: dict[str, list[_Found]]) -> GoalVerdict:
    lines = [ratio_at_size(one.message_bytes, one.ratio) for one in found.get("ordinary", [])]
    if not lines:
        return GoalVerdict(goal=goal, verdict="not judged", found="not measured")
    return GoalVerdict(goal=goal, verdict="reported", found=f"{', '.join(lines)} times its rate")


def _goal_words(found: _Found) -> str:
    return f"{ratio_at_size(found.message_bytes, found.ratio)} ({found.against})"


def _against_best(
    rows: Sequence[MessageSizeRow], first: int, last: int, wanted: Callable[[MessageSizeRow], bool]
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


def _against_unsynchronised(rows: Sequence[MessageSizeRow], first: int, last: int) -> dict[str, list[_Found]]:
    found = [
        _Found(message_bytes=row.message_bytes, ratio=row.ring_speedup, against="the same without waiting")
        for row in rows
        if row.role == UNSYNCHRONISED and row.ring_speedup and first <= row.message_bytes <= last
    ]
    return {"ordinary": found}


def _of_bound(rows: Sequence[MessageSizeRow], first: int, last: int) -> dict[str, list[_Found]]:
    found: dict[str, list[_Found]] = {"ordinary": [], "shared": []}
    kinds = {RING: "ordinary", RING_SHARED: "shared"}
    for row in rows:
        if row.role in kinds and row.fraction_of_bound and first <= row.message_bytes <= last:
            found[kinds[row.role]].append(
                _Found(message_bytes=row.message_bytes, ratio=row.fraction_of_bound, against="of the bound")
            )
    return found


def _anybody(row: MessageSizeRow) -> bool:
    return row.role == PEER


def _is_default_mpich(row: MessageSizeRow) -> bool:
    """At either thread level: the faster of the two counts."""
    return row.backend == "mpich" and row.setting.startswith("default")


def _crowded_time(rows: Sequence[MessageSizeRow], num_cpus: int) -> GoalVerdict:
    goal = "4 ranks on 2 cores, 25 MiB: at most 3 times the time of 2 ranks"
    two, four = (_ring_seconds(rows, ranks).get(25 * MIB) for ranks in (RANKS, CROWDED_RANKS))
    if not two or not four or num_cpus != RANKS:
        return GoalVerdict(goal=goal, verdict="not judged", found=_needed(num_cpus, " and 25MiB among SIZES"))
    met = four / two <= CROWDED_FACTOR
    text = f"{number(1e3 * four)} ms and {number(1e3 * two)} ms: {number(four / two)} times"
    return GoalVerdict(goal=goal, verdict="met" if met else "missed", found=text)


def _collapse(rows: Sequence[MessageSizeRow], num_cpus: int) -> GoalVerdict:
    goal = "4 ranks on 2 cores: nowhere more than 10 times the time of 2 ranks and 1 ms"
    two, four = (_ring_seconds(rows, ranks) for ranks in (RANKS, CROWDED_RANKS))
    both = sorted(set(two) & set(four))
    if not both or num_cpus != RANKS:
        return GoalVerdict(goal=goal, verdict="not judged", found=_needed(num_cpus, ""))
    collapsed = [one for one in both if four[one] > COLLAPSE_FACTOR * two[one] + COLLAPSE_SECONDS]
    worst = max(both, key=lambda one: four[one] / two[one])
    text = f"at worst {number(four[worst] / two[worst])} times, {number(1e3 * four[worst])} ms, at {size_text(worst)}"
    if collapsed:
        text += f"; collapses at {', '.join(map(size_text, collapsed))}"
    return GoalVerdict(goal=goal, verdict="missed" if collapsed else "met", found=text)


def _needed(num_cpus: int, more: str) -> str:
    return (
        f"needs 2 cores, and this machine has {num_cpus}" if num_cpus != RANKS else f"needs RANKS=2,4{more}"
    )


def _ring_seconds(rows: Sequence[MessageSizeRow], num_ranks: int) -> dict[int, float]:
    at = (row for row in rows if (row.role, row.num_ranks, row.mode) == (RING, num_ranks, MODE))
    return {row.message_bytes: row.seconds.center for row in at if row.seconds}


def _void(checks: Sequence[ValidityCheck]) -> str:
    bad = dict.fromkeys(one.backend for one in checks if not one.valid)
    return f"void: {', '.join(bad)} not shown to be within 5 % of IMB-MPI1" if bad else ""


TOLERANCE = 0.05
RESOLUTION = 0.10  # with a wider interval an estimate within the tolerance is luck
IMB = "IMB-MPI1"


@dataclass(frozen=True, slots=True, kw_only=True)
class ValidityCheck:
    """One MPI at one setting: ours over theirs, by size and over all sizes."""

    backend: str
    setting: str
    valid: bool
    found: str  # in words
    ratios: dict[int, Interval]  # by message bytes


def check_validity(campaign: MessageSizeRun, launches: Sequence[MessageSizeLaunch]) -> list[ValidityCheck]:
    """A check of every setting that was compared, and one that says so for an MPI of which none was."""
    pairs = [launch for launch in launches if launch.purpose == "validity"]
    compared = dict.fromkeys((launch.backend, launch.setting) for launch in pairs)
    checks = [_check_setting(backend, setting, pairs) for backend, setting in compared]
    mpis = {peer.name for peer in campaign.peers if peer.kind == "mpi"}
    measured = dict.fromkeys(
        launch.backend
        for launch in launches
        if launch.purpose == "measured" and launch.num_ranks <= len(campaign.cpus)
    )
    uncompared = [name for name in measured if name in mpis and name not in {one.backend for one in checks}]
    return checks + [_check_setting(name, "any setting", []) for name in uncompared]


def _check_setting(backend: str, setting: str, launches: Sequence[MessageSizeLaunch]) -> ValidityCheck:
    """Both measure the slowest rank's mean over the calls, so means are compared here, block by block."""
    mine = [one for one in launches if (one.backend, one.setting) == (backend, setting)]
    ours, theirs = _means(mine, "dlscale"), _means(mine, IMB)
    sizes = sorted(set(ours) & set(theirs))
    ratios = {one: block_ratio(ours[one], theirs[one]) for one in sizes}
    if not ratios:
        why = next((one.failure for one in mine if one.failure), "nothing to compare it with")
        return ValidityCheck(
            backend=backend, setting=setting, valid=False, found=f"not compared with {IMB}: {why}", ratios={}
        )
    overall = _overall(ours, theirs, sizes)
    outside = [one for one in sizes if _surely_outside(ratios[one])]
    valid = abs(overall.center - 1) <= TOLERANCE and _resolved(overall) and not outside
    return ValidityCheck(
        backend=backend,
        setting=setting,
        valid=valid,
        found=_check_words(overall, ratios, outside),
        ratios=ratios,
    )


def _means(launches: Sequence[MessageSizeLaunch], program: str) -> dict[int, ByBlock]:
    """Seconds by size and block."""
    found: dict[int, ByBlock] = defaultdict(dict)
    for launch in launches:
        if launch.program != program:
            continue
        for line in launch.references:
            found[line.message_bytes][launch.block] = line.seconds
        for num_bytes in {block.message_bytes for block in launch.samples}:
            blocks = [block.nanoseconds for block in launch.samples if block.message_bytes == num_bytes]
            by_rank = np.concatenate([np.asarray(block, np.float64) for block in blocks], axis=1).mean(axis=1)
            found[num_bytes][launch.block] = 1e-9 * float(by_rank.max())
    return found


def _overall(ours: dict[int, ByBlock], theirs: dict[int, ByBlock], sizes: Sequence[int]) -> Interval:
    """The geometric mean over sizes: in each block that has all of them, then over blocks."""
    blocks = set.intersection(*(set(ours[one]) & set(theirs[one]) for one in sizes))
    if not blocks:
        logs = [math.log(block_ratio(ours[one], theirs[one]).center) for one in sizes]
        center = math.exp(math.fsum(logs) / len(logs))
        return Interval(center=center, low=None, high=None, level=LEVEL, method="no interval", n=0)

    def mean(times: dict[int, ByBlock], block: Hashable) -> float:
        return math.exp(math.fsum(math.log(times[one][block]) for one in sizes) / len(sizes))

    return block_ratio(
        {block: mean(ours, block) for block in blocks}, {block: mean(theirs, block) for block in blocks}
    )


def _surely_outside(ratio: Interval) -> bool:
    """Its whole interval is: noise alone does not explain it."""
    if ratio.low is None or ratio.high is None:
        return False
    return ratio.low > 1 + TOLERANCE or ratio.high < 1 - TOLERANCE


def _resolved(overall: Interval) -> bool:
    """Noise leaves the estimate no worse than RESOLUTION."""
    if overall.low is None or overall.high is None:
        return False
    return overall.low >= 1 - RESOLUTION and overall.high <= 1 + RESOLUTION


def _check_words(overall: Interval, ratios: dict[int, Interval], outside: Sequence[int]) -> str:
    text = f"{rate(overall)} of {IMB}'s time over {len(ratios)} sizes"
    extremes = sorted(ratios, key=lambda one: ratios[one].center)
    least, most = (ratio_at_size(size, ratios[size]) for size in (extremes[0], extremes[-1]))
    text += f"; {least} to {most}"
    if not _resolved(overall):
        text += "; too noisy to tell"
    if outside:
        text += f"; not within 5 % at {', '.join(map(size_text, outside))}"
    unsure = [
        one for one, found in ratios.items() if abs(found.center - 1) > TOLERANCE and one not in outside
    ]
    if unsure:
        text += f"; too noisy to tell at {', '.join(map(size_text, unsure))}"
    return text
