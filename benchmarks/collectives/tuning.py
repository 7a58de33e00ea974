"""Which settings of a peer are worth measuring: those that were fastest at some size of a short sweep."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence

from dlscale.benchmarks.collectives.peers import Peer, PeerSetting
from dlscale.benchmarks.collectives.record import Launch

MOST_TUNED = 3  # beside the default ones
LEAST_GAIN = 0.01  # a setting must make the peer's best so much faster, over all sizes


def choose(peer: Peer, launches: Iterable[Launch], *, most: int = MOST_TUNED) -> list[PeerSetting]:
    """The default settings and then, one by one, what lowers the peer's best time over all sizes most.

    A setting that failed or was not tried is left out. The mean is geometric: 10 % count the same at every size.
    """
    times = {launch.setting: seconds_by_size(launch) for launch in launches if launch.backend == peer.name}
    chosen = [setting for setting in peer.settings if setting.default]
    while len(chosen) < most + sum(setting.default for setting in peer.settings):
        others = [one for one in peer.settings if one not in chosen and times.get(one.name)]
        gains = [(gain(times, chosen, setting), setting) for setting in others]
        best = max(gains, key=lambda pair: pair[0], default=None)
        if best is None or best[0] < LEAST_GAIN:
            break
        chosen.append(best[1])
    return chosen


def gain(times: dict[str, dict[int, float]], chosen: Sequence[PeerSetting], setting: PeerSetting) -> float:
    """Mean over the sizes of the logarithm by which `setting` lowers the best time of those `chosen`."""
    known = [times[one.name] for one in chosen if one.name in times]
    logs = []
    for size, seconds in times[setting.name].items():
        best = min((table[size] for table in known if size in table), default=math.inf)
        # What nothing chosen can do at all counts as ten times faster.
        logs.append(math.log(10) if best == math.inf else max(0.0, math.log(best / seconds)))
    return statistics.fmean(logs) if logs else 0.0


def seconds_by_size(launch: Launch) -> dict[int, float]:
    """The median over the calls of the slowest rank's time, by message bytes; the peer's own operation only."""
    calls: dict[int, list[int]] = {}
    for block in launch.samples:
        if block.operation in ("mpi", launch.backend) and block.mode == "hot":
            slowest = [max(ranks) for ranks in zip(*block.nanoseconds, strict=True)]
            calls.setdefault(block.message_bytes, []).extend(slowest)
    return {size: 1e-9 * statistics.median(values) for size, values in calls.items()}
