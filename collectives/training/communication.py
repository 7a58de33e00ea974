"""How gradients travel over a collective: the user's options, and the communication threads that carry the buckets.

Threads come in teams, after the teams of the Cray plugin: each has a collective of its own. Operation i belongs to
team i mod T. A team does its operations in the order in which they were handed in, which must be the same on all
ranks; different teams never wait for each other. A thread only helps where it has a core to run on: elsewhere it
would take time from the computation.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

import numpy as np

from dlscale.base.errors import UsageError
from dlscale.collectives.backend import Collective
from dlscale.collectives.option_kinds import CheckedOptions, at_least

AUTOMATIC = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Training(CheckedOptions):
    """The user's options of the exchange of gradients.

    `teams`: communication threads, each with a communicator of its own, among which the buckets go round; 0
    exchanges them without overlap, -1 takes one thread where a core is to spare and none elsewhere.
    `pipelined`: each step applies the gradients of the step before, whose exchange has the whole step's time.
    `pipelined_until_step`: the cool-down begins, so that this step (the first is 0) and those after it are
    synchronous again; 0 means never. `check_every`: compare the weights of all ranks after every so many
    steps; 0 means once, at the start.
    """

    teams: int = at_least(AUTOMATIC, AUTOMATIC)
    pipelined: bool = False
    pipelined_until_step: int = at_least(0, 0)
    check_every: int = at_least(0, 0)

    def check_together(self) -> None:
        """Returns if the options fit each other. Raises UsageError."""
        if self.pipelined_until_step and not self.pipelined:
            raise UsageError(
                f"pipelined_until_step={self.pipelined_until_step} ends a pipelined exchange, but pipelined "
                "was not asked for; give both or neither"
            )

    @property
    def delay(self) -> int:
        """Steps from a gradient's own step to the one that applies it, while pipelined."""
        return 1 if self.pipelined else 0

    def is_delayed(self, step: int) -> bool:
        """Whether `step` (the first is 0) applies the gradients of the step before; the first has none to apply."""
        return self.pipelined and (self.pipelined_until_step == 0 or step < self.pipelined_until_step)

    def drains(self, step: int) -> bool:
        """Whether the cool-down begins: what the step before left over is to be applied before `step` computes."""
        return step > 0 and self.is_delayed(step - 1) and not self.is_delayed(step)

    def settings(self) -> dict[str, str | int | float | bool]:
        """For the record, what decides which gradients are applied when."""
        return {"pipelined": self.pipelined, "pipelined_until_step": self.pipelined_until_step}


_WORD_BITS = 62  # of an int64 that stays positive
_NUM_WORDS = 67  # CPUs 0 .. 4153; more than Linux's default limit


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """One rank's demand: `num_threads` that compute, on `cpus` of `host`."""

    host: int
    num_threads: int
    cpus: frozenset[int]


def has_spare_core(collective: Collective, *, num_threads: int) -> bool:
    """Whether this rank can have one thread more than the `num_threads` that compute; collective.

    Decided from the CPUs that each rank of the host is bound to. Ranks that share CPUs, because nobody bound
    them, must all have room for theirs. Ranks may get different answers.
    """
    mine = Demand(host=_host(), num_threads=num_threads, cpus=frozenset(os.sched_getaffinity(0)))
    return decide(mine, _gather(collective, mine))


def decide(mine: Demand, everyone: Sequence[Demand]) -> bool:
    """Whether the CPUs of `mine` and of all that share any of them carry one thread more per rank."""
    sharing = [other for other in everyone if other.host == mine.host and other.cpus & mine.cpus]
    cpus = frozenset[int]().union(*(demand.cpus for demand in sharing))
    return sum(demand.num_threads + 1 for demand in sharing) <= len(cpus)


def _gather(collective: Collective, mine: Demand) -> list[Demand]:
    """Every rank's demand: each writes its own row of a table of zeros, and rows are summed."""
    table = np.zeros((collective.size, 2 + _NUM_WORDS), dtype=np.int64)
    table[collective.rank, :2] = mine.host, mine.num_threads
    for cpu in mine.cpus:
        table[collective.rank, 2 + cpu // _WORD_BITS] |= 1 << cpu % _WORD_BITS
    collective.allreduce(table)
    return [
        Demand(host=int(row[0]), num_threads=int(row[1]), cpus=_cpus([int(word) for word in row[2:]]))
        for row in table
    ]


def _cpus(words: Sequence[int]) -> frozenset[int]:
    return frozenset(
        index * _WORD_BITS + bit
        for index, word in enumerate(words)
        for bit in range(_WORD_BITS)
        if word >> bit & 1
    )


def _host() -> int:
    """A number that is equal for processes on the same booted machine."""
    boot_id = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii")
    return int.from_bytes(hashlib.sha256(boot_id.encode()).digest()[:7], "big")


C = TypeVar("C", bound=Collective)


class Teams(Generic[C]):
    """Does collective operations, by threads if `threads`, else not overlapped.

    What is under way when the interpreter ends is finished first: Python joins the threads of an executor before
    MPI is finalised.
    """

    def __init__(self, collectives: Sequence[C], *, threads: bool) -> None:
        if threads and not threads_may_communicate():
            raise UsageError(
                "communication threads were asked for, but this MPI does not grant MPI_THREAD_MULTIPLE; "
                "initialise it so (mpi4py does unless told otherwise), or give teams=0"
            )
        self._collectives = tuple(collectives)
        self._executors = tuple(
            ThreadPoolExecutor(max_workers=1, thread_name_prefix=f"dlscale-team-{index}")
            for index in range(len(collectives) if threads else 0)
        )

    @property
    def num_threads(self) -> int:
        """Communication threads; 0 where operations are not overlapped."""
        return len(self._executors)

    def collective(self, index: int) -> C:
        """The collective that operation `index` is done on."""
        return self._collectives[index % max(self.num_threads, 1)]

    def submit(self, index: int, operation: Callable[[C], Any]) -> Future[Any]:
        """Hand in operation `index`. In line it is done on return, and what it raises is raised here."""
        collective = self.collective(index)
        if self._executors:
            return self._executors[index % self.num_threads].submit(operation, collective)
        done: Future[Any] = Future()
        done.set_result(operation(collective))
        return done

    def close(self) -> None:
        """End the threads when all is done; the collectives stay open. A second close does nothing."""
        for executor in self._executors:
            executor.shutdown(wait=True)


def want_threads(collective: Collective, asked: bool | None, *, num_threads: int) -> bool:
    """Whether to take communication threads beside the `num_threads` that compute; collective.

    As `asked`; None means where a core is to spare, since elsewhere they would only take time from the
    computation, and where MPI allows it.
    """
    if asked is not None:
        return asked
    return has_spare_core(collective, num_threads=num_threads) and threads_may_communicate()


def threads_may_communicate() -> bool:
    """Whether the MPI under a collective allows calls from several threads at once."""
    from mpi4py import MPI

    return bool(MPI.Query_thread() >= MPI.THREAD_MULTIPLE)
