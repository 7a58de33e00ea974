"""A run of the message-size benchmark: from what a user asked for to a folder of records, within a budget of wall time.

A run tries the settings of each library briefly, then measures. Measured launches come in blocks, each block in a
random order. The launches of a block, and those that try a library's settings, run together and take turns, because
machines drift: what is compared was measured within a second or so.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import psutil

from dlscale.base.errors import UsageError
from dlscale.base.quantities import format_seconds, format_size
from dlscale.benchmarks.launch.probe import commit, describe_node
from dlscale.benchmarks.message_sizes import launch
from dlscale.benchmarks.message_sizes.machine import Machine
from dlscale.benchmarks.message_sizes.peers import Peer, PeerSetting
from dlscale.benchmarks.rank.observers import OtherPrograms
from dlscale.benchmarks.records.collective_operations import Collective
from dlscale.benchmarks.records.message_sizes import (
    MessageSizeLaunch,
    MessageSizeRun,
    add_launch,
    write_campaign,
)
from dlscale.benchmarks.records.record import DISTURBED

READING_SECONDS = 1.0  # of the load
LAUNCH_SECONDS = 2.0  # that a launch takes at least, until launches took longer

Choice = tuple[Peer, PeerSetting]
Tell = Callable[[str], None]


def other_load() -> str:
    """`other programs use 0.8 of 2 cores`, read over a second; empty on a quiet machine."""
    cores = os.sched_getaffinity(0)
    others = OtherPrograms(cores, [os.getpid()])
    time.sleep(READING_SECONDS)
    share = others.share() or 0.0
    return f"other programs use {share * len(cores):.1f} of {len(cores)} cores" if share > DISTURBED else ""


@dataclass(kw_only=True)
class Run:
    """One run: `prepare` checks what can be measured, `measure` does it.

    `tell` is called with what a user must know, `progress` with a line before each group of launches.
    """

    machine: Machine
    sizes: Sequence[int]
    collectives: Sequence[Collective] = ("allreduce",)
    rank_counts: Sequence[int]  # on nodes of a job, each fills some of them
    num_blocks: int
    budget_seconds: float
    tell: Tell
    progress: Tell
    clock: Callable[[], float] = time.monotonic
    folder: Path = field(default=Path(), init=False)
    _launch_seconds: float = field(default=LAUNCH_SECONDS, init=False)
    _position: int = field(default=0, init=False)

    def prepare(self, results: Path) -> None:
        """Make the run's folder. Raises UsageError if nothing can be measured."""
        machine = self.machine
        states = [found.state for found in machine.libraries.values()]
        for num_ranks in self.rank_counts:
            self._most_together(num_ranks)
        if all(state.unusable for state in states):
            reasons = "; ".join(f"{state.name}: {state.unusable}" for state in states)
            raise UsageError(f"nothing can be measured ({reasons})")
        load = other_load()
        if load:
            self.tell(f"warning: the machine is busy: {load}")
        fabric = machine.system.fabric if machine.nodes else None
        campaign = MessageSizeRun(
            started=datetime.now(UTC).isoformat(timespec="seconds"),
            commit=commit(),
            collectives=list(self.collectives),
            system=machine.system.title if machine.nodes else None,
            nodes=list(machine.nodes),
            ranks_per_node=machine.ranks_per_node,
            wire_bytes_per_second=fabric.bandwidth.number if fabric and fabric.bandwidth else None,
            sizes=list(self.sizes),
            rank_counts=list(self.rank_counts),
            num_blocks=self.num_blocks,
            cpus=list(machine.cpus),
            busy=load or None,
            node=describe_node(),
            peers=states,
        )
        self.folder = results / "collectives" / datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
        write_campaign(self.folder, campaign)

    def measure(self) -> None:
        """Everything, for every number of ranks, within the budget; finished launches are kept whatever happens."""
        usable = [found.peer for found in self.machine.libraries.values() if not found.state.unusable]
        choices = [(peer, setting) for peer in usable for setting in peer.settings]
        end, counts = self.clock() + self.budget_seconds, sorted(self.rank_counts)
        for index, num_ranks in enumerate(counts):
            until = self.clock() + (end - self.clock()) / (len(counts) - index)
            blocks = [self._orders(choices, num_ranks, block) for block in range(self.num_blocks)]
            self._make(f"measuring {num_ranks} ranks", blocks, until)

    def _orders(self, choices: Sequence[Choice], num_ranks: int, block: int) -> list[MessageSizeLaunch]:
        """A launch of each choice, in random order."""
        orders = []
        for peer, setting in choices:
            own = "mpi" if peer.kind == "mpi" else peer.name
            order = MessageSizeLaunch(
                block=block,
                backend=peer.name,
                setting=setting.name,
                variables=setting.variables,
                thread_level=setting.thread_level,
                num_ranks=num_ranks,
                num_nodes=num_ranks // (self.machine.ranks_per_node or num_ranks),
                operations=[own if name == "allreduce" else f"{own}:{name}" for name in self.collectives],
            )
            orders.append(order)
        random.Random(f"{num_ranks} {block}").shuffle(orders)  # noqa: S311 - an order, not a secret
        return orders

    def _make(self, title: str, blocks: Sequence[Sequence[MessageSizeLaunch]], until: float) -> None:
        """Record the launches for which there is time; those of a block run together as memory allows."""
        num_made, total = 0, sum(map(len, blocks))
        for group in [group for block in blocks for group in self._groups(block)]:
            begin = self.clock()
            fitting = group[: max(0, int((until - begin) / self._launch_seconds))]
            if not fitting:
                break
            numbers = f"{num_made + 1} to {num_made + len(fitting)} of {total}"
            self.progress(f"{title}: launches {numbers}, at most {format_seconds(until - begin)} left")
            seconds = (until - begin) * len(fitting) / (total - num_made)
            made = launch.run_together(
                fitting, self.machine, sizes=self.sizes, seconds=seconds, results=self.folder
            )
            taken, together = self.clock() - begin, self._position if len(made) > 1 else None
            if taken > seconds:
                self._launch_seconds = max(self._launch_seconds, taken / len(made))
            for record in made:
                place = {"position": self._position, "together": together}
                add_launch(self.folder, record.model_copy(update=place))
                self._position += 1
                if record.failure:
                    self.tell(f"failed: {record.backend}, {record.setting}: {record.failure}")
            num_made += len(made)
        if missing := total - num_made:
            self.tell(f"{title}: the budget had no room for {missing} of {total} launches")

    def _groups(self, block: Sequence[MessageSizeLaunch]) -> list[Sequence[MessageSizeLaunch]]:
        """The launches that run together; one whose library never rests is alone, for it would disturb the others."""
        if self.machine.nodes:
            return [[order] for order in block]
        rests = {name: found.peer.rests for name, found in self.machine.libraries.items()}
        resting = [order for order in block if rests[order.backend]]
        num_groups = -(-len(resting) // self._most_together(block[0].num_ranks))
        alone = [[order] for order in block if not rests[order.backend]]
        return [*(resting[index::num_groups] for index in range(num_groups)), *alone]

    def _most_together(self, num_ranks: int) -> int:
        """How many launches may run at the same time: their messages take two thirds of the free memory at most.

        Raises UsageError if there is none for two: some operations need a message and its result on each rank.
        """
        largest, free = max(self.sizes), psutil.virtual_memory().available
        needed = 2 * (self.machine.ranks_per_node or num_ranks) * largest
        if needed > free / 2:
            raise UsageError(
                f"messages of {format_size(largest)} on {num_ranks} ranks need {format_size(needed)} of memory, and "
                f"{format_size(free)} are free; give smaller sizes, for instance --sizes 4KiB:16MiB:x4"
            )
        return int(free * 4 / 3 / needed)
