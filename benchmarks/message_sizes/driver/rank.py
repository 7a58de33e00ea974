"""One rank of a launch, from its start to its end."""

from __future__ import annotations

import argparse
import fcntl
import hashlib
import os
import signal
import sys
import time
import traceback
from collections.abc import Sequence
from pathlib import Path

from .libraries import START, RankNumbers
from .lockstep import Lockstep, StartLine, Turns
from .measurement import Measurement
from .nodes import NodesLockstep

SIZE_VARIABLES = ("PMI_SIZE", "OMPI_COMM_WORLD_SIZE", "SLURM_NTASKS")
SHARED_MEMORY = "/dev/shm/"  # noqa: S108 - not for files of ours


def start(rank_variables: Sequence[str]) -> None:
    """`main`; an error ends the rank with one line that says so, before its traceback, and at once.

    Libraries that finish their work as Python ends would wait for the other ranks, who wait for this one.
    """
    try:
        main(rank_variables)
    except Exception as error:
        sys.stderr.write(f"collectives benchmark: {type(error).__name__}: {error}\n{traceback.format_exc()}")
        sys.stderr.flush()
        os._exit(1)


def main(rank_variables: Sequence[str]) -> None:
    """One rank, from start to end. The first of these variables that is set has its number."""
    options = _parse()
    rank, size = _variable(rank_variables), options.num_ranks or _variable(SIZE_VARIABLES)
    several_nodes = 0 < options.ranks_per_node < size
    local_rank = rank % options.ranks_per_node if several_nodes else rank
    if options.lifeline:
        _follow_lifeline(options.lifeline)
    _bind(options.cpus[rank % len(options.cpus)], local_rank)  # before anything starts a thread
    if options.exec:
        os.execv(options.exec[0], options.exec)  # noqa: S606 - no shell, and the path is ours
    options.begin = time.monotonic()
    signal.alarm(options.limit * options.turns)  # whatever hangs: no process stays
    num_cpus = len(set(options.cpus))
    lockstep: StartLine
    if several_nodes:
        lockstep = NodesLockstep(
            options.flags,
            Path(options.store).parent,
            rank,
            size,
            ranks_per_node=options.ranks_per_node,
            yields=options.ranks_per_node > num_cpus,
            limit=options.limit,
        )
    else:
        lockstep = Lockstep(options.flags, rank, size, yields=size > num_cpus)
    library = START[options.backend](options, RankNumbers(rank, size, local_rank))
    if options.lifeline:
        _note_files(options.lifeline)
    turns = Turns(options.lifeline, options.turns, lockstep)
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
    parser.add_argument("--num-ranks", type=int, default=0)
    parser.add_argument("--ranks-per-node", type=int, default=0)
    parser.add_argument("--lifeline")
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


def _boot_id() -> str:
    """The same as `rank.lifeline.boot_id`."""
    with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
        return hashlib.sha256(file.read().encode()).hexdigest()[:16]


def _follow_lifeline(folder: str) -> None:
    """This process, or what it becomes, ends with whoever holds the FIFO in `folder`, as `rank.lifeline` says.

    Without effect on nodes other than that one's.
    """
    fifo = f"{folder}/lifeline-{_boot_id()}"
    if not os.path.exists(fifo):
        return
    descriptor = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
    os.set_inheritable(descriptor, True)
    fcntl.fcntl(descriptor, fcntl.F_SETSIG, signal.SIGKILL)
    fcntl.fcntl(descriptor, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(descriptor, fcntl.F_SETFL, os.O_ASYNC | os.O_NONBLOCK)
    try:
        os.read(descriptor, 1)
    except BlockingIOError:
        return
    sys.exit("dlscale has ended")


def _note_files(folder: str) -> None:
    """Note in `folder` the shared memory that would be left if this process were killed, as `rank.leftovers` does."""
    with open("/proc/self/maps", encoding="utf-8", errors="surrogateescape") as maps:
        lines = [line[line.index(SHARED_MEMORY) :] for line in maps if SHARED_MEMORY in line]
    path = f"{folder}/files-{_boot_id()}-{os.getpid()}"
    with open(path, "w", encoding="utf-8", errors="surrogateescape") as file:
        file.writelines(line for line in lines if not line.endswith(" (deleted)\n"))


def _variable(names: Sequence[str]) -> int:
    return next(int(os.environ[name]) for name in names if name in os.environ)
