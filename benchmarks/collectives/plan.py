"""Which launches, in which order, for how long.

A run has three parts: a sweep that chooses settings, the measurement, and the comparison with IMB-MPI1. Launches of
the last two come in blocks, each block in an order of its own, because machines drift: what is compared was
measured minutes apart at most, and in one process where that is possible.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from dlscale.benchmarks.collectives.command import MIB, Order
from dlscale.benchmarks.collectives.peers import Peer, PeerSetting
from dlscale.benchmarks.collectives.record import Mode

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


def sweep(wanted: Wanted, peers: Sequence[Peer], num_ranks: int, budget: float) -> list[Order]:
    """A launch of every setting of the peers that have a choice, hot only."""
    orders = [
        Order(
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


def measurement(wanted: Wanted, choices: Sequence[Choice], num_ranks: int, budget: float) -> list[Order]:
    """Blocks with a launch of every choice; where ranks share CPUs, default settings and hot calls only."""
    crowded = wanted.crowded(num_ranks)
    orders: list[Order] = []
    for block in range(wanted.num_blocks):
        launches = [
            Order(
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
) -> list[Order]:
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
    orders: list[Order] = []
    for block in range(max(wanted.num_blocks, min(fitting, MOST_PAIRS))):
        for index, (peer, setting) in enumerate(compared):
            ours = Order(
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


def timed(orders: Sequence[Order], budget: float, *, most: float) -> list[Order]:
    """The orders with equal times, so that all of them take about `budget` seconds."""
    if not orders:
        return []
    starts = sum(START_SECONDS[order.peer.kind] for order in orders)
    seconds = (budget - starts) / len(orders) / STRETCH
    return [replace(order, seconds=min(max(seconds, LEAST_SECONDS), most)) for order in orders]


def expected_seconds(order: Order) -> float:
    """About."""
    return START_SECONDS[order.peer.kind] + STRETCH * order.seconds


def _spread(sizes: Sequence[int], most: int) -> list[int]:
    """At most so many of the sizes, the first and the last among them."""
    if len(sizes) <= most:
        return list(sizes)
    return [sizes[round(i * (len(sizes) - 1) / (most - 1))] for i in range(most)]
