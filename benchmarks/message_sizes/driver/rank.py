"""One rank of a launch, from its start to its end."""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
import traceback
from pathlib import Path

from dlscale.benchmarks.message_sizes.driver.libraries import START, RankNumbers
from dlscale.benchmarks.message_sizes.driver.lockstep import Lockstep, StartLine, Turns
from dlscale.benchmarks.message_sizes.driver.measurement import Measurement
from dlscale.benchmarks.message_sizes.driver.nodes import NodesLockstep
from dlscale.benchmarks.rank.process import end_with_parent, launched_rank


def start() -> None:
    """`main`; an error ends the rank with one line that says so, before its traceback, and at once.

    Libraries that finish their work as Python ends would wait for the other ranks, who wait for this one.
    """
    try:
        main()
    except Exception as error:
        sys.stderr.write(f"collectives benchmark: {type(error).__name__}: {error}\n{traceback.format_exc()}")
        sys.stderr.flush()
        os._exit(1)


def main() -> None:
    """One rank, from start to end."""
    options = _parse()
    rank = launched_rank()
    size, per_node = options.num_ranks, options.ranks_per_node or options.num_ranks
    end_with_parent()
    _bind(options.cpus[rank % len(options.cpus)], rank % per_node)  # before anything starts a thread
    if options.exec:
        os.execv(options.exec[0], options.exec)  # noqa: S606 - no shell, and the path is ours
    options.begin = time.monotonic()
    signal.alarm(options.limit * options.turns)  # whatever hangs: no process stays
    yields = per_node > len(set(options.cpus))
    lockstep: StartLine
    if per_node < size:
        lockstep = NodesLockstep(
            options.flags,
            rank,
            size,
            ranks_per_node=per_node,
            thread_level=options.thread_level,
            yields=yields,
        )
    else:
        lockstep = Lockstep(options.flags, rank, size, yields=yields)
    library = START[options.backend](options, RankNumbers(rank, size, rank % per_node))
    turns = Turns(options.folder, options.turns, lockstep)
    Measurement(options, lockstep, turns, library).run()
    turns.next()  # so that ending disturbs nobody else
    lockstep.wait()
    library.close()


def _parse() -> argparse.Namespace:
    def numbers(text: str) -> list[int]:
        return [int(word) for word in text.split(",")]

    def words(text: str) -> list[str]:
        return text.split(",")

    parser = argparse.ArgumentParser()
    parser.add_argument("--cpus", type=numbers, required=True)
    parser.add_argument("--num-ranks", type=int, default=1)
    parser.add_argument("--ranks-per-node", type=int, default=0)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--exec", nargs=argparse.REMAINDER)
    parser.add_argument("--backend", choices=START, default="mpi")
    parser.add_argument("--operations", type=words, default=[])
    parser.add_argument("--sizes", type=numbers, default=[])
    parser.add_argument("--thread-level", default="single")
    parser.add_argument("--output")
    parser.add_argument("--flags")
    parser.add_argument("--store")
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--limit", type=int, default=600)
    parser.add_argument("--turns", type=int, default=1)
    return parser.parse_args()


def _bind(cpu: int, local_rank: int) -> None:
    """Bind to that CPU, or to one that a launcher which binds has left to this process."""
    allowed = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {cpu if cpu in allowed else allowed[local_rank % len(allowed)]})
