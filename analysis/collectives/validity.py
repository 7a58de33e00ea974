"""Is our measurement of an MPI the same as that of a benchmark of others? If not, the run is void."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np

from dlscale.analysis.collectives.times import ByBlock
from dlscale.analysis.collectives.words import by_size, ratio, size
from dlscale.analysis.statistics import LEVEL, Interval, block_ratio
from dlscale.benchmarks.collectives.record import Campaign, Launch

TOLERANCE = 0.05
RESOLUTION = 0.10  # with a wider interval an estimate within the tolerance is luck
IMB = "IMB-MPI1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One MPI at one setting: ours over theirs, by size and over all sizes."""

    backend: str
    setting: str
    valid: bool
    found: str  # in words
    ratios: dict[int, Interval]  # by message bytes


def check(campaign: Campaign, launches: Sequence[Launch]) -> list[Check]:
    """A check of every setting that was compared, and one that says so for an MPI of which none was."""
    pairs = [launch for launch in launches if launch.purpose == "validity"]
    compared = dict.fromkeys((launch.backend, launch.setting) for launch in pairs)
    checks = [_check(backend, setting, pairs) for backend, setting in compared]
    mpis = {peer.name for peer in campaign.peers if peer.kind == "mpi"}
    measured = dict.fromkeys(
        launch.backend
        for launch in launches
        if launch.purpose == "measured" and launch.num_ranks <= len(campaign.cpus)
    )
    uncompared = [name for name in measured if name in mpis and name not in {one.backend for one in checks}]
    return checks + [_check(name, "any setting", []) for name in uncompared]


def _check(backend: str, setting: str, launches: Sequence[Launch]) -> Check:
    """Both measure the slowest rank's mean over the calls, so means are compared here, block by block."""
    mine = [one for one in launches if (one.backend, one.setting) == (backend, setting)]
    ours, theirs = _means(mine, "dlscale"), _means(mine, IMB)
    sizes = sorted(set(ours) & set(theirs))
    ratios = {one: block_ratio(ours[one], theirs[one]) for one in sizes}
    if not ratios:
        why = next((one.failure for one in mine if one.failure), "nothing to compare it with")
        return Check(
            backend=backend, setting=setting, valid=False, found=f"not compared with {IMB}: {why}", ratios={}
        )
    overall = _overall(ours, theirs, sizes)
    outside = [one for one in sizes if _surely_outside(ratios[one])]
    valid = abs(overall.center - 1) <= TOLERANCE and _resolved(overall) and not outside
    return Check(
        backend=backend, setting=setting, valid=valid, found=_words(overall, ratios, outside), ratios=ratios
    )


def _means(launches: Sequence[Launch], program: str) -> dict[int, ByBlock]:
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


def _words(overall: Interval, ratios: dict[int, Interval], outside: Sequence[int]) -> str:
    text = f"{ratio(overall)} of {IMB}'s time over {len(ratios)} sizes"
    extremes = sorted(ratios, key=lambda one: ratios[one].center)
    text += f"; {by_size(extremes[0], ratios[extremes[0]])} to {by_size(extremes[-1], ratios[extremes[-1]])}"
    if not _resolved(overall):
        text += "; too noisy to tell"
    if outside:
        text += f"; not within 5 % at {', '.join(map(size, outside))}"
    unsure = [
        one for one, found in ratios.items() if abs(found.center - 1) > TOLERANCE and one not in outside
    ]
    if unsure:
        text += f"; too noisy to tell at {', '.join(map(size, unsure))}"
    return text
