"""Whether a communication thread has a core to run on, or would only take time from the computation."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from dlscale.collectives.backend import Collective

_WORD_BITS = 62  # of an int64 that stays positive
_NUM_WORDS = 67  # CPUs 0 .. 4153; more than Linux's default limit


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """What one rank wants: `num_threads` that compute, on `cpus` of `host`."""

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
