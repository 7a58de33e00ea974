"""How gradients travel over a collective, in every framework: the user's options, the buckets, the threads.

Backpropagation produces gradients from the last layer to the first. They are cut into *buckets* in that order, and each
bucket is exchanged as soon as it is complete. The exchange overlaps with backpropagation where communication threads do
it; a thread only helps where it has a core to run on: elsewhere it would take time from the computation.

Threads come in teams, after the Cray plugin: each has its own collective. Bucket i belongs to team i mod T, which
exchanges its buckets strictly in that order, the same on all ranks, or they would wait for each other for ever. In
torch the threads are those of this module, in TensorFlow those of `ring/src/tensorflow/exchange.hpp`.
"""

from __future__ import annotations

import os
import zlib
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

# DistributedDataParallel's sizes: a small first bucket starts the exchange early.
FIRST_BUCKET_BYTES = 1 << 20
BUCKET_BYTES = 25 << 20

MAX_CPUS = 4096  # Linux numbers them from 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Training(CheckedOptions):
    """The user's options of the exchange of gradients.

    `teams`: communication threads, each with its own communicator, among which the buckets go round; 0 exchanges them
    without overlap, -1 takes one thread where every rank has a core to spare and none elsewhere.
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
    def threads(self) -> bool | None:
        """Whether communication threads were asked for; None leaves it to `want_threads`."""
        return None if self.teams == AUTOMATIC else self.teams > 0

    def is_delayed(self, step: int) -> bool:
        """Whether `step` (the first is 0) applies the gradients of the step before; the first has none to apply."""
        return self.pipelined and (self.pipelined_until_step == 0 or step < self.pipelined_until_step)

    def drains(self, step: int) -> bool:
        """Whether the cool-down begins: what the step before left over is to be applied before `step` computes."""
        return step > 0 and self.is_delayed(step - 1) and not self.is_delayed(step)

    def settings(self) -> dict[str, str | int | float | bool]:
        """For the record, what decides which gradients are applied when."""
        return {"pipelined": self.pipelined, "pipelined_until_step": self.pipelined_until_step}


def cut_into_buckets(sizes: Sequence[int], dtypes: Sequence[Any]) -> list[list[int]]:
    """Indices of gradients of those bytes in backward order, cut where a bucket is full or the dtype changes."""
    buckets: list[list[int]] = []
    num_bytes = 0
    for index in reversed(range(len(sizes))):
        limit = FIRST_BUCKET_BYTES if len(buckets) <= 1 else BUCKET_BYTES
        if not buckets or num_bytes >= limit or dtypes[index] != dtypes[buckets[-1][-1]]:
            buckets.append([])
            num_bytes = 0
        buckets[-1].append(index)
        num_bytes += sizes[index]
    return buckets


def want_threads(collective: Collective, asked: bool | None, *, num_threads: int) -> bool:
    """Whether ranks take communication threads next to the `num_threads` that compute; collective.

    As `asked`; None means where every rank has a core to spare and MPI allows it. All ranks get the same answer. Raises
    UsageError if threads were asked for and MPI does not allow them.
    """
    if asked is None:
        return all_have_spare_cores(collective, num_threads=num_threads) and threads_may_communicate()
    if asked and not threads_may_communicate():
        raise UsageError(
            "communication threads were asked for, but this MPI does not grant MPI_THREAD_MULTIPLE; "
            "initialise it so (mpi4py does unless told otherwise), or give teams=0"
        )
    return asked


def all_have_spare_cores(collective: Collective, *, num_threads: int) -> bool:
    """Whether every rank can have one thread more than its `num_threads` that compute; collective.

    Decided from the CPUs that the ranks of a host are bound to. Ranks that share CPUs must all have room for theirs.
    """
    bound = np.zeros(MAX_CPUS, np.uint8)
    bound[list(os.sched_getaffinity(0))] = 1
    # Each rank writes its own row of zeros, and rows are summed: its host, its threads, its CPUs as bits.
    table = np.zeros((collective.size, 2 + MAX_CPUS // 32), np.int32)
    table[collective.rank] = [_host(), num_threads, *np.packbits(bound).view(np.int32)]
    collective.allreduce(table)
    cpus = np.unpackbits(table[:, 2:].copy().view(np.uint8), axis=1)
    sharing = (table[:, 0] == _host()) & (cpus & bound).any(axis=1)
    fits = (table[sharing, 1] + 1).sum() <= cpus[sharing].any(axis=0).sum()
    verdict = np.array([fits], np.int64)
    collective.allreduce(verdict, "min")
    return bool(verdict[0])


def _host() -> int:
    """A number that is equal for processes on the same booted machine."""
    return zlib.crc32(Path("/proc/sys/kernel/random/boot_id").read_bytes()) >> 1


def threads_may_communicate() -> bool:
    """Whether the MPI under a collective allows calls from several threads at once."""
    from mpi4py import MPI

    return bool(MPI.Query_thread() >= MPI.THREAD_MULTIPLE)


C = TypeVar("C", bound=Collective)


class CommunicationThreads(Generic[C]):
    """Does collective operations by a thread per collective if `threads`, else at once by the first collective.

    What is under way when the interpreter ends is finished first: Python joins the threads of an executor before
    MPI is finalised.
    """

    def __init__(self, collectives: Sequence[C], *, threads: bool) -> None:
        self._collectives = tuple(collectives)
        self._executors = tuple(
            ThreadPoolExecutor(max_workers=1, thread_name_prefix=f"dlscale-team-{index}")
            for index in range(len(collectives) if threads else 0)
        )

    def collective(self, index: int) -> C:
        """The collective that operation `index` is done on."""
        return self._collectives[index % max(len(self._executors), 1)]

    def submit(self, index: int, operation: Callable[[C], Any]) -> Future[Any]:
        """Hand in operation `index`. Without threads it is done on return, and what it raises is raised here."""
        collective = self.collective(index)
        if self._executors:
            return self._executors[index % len(self._executors)].submit(operation, collective)
        done: Future[Any] = Future()
        done.set_result(operation(collective))
        return done

    def settings(self) -> dict[str, str | int | float | bool]:
        """For the record: whether exchanges overlap, by how many threads, and the collective's own decisions."""
        num_threads = len(self._executors)
        return {"overlap": num_threads > 0, "teams": num_threads, **self._collectives[0].settings()}

    def close(self) -> None:
        """End the threads when all is done; the collectives stay open. A second close does nothing."""
        for executor in self._executors:
            executor.shutdown(wait=True)
