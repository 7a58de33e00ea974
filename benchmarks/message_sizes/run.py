"""A run of the message-size benchmark: from a request to a folder of records, within a budget of wall time.

A run tries the settings of each library briefly, then measures. Measured launches come in blocks, each block in an
order of its own. The launches of a block, and those that try a library's settings, run together and take turns,
because machines drift: what is compared was measured within a second or so.
"""

from __future__ import annotations

import itertools
import math
import os
import random
import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pandas as pd
import psutil

from dlscale.base.errors import UsageError
from dlscale.base.quantities import format_seconds, format_size
from dlscale.benchmarks.launch import environment
from dlscale.benchmarks.launch.probe import commit, describe_node
from dlscale.benchmarks.launch.supervisor import now
from dlscale.benchmarks.message_sizes import launch
from dlscale.benchmarks.message_sizes.launch import RING_SHARED, LaunchOrder
from dlscale.benchmarks.message_sizes.machine import Cluster, Machine
from dlscale.benchmarks.message_sizes.peers import Peer, PeerSetting, with_libraries
from dlscale.benchmarks.records.collective_operations import BY_NAME
from dlscale.benchmarks.records.message_sizes import (
    Collective,
    MessageSizeLaunch,
    MessageSizeRun,
    PeerState,
    add_launch,
    write_campaign,
)

TUNING_SHARE = 0.3  # of the time of a number of ranks; measuring has the rest
LEAST_SECONDS, MOST_SECONDS, MOST_TUNING_SECONDS = 0.4, 60.0, 3.0  # of timed calls in a launch
START_SECONDS = {"ring": 3.0, "mpi": 2.0, "torch": 6.0}  # beside timed calls, until some launches were made
LAUNCH_FACTOR, LAUNCH_SECONDS = 4, 60  # a launch that takes so many times its time, and so much more, hangs
OVERTIME, LEAST_LIMIT = 0.05, 10  # a launch ends so much of the budget, or so many seconds, after its end
MOST_TUNED = 3  # settings beside the default ones

Choice = tuple[Peer, PeerSetting]
Group = Sequence[LaunchOrder]  # that run together
Tell = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRequest:
    """What a user asked for, checked."""

    sizes: Sequence[int]
    collectives: Sequence[Collective] = ("allreduce",)
    rank_counts: Sequence[int]
    backends: Sequence[str]
    num_blocks: int
    budget_seconds: float
    machine: Machine  # of several nodes, rank counts fill some of them

    def orders(self, peer: Peer, num_ranks: int, *, alone: bool = False) -> list[LaunchOrder]:
        """The launches of a library in a block, which time its operations and the memory stream that bounds some.

        Not the stream, nor the ring in memory of its own, if `alone` or between nodes, where memory is no bound.
        """
        own = "mpi" if peer.kind == "mpi" else peer.name
        words = [own if name == "allreduce" else f"{own}:{name}" for name in self.collectives]
        variants = [words]
        if not (alone or isinstance(self.machine, Cluster)):
            if any(BY_NAME[name].memory_bound for name in self.collectives):
                words.append("stream")
            if peer.kind == "ring" and "allreduce" in self.collectives:
                variants.append([RING_SHARED])
        default = next(setting for setting in peer.settings if setting.default)
        order = LaunchOrder(peer=peer, setting=default, num_ranks=num_ranks, sizes=self.sizes)
        return [replace(order, operations=operations) for operations in variants]

    def trials(self, peer: Peer, num_ranks: int) -> list[LaunchOrder]:
        """A launch of every setting of a library; none if it has but defaults."""
        if all(setting.default for setting in peer.settings):
            return []
        (order,) = self.orders(peer, num_ranks, alone=True)
        return [replace(order, purpose="tuning", setting=setting) for setting in peer.settings]

    def measurement(
        self, choices: Sequence[Choice], num_ranks: int, *, alone: bool = False
    ) -> list[LaunchOrder]:
        """Blocks with the launches of every choice."""
        orders: list[LaunchOrder] = []
        for block in range(self.num_blocks):
            own = [
                replace(order, block=block, setting=setting)
                for peer, setting in choices
                for order in self.orders(peer, num_ranks, alone=alone)
            ]
            random.Random(f"{num_ranks} {block}").shuffle(own)  # noqa: S311 - an order, not a secret
            orders += own
        return orders


def groups(orders: Sequence[LaunchOrder], most_together: int) -> list[Group]:
    """The orders of each block, and trials of each library, in groups of at most so many, as equal as can be.

    A library that never rests is alone.
    """
    made: list[Group] = []
    for _, own in itertools.groupby(
        orders, key=lambda it: (it.block, it.purpose == "tuning" and it.peer.name)
    ):
        in_block = list(own)
        resting = [order for order in in_block if order.peer.rests]
        num_groups = math.ceil(len(resting) / most_together)
        made += [resting[index::num_groups] for index in range(num_groups)]
        made += [[order] for order in in_block if not order.peer.rests]
    return made


class Budget:
    """The wall time of a run. What a launch takes is estimated from those of its library that were made."""

    def __init__(self, seconds: float, clock: Callable[[], float]) -> None:
        self.seconds, self._clock, self._begin = seconds, clock, clock()
        self._costs: dict[str, list[float]] = defaultdict(list)  # of libraries, beside timed calls

    @property
    def left(self) -> float:
        """Seconds."""
        return self._begin + self.seconds - self._clock()

    def spent(self, order: LaunchOrder, seconds: float) -> None:
        """A launch took so long."""
        self._costs[order.peer.name].append(max(0.0, seconds - order.seconds))

    def cost(self, order: LaunchOrder) -> float:
        """What a launch takes beside its timed calls."""
        known = self._costs[order.peer.name]
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
            most = MOST_TUNING_SECONDS if group[0].purpose == "tuning" else MOST_SECONDS
            seconds = min(max(share, LEAST_SECONDS), most)
            limit = LAUNCH_SECONDS + LAUNCH_FACTOR * seconds
            limit = max(min(limit, (self.left + OVERTIME * self.seconds) / fitting), LEAST_LIMIT)
            yield [replace(order, seconds=seconds, limit_seconds=int(limit)) for order in group[:fitting]]
            if fitting < len(group):
                return


def choose_settings(peer: Peer, launches: Iterable[MessageSizeLaunch]) -> list[PeerSetting]:
    """The default settings, and the others that were fastest at most sizes and operations when they were tried."""
    times: dict[str, dict[tuple[str, int], list[float]]] = {}
    for record in launches:
        for block in record.samples if record.backend == peer.name else ():
            points = times.setdefault(record.setting, {})
            slowest = np.max(block.nanoseconds, axis=0)  # the slowest rank's time of each call
            points.setdefault((block.collective, block.message_bytes), []).extend(slowest)
    medians = {name: {at: np.median(own) for at, own in points.items()} for name, points in times.items()}
    fastest = pd.DataFrame(medians, dtype=float).idxmin(axis=1).value_counts()
    others = [setting for setting in peer.settings if not setting.default and setting.name in fastest]
    others.sort(key=lambda setting: -fastest[setting.name])
    return [*(setting for setting in peer.settings if setting.default), *others[:MOST_TUNED]]


def most_together(num_ranks: int, largest: int) -> int:
    """How many launches may run at the same time, whose messages take two thirds of the free memory at most.

    Raises UsageError if one takes more than half: some operations need a message and room for its result on each rank.
    """
    needed, free = 2 * num_ranks * largest, psutil.virtual_memory().available
    if needed > free / 2:
        raise UsageError(
            f"messages of {format_size(largest)} on {num_ranks} ranks need {format_size(needed)} of memory, and "
            f"{format_size(free)} are free; give smaller sizes, for instance --sizes 4KiB:16MiB:x4"
        )
    return max(1, int(free * 2 / 3 / (num_ranks * largest)))


class Run:
    """One run: `prepare` checks what can be measured, `measure` does it.

    `tell` is called with what a user must know, `progress` with a line before each launch.
    """

    def __init__(
        self, request: RunRequest, *, tell: Tell, progress: Tell, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._request, self._tell, self._progress, self._clock = request, tell, progress, clock
        self._machine = request.machine
        self._peers = self._machine.peers(request.backends, request.collectives)
        self._position = 0
        self._most_together: dict[int, int] = {}  # launches, by number of ranks
        self.folder = Path()

    def prepare(self, results: Path) -> MessageSizeRun:
        """The folder with what is to be measured. Raises UsageError if nothing can be."""
        request, machine, states = self._request, self._machine, list[PeerState]()
        for num_ranks in request.rank_counts:
            per_node = machine.ranks_on_node(num_ranks)
            self._peers = with_libraries(self._peers, per_node, machine.gpus)
            most = most_together(per_node, max(request.sizes))
            self._most_together[num_ranks] = most if per_node == num_ranks else 1
        for peer in self._peers:
            reason, versions = machine.state(peer)
            states.append(
                PeerState(name=peer.name, title=peer.title, versions=dict(versions), unusable=reason)
            )
        if all(state.unusable for state in states):
            reasons = "; ".join(f"{state.name}: {state.unusable}" for state in states)
            raise UsageError(f"nothing can be measured ({reasons})")
        load = environment.other_load()
        if load:
            self._tell(f"warning: the machine is busy: {load}")
        campaign = MessageSizeRun(
            started=now(),
            commit=commit(),
            collectives=list(request.collectives),
            **machine.facts(),
            sizes=list(request.sizes),
            rank_counts=list(request.rank_counts),
            num_blocks=request.num_blocks,
            cpus=list(machine.cpus),
            busy=load or None,
            budget_seconds=request.budget_seconds,
            node={
                **describe_node(),
                "num_cpus": len(os.sched_getaffinity(0)),
                "num_cores": len(machine.cpus),
            },
            peers=states,
        )
        self.folder = results / "collectives" / datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
        write_campaign(self.folder, campaign)
        self._peers = [peer for peer, state in zip(self._peers, states, strict=True) if not state.unusable]
        return campaign

    def measure(self) -> None:
        """Everything, for every number of ranks, within the budget; finished launches are kept whatever happens."""
        budget = Budget(self._request.budget_seconds, self._clock)
        counts = sorted(self._request.rank_counts)
        for index, num_ranks in enumerate(counts):
            span = budget.left / (len(counts) - index)
            self._measure_count(num_ranks, budget, budget.left - span, span)

    def _measure_count(self, num_ranks: int, budget: Budget, end: float, span: float) -> None:
        """Everything with `num_ranks`: `end` must be left of the budget, `span` is what there is before.

        Ranks that share CPUs are measured at default settings only.
        """
        request, tried = self._request, list[MessageSizeLaunch]()
        shares_cpus = self._machine.shares_cpus(num_ranks)
        trials = [order for peer in self._peers for order in request.trials(peer, num_ranks)]
        if trials and not shares_cpus:
            until = end + span * (1 - TUNING_SHARE)
            tried = self._make(f"trying settings on {num_ranks} ranks", trials, budget, until=until)
        choices = [(peer, setting) for peer in self._peers for setting in choose_settings(peer, tried)]
        measured = request.measurement(choices, num_ranks, alone=shares_cpus)
        title = f"measuring {num_ranks} ranks{' that share CPUs' if shares_cpus else ''}"
        self._make(title, measured, budget, until=end)

    def _make(
        self, title: str, orders: Sequence[LaunchOrder], budget: Budget, *, until: float
    ) -> list[MessageSizeLaunch]:
        """The launches for which the budget has room."""
        records: list[MessageSizeLaunch] = []
        numbers = itertools.count(1)

        def starting(order: LaunchOrder) -> None:
            left = format_seconds(max(0.0, budget.left))
            self._progress(f"{title} {next(numbers)}/{len(orders)}: {order.name}; at most {left} left")

        for group in budget.timed(groups(orders, self._most_together[orders[0].num_ranks]), until):
            made = launch.run_together(group, self._machine, position=self._position, starting=starting)
            self._position += len(made)
            records += made
            for order, record in zip(group, made, strict=True):
                budget.spent(order, record.seconds)
                add_launch(self.folder, record)
                if record.failure:
                    self._tell(f"failed: {order.name}: {record.failure}")
        if missing := len(orders) - len(records):
            self._tell(f"{title}: the budget had no room for {missing} of {len(orders)} launches")
        return records
