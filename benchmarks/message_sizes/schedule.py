"""Which launches a run consists of, in which order, and how its budget is shared among them.

A run tries settings, measures, and compares with IMB-MPI1. Measured launches come in blocks, each block in an order
of its own. The launches of a block, and those that try a library's settings, run together and take turns, because
machines drift: what is compared was measured within a second or so.
"""

from __future__ import annotations

import itertools
import math
import random
import statistics
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from dlscale.benchmarks.message_sizes.launch import IMB, RING_SHARED, LaunchOrder
from dlscale.benchmarks.message_sizes.peers import Peer, PeerSetting
from dlscale.benchmarks.records.collective_operations import BY_NAME
from dlscale.benchmarks.records.message_sizes import Collective, MessageSizeLaunch

ALLREDUCE: Final = "allreduce"  # what the ring has a variant of, and what IMB-MPI1 is compared with
TUNING_SHARE, VALIDITY_SHARE = 0.3, 0.15  # of the time of a number of ranks; measuring has the rest
LEAST_SECONDS, MOST_SECONDS, MOST_TUNING_SECONDS = 0.4, 60.0, 3.0  # of timed calls in a launch
# What a launch takes beside its timed calls, until some were measured.
START_SECONDS = {"ring": 3.0, "mpi": 2.0, "torch": 6.0}
LAUNCH_FACTOR, LAUNCH_SECONDS = 4, 60  # a launch that takes so many times its time, and so much more, hangs
OVERTIME, LEAST_LIMIT = 0.05, 10  # a launch ends so much of the budget, or so many seconds, after its end
OVERSUBSCRIBED_WEIGHT = 0.1  # of a number of ranks that share CPUs, in sharing the budget
MOST_TUNED = 3  # settings beside the default ones
LEAST_GAIN = 0.01  # a setting must make the peer's best so much faster, over all sizes
VALIDITY_SIZES = 5

Choice = tuple[Peer, PeerSetting]
Group = Sequence[LaunchOrder]  # that run together
Point = tuple[str, int]  # collective operation, message bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepRequest:
    """What is to be measured, whatever the number of ranks."""

    sizes: Sequence[int]
    num_blocks: int
    seed: int
    collectives: Sequence[Collective] = (ALLREDUCE,)
    several_nodes: bool = False


def operations(
    peer: Peer,
    collectives: Sequence[Collective] = (ALLREDUCE,),
    *,
    only_own: bool = False,
    several_nodes: bool = False,
) -> list[str]:
    """What a launch of a peer times: its collective operations, and the memory stream that bounds some of them.

    Between nodes memory is no bound.
    """
    own = "mpi" if peer.kind == "mpi" else peer.name
    words = [own if collective == ALLREDUCE else f"{own}:{collective}" for collective in collectives]
    bounded = any(BY_NAME[collective].memory_bound for collective in collectives)
    return words if only_own or several_nodes or not bounded else [*words, "stream"]


def operations_by_launch(
    peer: Peer, collectives: Sequence[Collective], *, only_own: bool, several_nodes: bool
) -> list[list[str]]:
    """The launches of a peer in a block, and what each of them times."""
    own = operations(peer, collectives, only_own=only_own, several_nodes=several_nodes)
    has_variant = peer.kind == "ring" and ALLREDUCE in collectives and not (only_own or several_nodes)
    return [own, [RING_SHARED]] if has_variant else [own]


def has_choice(peer: Peer) -> bool:
    """Whether a library has settings beside its defaults."""
    return not all(setting.default for setting in peer.settings)


def tuning(request: SweepRequest, peer: Peer, num_ranks: int) -> list[LaunchOrder]:
    """A launch of every setting of a peer; the defaults first."""
    others = [setting for setting in peer.settings if not setting.default]
    random.Random(f"{request.seed} {peer.name}").shuffle(others)  # noqa: S311 - an order, not a secret
    return [
        LaunchOrder(
            purpose="tuning",
            block=0,
            peer=peer,
            setting=setting,
            num_ranks=num_ranks,
            sizes=request.sizes,
            operations=operations(peer, request.collectives, only_own=True),
        )
        for setting in [*(setting for setting in peer.settings if setting.default), *others]
    ]


def groups(orders: Sequence[LaunchOrder], most_together: int) -> list[Group]:
    """The orders of each block in groups of at most so many, as equal as can be.

    A library that never rests is alone, and so is another benchmark, which takes no turns.
    """
    found: list[Group] = []
    for _, block in itertools.groupby(orders, key=lambda order: order.block):
        in_block = list(block)
        resting = [order for order in in_block if order.peer.rests and order.program != IMB]
        num_groups = math.ceil(len(resting) / most_together)
        found += [resting[index::num_groups] for index in range(num_groups)]
        found += [[order] for order in in_block if order not in resting]
    return found


def measurement(
    request: SweepRequest, choices: Sequence[Choice], num_ranks: int, *, oversubscribed: bool = False
) -> list[LaunchOrder]:
    """Blocks with the launches of every choice; of ranks that share CPUs, default settings only."""
    orders: list[LaunchOrder] = []
    for block in range(request.num_blocks):
        launches = [
            LaunchOrder(
                purpose="measured",
                block=block,
                peer=peer,
                setting=setting,
                num_ranks=num_ranks,
                sizes=request.sizes,
                operations=words,
            )
            for peer, setting in choices
            if setting.default or not oversubscribed
            for words in operations_by_launch(
                peer, request.collectives, only_own=oversubscribed, several_nodes=request.several_nodes
            )
        ]
        random.Random(f"{request.seed} {num_ranks} {block}").shuffle(launches)  # noqa: S311
        orders += launches
    return orders


def validity(
    request: SweepRequest, peers: Sequence[Peer], references: Mapping[str, Path], num_ranks: int
) -> list[LaunchOrder]:
    """Pairs of launches at an MPI's first default setting, ours and IMB's; which one is first alternates.

    None unless an allreduce was asked for: only that is compared.
    """
    if ALLREDUCE not in request.collectives:
        return []
    step = max(1, math.ceil((len(request.sizes) - 1) / (VALIDITY_SIZES - 1)))
    orders: list[LaunchOrder] = []
    for block in range(request.num_blocks):
        for index, peer in enumerate(peer for peer in peers if peer.name in references):
            ours = LaunchOrder(
                purpose="validity",
                block=block,
                peer=peer,
                setting=next(setting for setting in peer.settings if setting.default),
                num_ranks=num_ranks,
                sizes=sorted({*request.sizes[::step], request.sizes[-1]}),
                operations=("mpi-copy",),
            )
            theirs = replace(ours, program=IMB, reference=references[peer.name])
            orders += [ours, theirs] if (block + index) % 2 == 0 else [theirs, ours]
    return orders


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """Launches that follow each other, and the seconds of the budget that must be left after them."""

    title: str
    groups: Sequence[Group]
    until: float

    @property
    def orders(self) -> list[LaunchOrder]:
        return [order for group in self.groups for order in group]


@dataclass(slots=True)
class Budget:
    """The wall time of a run. What a launch takes is estimated from those that were made."""

    seconds: float
    clock: Callable[[], float]
    _begin: float = field(init=False)
    _costs: dict[tuple[object, ...], list[float]] = field(init=False)

    def __post_init__(self) -> None:
        self._begin = self.clock()
        self._costs = defaultdict(list)

    @property
    def left(self) -> float:
        return self._begin + self.seconds - self.clock()

    def spent(self, order: LaunchOrder, seconds: float) -> None:
        """A launch took so long."""
        for key in _keys(order):
            self._costs[key].append(max(0.0, seconds - order.seconds))

    def cost(self, order: LaunchOrder) -> float:
        """What a launch takes beside its timed calls: the mean of the launches most like it."""
        known = next((self._costs[key] for key in _keys(order) if self._costs[key]), None)
        return statistics.fmean(known) if known else START_SECONDS[order.peer.kind]

    def timed(self, groups: Sequence[Group], until: float) -> Iterator[Group]:
        """The groups one by one, with the time of each launch, as long as they end when `until` seconds are left.

        What is left is shared equally among launches. A group for which too little is left is cut, and is the last.
        """
        for index, group in enumerate(groups):
            left = self.left - until
            orders = [order for later in groups[index:] for order in later]
            share = (left - sum(map(self.cost, orders))) / len(orders)
            least = itertools.accumulate(self.cost(order) + LEAST_SECONDS for order in group)
            fitting = sum(seconds <= left for seconds in least)
            if not fitting:
                return
            seconds = min(max(share, LEAST_SECONDS), _most(group[0]))
            limit = LAUNCH_SECONDS + LAUNCH_FACTOR * seconds
            limit = min(limit, (self.left + OVERTIME * self.seconds) / fitting)
            yield [
                replace(order, seconds=seconds, limit_seconds=int(max(limit, LEAST_LIMIT)))
                for order in group[:fitting]
            ]
            if fitting < len(group):
                return

    def rest(self, parts: Iterable[Part]) -> float:
        """Seconds that what is left of a run will take, about; never more than the budget has left.

        A launch takes the time that it is given and what launches like it took beside theirs, whether they failed or
        not: a failed launch is not made again.
        """
        left = end = max(0.0, self.left)
        for part in parts:
            wanted = sum(self.cost(order) + _most(order) for order in part.orders)
            end -= min(wanted, max(0.0, end - part.until))
        return left - end


def _most(order: LaunchOrder) -> float:
    return MOST_TUNING_SECONDS if order.purpose == "tuning" else MOST_SECONDS


def _keys(order: LaunchOrder) -> list[tuple[object, ...]]:
    """From the launches most like an order to all of its library's."""
    exact = (order.peer.name, order.num_ranks, order.program, tuple(order.operations))
    return [exact[: len(exact) - i] for i in range(len(exact))]


def likely_choices(peers: Iterable[Peer]) -> list[Choice]:
    """The most settings of each peer that `choose_settings` may return, before anything was tried."""
    choices: list[Choice] = []
    for peer in peers:
        others = [setting for setting in peer.settings if not setting.default]
        defaults = [setting for setting in peer.settings if setting.default]
        choices += [(peer, setting) for setting in [*defaults, *others[:MOST_TUNED]]]
    return choices


def choose_settings(peer: Peer, launches: Iterable[MessageSizeLaunch]) -> list[PeerSetting]:
    """The default settings and then, one by one, what lowers the peer's best time over all sizes and operations most.

    A setting that failed or was not tried is left out. The mean is geometric: 10 % count the same at every size.
    """
    times = {launch.setting: seconds_by_point(launch) for launch in launches if launch.backend == peer.name}
    chosen = [setting for setting in peer.settings if setting.default]
    for _ in range(MOST_TUNED):
        others = [setting for setting in peer.settings if setting not in chosen and times.get(setting.name)]
        gains = [(_gain(times, chosen, setting), setting) for setting in others]
        best = max(gains, key=lambda pair: pair[0], default=None)
        if best is None or best[0] < LEAST_GAIN:
            break
        chosen.append(best[1])
    return chosen


def _gain(times: dict[str, dict[Point, float]], chosen: Sequence[PeerSetting], setting: PeerSetting) -> float:
    """Mean over sizes and operations of the logarithm by which `setting` lowers the best time of those `chosen`."""
    known = [times[other.name] for other in chosen if other.name in times]
    logs = []
    for point, seconds in times[setting.name].items():
        best = min((table[point] for table in known if point in table), default=math.inf)
        # What no chosen setting can do at all counts as ten times faster.
        logs.append(math.log(10) if best == math.inf else max(0.0, math.log(best / seconds)))
    return statistics.fmean(logs) if logs else 0.0


def seconds_by_point(launch: MessageSizeLaunch) -> dict[Point, float]:
    """The median over the calls of the slowest rank's time, by operation and bytes; the peer's own operations only."""
    calls: dict[Point, list[int]] = {}
    for block in launch.samples:
        if block.operation in ("mpi", launch.backend):
            slowest = [max(ranks) for ranks in zip(*block.nanoseconds, strict=True)]
            calls.setdefault((block.collective, block.message_bytes), []).extend(slowest)
    return {point: 1e-9 * statistics.median(values) for point, values in calls.items()}
