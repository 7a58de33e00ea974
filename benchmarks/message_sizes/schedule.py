"""Which launches, in which order, for how long.

A run has three parts: a sweep that chooses settings, the measurement, and the comparison with IMB-MPI1. Launches of
the last two come in blocks, each block in an order of its own, because machines drift: what is compared was measured
minutes apart at most, and in one process where that is possible. Worth measuring are a peer's settings that were
fastest at some size of the sweep (`choose`).
"""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from dlscale.benchmarks.message_sizes.launch import MIB, LaunchOrder
from dlscale.benchmarks.message_sizes.peers import Peer, PeerSetting
from dlscale.benchmarks.records.message_sizes import MessageSizeLaunch, Mode

RING_OPERATIONS = ("ring", "ring-shared", "ring-unsynchronised")
TUNING_SHARE, VALIDITY_SHARE, CROWDED_SHARE = 0.2, 0.25, 0.1  # of the budget; the measurement has the rest
# What a launch takes beside its timed calls, in seconds, and how much longer its calls take than was asked for:
# warm-ups, checks of results and the fewest calls of large messages.
START_SECONDS = {"mpi": 2.0, "torch": 5.0}
STRETCH = 1.7
LEAST_SECONDS, MOST_SECONDS = 0.4, 60.0
MOST_TUNING_SECONDS = 3.0
# Long enough at every size that a process which the machine halts for a moment does not decide the mean.
VALIDITY_CALLS = 50_000
VALIDITY_VOLUME = 1024 * MIB
MOST_PAIRS = 10
VALIDITY_LARGEST = 64 * MIB  # IMB keeps two buffers per rank, and 5 % are not to be seen in a few calls
VALIDITY_SIZES = 5
VALIDITY_SECONDS = 1.2  # about: the number of calls is fixed

Choice = tuple[Peer, PeerSetting]


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What a run was asked for."""

    sizes: Sequence[int]
    modes: Sequence[Mode]
    num_blocks: int
    seed: int
    num_cpus: int
    ring: bool  # with the ring and the memory stream in the programs of the MPIs

    def crowded(self, num_ranks: int) -> bool:
        """Ranks share CPUs."""
        return num_ranks > self.num_cpus

    def operations(self, peer: Peer, *, crowded: bool = False) -> list[str]:
        """What a measured launch of a peer times."""
        if peer.kind == "torch":
            return [peer.name]
        if crowded:
            return ["mpi", *(RING_OPERATIONS[:1] if self.ring else ())]
        return ["mpi", *(RING_OPERATIONS if self.ring else ()), "stream"]


def sweep(wanted: Wanted, peers: Sequence[Peer], num_ranks: int, budget: float) -> list[LaunchOrder]:
    """A launch of every setting of the peers that have a choice, hot only."""
    orders = [
        LaunchOrder(
            purpose="tuning",
            block=0,
            peer=peer,
            setting=setting,
            num_ranks=num_ranks,
            sizes=wanted.sizes,
            modes=("hot",),
            operations=[peer.name if peer.kind == "torch" else "mpi"],
            seconds=0,
        )
        for peer in peers
        if len(peer.settings) > 1
        for setting in peer.settings
    ]
    random.Random(wanted.seed).shuffle(orders)  # noqa: S311 - an order, not a secret
    return timed(orders, budget, most=MOST_TUNING_SECONDS)


def measurement(
    wanted: Wanted, choices: Sequence[Choice], num_ranks: int, budget: float
) -> list[LaunchOrder]:
    """Blocks with a launch of every choice; where ranks share CPUs, default settings and hot calls only."""
    crowded = wanted.crowded(num_ranks)
    orders: list[LaunchOrder] = []
    for block in range(wanted.num_blocks):
        launches = [
            LaunchOrder(
                purpose="measured",
                block=block,
                peer=peer,
                setting=setting,
                num_ranks=num_ranks,
                sizes=wanted.sizes,
                modes=("hot",) if crowded else wanted.modes,
                operations=wanted.operations(peer, crowded=crowded),
                seconds=0,
            )
            for peer, setting in choices
            if setting.default or not crowded
        ]
        random.Random(f"{wanted.seed} {num_ranks} {block}").shuffle(launches)  # noqa: S311
        orders += launches
    return timed(orders, budget, most=MOST_SECONDS)


def validity(
    wanted: Wanted, choices: Sequence[Choice], references: dict[str, Path], num_ranks: int, budget: float
) -> list[LaunchOrder]:
    """Pairs of launches, ours and IMB's, that do the same calls on the same sizes; who is first alternates.

    As many pairs of each MPI's default settings and of the one setting that gains most as there is time for, and
    at least as many as there are blocks.
    """
    sizes = _spread([size for size in wanted.sizes if size <= VALIDITY_LARGEST], VALIDITY_SIZES)
    compared = [choice for choice in _defaults_and_best(choices) if choice[0].name in references]
    if not sizes or not compared:
        return []
    pair_seconds = 2 * (START_SECONDS["mpi"] + STRETCH * VALIDITY_SECONDS)
    fitting = int(budget / (len(compared) * pair_seconds))
    orders: list[LaunchOrder] = []
    for block in range(max(wanted.num_blocks, min(fitting, MOST_PAIRS))):
        for index, (peer, setting) in enumerate(compared):
            ours = LaunchOrder(
                purpose="validity",
                block=block,
                peer=peer,
                setting=setting,
                num_ranks=num_ranks,
                sizes=sizes,
                modes=("hot",),
                operations=["mpi-copy"],
                seconds=VALIDITY_SECONDS,
                num_calls=VALIDITY_CALLS,
                volume_bytes=VALIDITY_VOLUME,
            )
            theirs = replace(ours, program="IMB-MPI1", reference=references[peer.name])
            orders += [ours, theirs] if (block + index) % 2 == 0 else [theirs, ours]
    return orders


def _defaults_and_best(choices: Sequence[Choice]) -> list[Choice]:
    """Of each peer its default settings, and the first of those that were chosen for their gain."""
    tuned: dict[str, Choice] = {}
    for peer, setting in choices:
        if not setting.default:
            tuned.setdefault(peer.name, (peer, setting))
    return [choice for choice in choices if choice[1].default or tuned[choice[0].name] == choice]


def timed(orders: Sequence[LaunchOrder], budget: float, *, most: float) -> list[LaunchOrder]:
    """The orders with equal times, so that all of them take about `budget` seconds."""
    if not orders:
        return []
    starts = sum(START_SECONDS[order.peer.kind] for order in orders)
    seconds = (budget - starts) / len(orders) / STRETCH
    return [replace(order, seconds=min(max(seconds, LEAST_SECONDS), most)) for order in orders]


def expected_seconds(order: LaunchOrder) -> float:
    """About."""
    return START_SECONDS[order.peer.kind] + STRETCH * order.seconds


def _spread(sizes: Sequence[int], most: int) -> list[int]:
    """At most so many of the sizes, the first and the last among them."""
    if len(sizes) <= most:
        return list(sizes)
    return [sizes[round(i * (len(sizes) - 1) / (most - 1))] for i in range(most)]


MOST_TUNED = 3  # beside the default ones
LEAST_GAIN = 0.01  # a setting must make the peer's best so much faster, over all sizes


def choose_settings(
    peer: Peer, launches: Iterable[MessageSizeLaunch], *, most: int = MOST_TUNED
) -> list[PeerSetting]:
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


def seconds_by_size(launch: MessageSizeLaunch) -> dict[int, float]:
    """The median over the calls of the slowest rank's time, by message bytes; the peer's own operation only."""
    calls: dict[int, list[int]] = {}
    for block in launch.samples:
        if block.operation in ("mpi", launch.backend) and block.mode == "hot":
            slowest = [max(ranks) for ranks in zip(*block.nanoseconds, strict=True)]
            calls.setdefault(block.message_bytes, []).extend(slowest)
    return {size: 1e-9 * statistics.median(values) for size, values in calls.items()}
