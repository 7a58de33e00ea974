"""Validity: whether our measurement of an MPI agrees with that of Intel's IMB-MPI1 over the same MPI.

Both measure the slowest rank's mean over the calls of an out-of-place allreduce, in consecutive launches. Only sizes
are compared at which a call is so long that Python's overhead is less than 1 %.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from dlscale.analysis.statistics import Interval, block_ratio
from dlscale.analysis.text import ratio_at_size, ratio_text
from dlscale.benchmarks.records.message_sizes import MessageSizeLaunch, MessageSizeRun

IMB = "IMB-MPI1"
TOLERANCE = 0.05
RESOLUTION = 0.10  # with a wider interval, an estimate within the tolerance may be chance
LEAST_SECONDS = 100e-6  # Python adds about 1 us (docs/ring.md)

ByBlock = dict[Hashable, float]  # seconds, as statistics.block_ratio takes them


@dataclass(frozen=True, slots=True, kw_only=True)
class ValidityCheck:
    """The result of the comparison for one MPI at one setting."""

    backend: str
    setting: str
    valid: bool
    found: str  # in words
    compared: bool = True


def check_validity(campaign: MessageSizeRun, launches: Sequence[MessageSizeLaunch]) -> list[ValidityCheck]:
    """A check of every setting that was compared, and one "not compared" for every other MPI that was measured."""
    pairs = [launch for launch in launches if launch.purpose == "validity"]
    settings = dict.fromkeys((launch.backend, launch.setting) for launch in pairs)
    checks = [_check(backend, setting, pairs) for backend, setting in settings]
    mpis = {peer.name for peer in campaign.peers if peer.kind == "mpi"}
    measured = dict.fromkeys(
        launch.backend
        for launch in launches
        if launch.purpose == "measured" and launch.num_ranks <= len(campaign.cpus)
    )
    uncompared = [name for name in measured if name in mpis - {check.backend for check in checks}]
    return checks + [_check(name, "any setting", []) for name in uncompared]


def _check(backend: str, setting: str, launches: Sequence[MessageSizeLaunch]) -> ValidityCheck:
    mine = [launch for launch in launches if (launch.backend, launch.setting) == (backend, setting)]
    ours, theirs = _means(mine, "dlscale"), _means(mine, IMB)
    sizes = [size for size in sorted(set(ours) & set(theirs)) if min(theirs[size].values()) >= LEAST_SECONDS]
    blocks = set.intersection(*(set(ours[size]) & set(theirs[size]) for size in sizes)) if sizes else set()
    if not blocks:
        why = next((launch.failure for launch in mine if launch.failure), "nothing to compare it with")
        return ValidityCheck(
            backend=backend,
            setting=setting,
            valid=False,
            found=f"not compared with {IMB}: {why}",
            compared=False,
        )
    overall = block_ratio(
        *({block: _mean(times, sizes, block) for block in blocks} for times in (ours, theirs))
    )
    ratios = {size: block_ratio(ours[size], theirs[size]) for size in sizes}
    extremes = sorted(sizes, key=lambda size: ratios[size].center)
    least, most = (ratio_at_size(size, ratios[size]) for size in (extremes[0], extremes[-1]))
    return ValidityCheck(
        backend=backend,
        setting=setting,
        valid=abs(overall.center - 1) <= TOLERANCE and _is_resolved(overall),
        found=f"{ratio_text(overall)} of {IMB}'s time over {len(sizes)} sizes; {least} to {most}"
        + ("" if _is_resolved(overall) else "; too noisy to tell"),
    )


def _means(launches: Sequence[MessageSizeLaunch], program: str) -> dict[int, ByBlock]:
    """Seconds by size and block."""
    means: dict[int, ByBlock] = defaultdict(dict)
    for launch in launches:
        if launch.program != program:
            continue
        for line in launch.references:
            means[line.message_bytes][launch.block] = line.seconds
        for num_bytes in {block.message_bytes for block in launch.samples}:
            blocks = [block.nanoseconds for block in launch.samples if block.message_bytes == num_bytes]
            by_rank = np.concatenate([np.asarray(block, np.float64) for block in blocks], axis=1).mean(axis=1)
            means[num_bytes][launch.block] = 1e-9 * float(by_rank.max())
    return means


def _mean(times: Mapping[int, ByBlock], sizes: Sequence[int], block: object) -> float:
    """The geometric mean over sizes."""
    return math.exp(math.fsum(math.log(times[size][block]) for size in sizes) / len(sizes))


def _is_resolved(overall: Interval) -> bool:
    """Whether both limits are within RESOLUTION of 1."""
    if overall.low is None or overall.high is None:
        return False
    return overall.low >= 1 - RESOLUTION and overall.high <= 1 + RESOLUTION
