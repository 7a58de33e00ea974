"""Times one library's allreduce on the ranks of a node, over message sizes. The same program for every library.

Started by mpiexec with the Python of the library's own environment, which has NumPy but not dlscale (only the ring's
has). Rank 0 writes JSON lines to --output:

    {"kind": "launch", "library": ..., "thread_level": ..., ...}      first
    {"kind": "round_trip", "nanoseconds": ...}                        of a flag, before the first size and after each
    {"kind": "block", "operation": ..., "nanoseconds": [rank][call], ...}
    {"kind": "failure", "operation": ..., "reason": ...}
    {"kind": "end"}                                                   last; without it the launch failed

With --exec it only binds its rank to a CPU and becomes another program.
"""

from __future__ import annotations

import argparse
import fcntl
import glob
import json
import math
import mmap
import os
import signal
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np

RANK_VARIABLES = ("PMI_RANK", "OMPI_COMM_WORLD_RANK", "SLURM_PROCID")
SIZE_VARIABLES = ("PMI_SIZE", "OMPI_COMM_WORLD_SIZE", "SLURM_NTASKS")
ROUNDS = 4  # turns that the operations of a launch take at each size
MIN_CALLS, MAX_CALLS = 5, 400  # of an operation at a size, in all rounds
NUM_WARMUP = 5
# The ring tries its variants of moving large messages in its first calls.
NUM_TRIALS = {"ring": 30, "ring-shared": 30, "ring-unsynchronised": 30}
PATIENCE = 2  # times its share of the time that an operation may take to warm up, and again to be timed
NUM_SPINS = 2000
PAGE_ELEMENTS = 1024
SHARED_MEMORY = "/dev/shm/"  # noqa: S108 - not for files of ours

Call = Callable[[], Any]


class Operation(NamedTuple):
    """What is timed: `prepare` turns a message into the call, outside the timed interval."""

    name: str
    prepare: Callable[[Any], Call]
    sums: bool = True  # its result is the sum over ranks
    memory: Any = None  # an array that it wants its messages in


class Library(NamedTuple):
    """A library that was started on this rank."""

    description: str
    thread_level: str
    operations: list[Operation]
    close: Call


def main() -> None:
    """One rank, from start to end."""
    rank, size = _variable(RANK_VARIABLES), _variable(SIZE_VARIABLES)
    options = _parse()
    if options.lifeline:
        _follow_lifeline(options.lifeline)
    os.sched_setaffinity(0, {options.cpus[rank % len(options.cpus)]})  # before anything starts a thread
    if options.exec:
        os.execv(options.exec[0], options.exec)  # noqa: S606 - no shell, and the path is ours
    signal.alarm(options.limit)  # whatever hangs: no process stays
    lockstep = Lockstep(options.flags, rank, size, yields=size > len(set(options.cpus)))
    library = START[options.backend](options, rank, size)
    if options.lifeline:
        _note_files(options.lifeline)
    Measurement(options, lockstep, library).run()
    lockstep.wait()
    library.close()


def _parse() -> argparse.Namespace:
    def numbers(text: str) -> list[int]:
        return [int(word) for word in text.split(",")]

    def words(text: str) -> list[str]:
        return text.split(",")

    parser = argparse.ArgumentParser()
    parser.add_argument("--cpus", type=numbers, required=True)
    parser.add_argument("--lifeline")
    parser.add_argument("--exec", nargs=argparse.REMAINDER)
    parser.add_argument("--backend", choices=START, default="mpi")
    parser.add_argument("--operations", type=words, default=[])
    parser.add_argument("--sizes", type=numbers, default=[])
    parser.add_argument("--modes", type=words, default=["hot"])
    parser.add_argument("--thread-level", default="single")
    parser.add_argument("--output")
    parser.add_argument("--flags")
    parser.add_argument("--store")
    parser.add_argument("--cold-bytes", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--limit", type=int, default=600)
    return parser.parse_args()


def _follow_lifeline(folder: str) -> None:
    """This process, or what it becomes, ends with whoever holds the FIFO in `folder`, as `rank.lifeline` says."""
    fifo = next(iter(glob.glob(f"{folder}/lifeline-*")), None)
    if fifo is None:
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
    boot = next(iter(glob.glob(f"{folder}/lifeline-*")), "-").rpartition("-")[2]
    with open(
        f"{folder}/files-{boot}-{os.getpid()}", "w", encoding="utf-8", errors="surrogateescape"
    ) as file:
        file.writelines(line for line in lines if not line.endswith(" (deleted)\n"))


def _variable(names: tuple[str, ...]) -> int:
    return next(int(os.environ[name]) for name in names if name in os.environ)


def _mpi(options: argparse.Namespace, rank: int, size: int) -> Library:  # noqa: ARG001
    import mpi4py

    mpi4py.rc.thread_level = options.thread_level
    from mpi4py import MPI

    world = MPI.COMM_WORLD

    def in_place(message: Any) -> Call:
        return partial(world.Allreduce, MPI.IN_PLACE, [message, MPI.FLOAT])

    result = np.ones(max(options.sizes) // 4 if "mpi-copy" in options.operations else 0, np.float32)

    def copied(message: Any) -> Call:
        return partial(world.Allreduce, [message, MPI.FLOAT], [result[: len(message)], MPI.FLOAT])

    levels = {
        MPI.THREAD_SINGLE: "single",
        MPI.THREAD_FUNNELED: "funneled",
        MPI.THREAD_SERIALIZED: "serialized",
    }
    provided = levels.get(MPI.Query_thread(), "multiple")
    operations = [Operation("mpi", in_place), Operation("mpi-copy", copied, sums=False)]
    return Library(_first_line(MPI.Get_library_version()), provided, operations, MPI.Finalize)


def _ring(options: argparse.Namespace, rank: int, size: int) -> Library:  # noqa: ARG001
    from mpi4py import MPI

    from dlscale.collectives import ring

    names = [name for name in options.operations if name in NUM_TRIALS]
    rings = {name: ring.join(MPI.COMM_WORLD) for name in names}
    operations = []
    for name, engine in rings.items():
        memory = engine.empty(_num_elements(options)) if name == "ring-shared" else None
        waits = name != "ring-unsynchronised"
        if not waits:
            engine._engine.set_free_running(True)  # the same loads and stores; the sums are wrong
        operations.append(Operation(name, partial(partial, engine.allreduce), sums=waits, memory=memory))

    def close() -> None:
        for engine in rings.values():
            engine.close()

    return Library(f"ring over {_first_line(MPI.Get_library_version())}", "multiple", operations, close)


def _first_line(text: str) -> str:
    return text.splitlines()[0].rstrip("\0")


def _gloo(options: argparse.Namespace, rank: int, size: int) -> Library:
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    store = dist.FileStore(options.store, size)  # type: ignore[attr-defined]
    dist.init_process_group("gloo", store=store, rank=rank, world_size=size)

    def prepare(message: Any) -> Call:
        return partial(dist.all_reduce, torch.from_numpy(message))

    version = f"Gloo of torch {torch.__version__}"
    return Library(version, "multiple", [Operation("gloo", prepare)], dist.destroy_process_group)


def _horovod(options: argparse.Namespace, rank: int, size: int) -> Library:  # noqa: ARG001
    import horovod
    import horovod.torch as hvd
    import torch

    torch.set_num_threads(1)
    hvd.init()

    def prepare(message: Any) -> Call:
        # One name per size, as a training step repeats its buckets: Horovod remembers them by name.
        name = f"message.{len(message)}"
        return partial(hvd.allreduce_, torch.from_numpy(message), op=hvd.Sum, name=name)

    version = f"Horovod {horovod.__version__}"
    return Library(version, "multiple", [Operation("horovod", prepare)], hvd.shutdown)


START = {"mpi": _mpi, "ring": _ring, "gloo": _gloo, "horovod": _horovod}


def _stream(message: Any) -> Call:
    """Each rank adds to its own memory: what bounds every allreduce of a node."""
    return partial(np.add, message, np.float32(1), out=message)


class Lockstep:
    """A start line in shared memory, and room behind it for every rank's times.

    A cache line per rank counts arrivals, two more are for `round_trip`; then [rank][start, seconds][call].
    """

    def __init__(self, path: str, rank: int, size: int, *, yields: bool) -> None:
        self.rank, self.size, self._yields = rank, size, yields
        num_bytes = 64 * (size + 2) + 8 * size * 2 * MAX_CALLS
        with open(path, "r+b") as file:
            file.truncate(num_bytes)  # the same on all ranks
            self._map = mmap.mmap(file.fileno(), num_bytes)
        self._flags = np.frombuffer(self._map, np.int64, 8 * (size + 2)).reshape(size + 2, 8)[:, 0]
        times = np.frombuffer(self._map, np.float64, offset=64 * (size + 2))
        self.times = times.reshape(size, 2, MAX_CALLS)
        self._arrivals = self._bounces = 0
        self.wait()
        if rank == 0:
            os.unlink(path)  # whatever happens now, nothing is left behind

    def wait(self) -> None:
        """All ranks are here."""
        self._arrivals += 1
        self._flags[self.rank] = self._arrivals
        for other in range(self.size):
            self._poll(other, self._arrivals)

    def _poll(self, place: int, least: int) -> None:
        flags, num_polls = self._flags, 0
        while flags[place] < least:
            num_polls += 1
            if self._yields or num_polls > NUM_SPINS:
                os.sched_yield()

    def slowest(self, seconds: float) -> float:
        """The largest of all ranks' values, on all of them."""
        self.times[self.rank, 1, 0] = seconds
        self.wait()
        largest = float(self.times[:, 1, 0].max())
        self.wait()
        return largest

    def round_trip(self, runs: int = 5, bounces: int = 100) -> float:
        """The best mean of seconds that a flag takes from rank 0 to rank 1 and back."""
        best = math.inf if self.size > 1 else 0.0
        for _ in range(runs if self.size > 1 else 0):
            self.wait()
            begin = time.perf_counter()
            for _ in range(bounces if self.rank < 2 else 0):
                self._bounces += 1
                if self.rank == 1:
                    self._poll(self.size, self._bounces)
                self._flags[self.size + self.rank] = self._bounces
                if self.rank == 0:
                    self._poll(self.size + 1, self._bounces)
            best = min(best, time.perf_counter() - begin)
        self.wait()
        return best / bounces


class Arena:
    """The memory that messages lie in. A cold message comes after all others, so that no cache has it."""

    def __init__(self, memory: Any) -> None:
        self._memory, self._cursor = memory, 0
        # Positive, so that sums over sums only grow to infinity: zeros might be stored more cheaply, and denormal
        # numbers are added slowly.
        memory.fill(1.0)

    def next(self, mode: str, message_bytes: int) -> Any:
        """The message of the next call."""
        count = message_bytes // 4
        if mode != "cold":
            return self._memory[:count]
        if self._cursor + _whole_pages(message_bytes) > len(self._memory):
            self._cursor = 0
        message = self._memory[self._cursor : self._cursor + count]
        self._cursor += _whole_pages(message_bytes)
        return message


class Measurement:
    """All modes, sizes and operations of a launch."""

    def __init__(self, options: argparse.Namespace, lockstep: Lockstep, library: Library) -> None:
        self._options, self._lockstep = options, lockstep
        offered = {operation.name: operation for operation in library.operations}
        offered["stream"] = Operation("stream", _stream, sums=False)
        self._operations = [offered[name] for name in options.operations]
        common = Arena(np.empty(_num_elements(options), np.float32))
        self._arenas = {
            operation.name: common if operation.memory is None else Arena(operation.memory)
            for operation in self._operations
        }
        self._wrong: dict[tuple[str, int], str] = {}
        self._begin = time.perf_counter()
        cells = len(options.modes) * len(options.sizes) * len(self._operations)
        self._num_left = cells
        self._file = os.fdopen(_created(options.output), "w") if lockstep.rank == 0 else None
        self._write(
            kind="launch",
            library=library.description,
            thread_level=library.thread_level,
            num_ranks=lockstep.size,
            barrier="shared",
            cold_bytes=options.cold_bytes,
        )

    def run(self) -> None:
        """Measure and write everything down."""
        self._note_round_trip()
        for mode in self._options.modes:
            for message_bytes in self._options.sizes:
                # A message as large as that is cold in any mode.
                if mode != "cold" or message_bytes < self._options.cold_bytes:
                    self._measure(mode, message_bytes)
                self._note_round_trip()
        self._write(kind="end")

    def _measure(self, mode: str, message_bytes: int) -> None:
        """The operations take turns, so that a machine that drifts changes them alike."""
        plans = [
            (operation, *self._warm_up(operation, mode, message_bytes)) for operation in self._operations
        ]
        for index in range(ROUNDS):
            # Every other round runs backwards: no operation always follows the same one.
            for operation, num_warmup, total in plans if index % 2 == 0 else plans[::-1]:
                num_calls = -(-(total - index) // ROUNDS)  # slow calls do not reach the last rounds
                if num_calls <= 0:
                    continue
                self._call(operation, mode, message_bytes)  # finds the other operation's traces in the caches
                times = [self._call(operation, mode, message_bytes) for _ in range(num_calls)]
                cell = {"operation": operation.name, "mode": mode, "message_bytes": message_bytes}
                self._write(kind="block", **cell, round=index, num_warmup=num_warmup, **self._gather(times))

    def _warm_up(self, operation: Operation, mode: str, message_bytes: int) -> tuple[int, int]:
        """Untimed calls that were made, and how many to time in all rounds; (0, 0) if it cannot be measured."""
        spent = self._lockstep.slowest(time.perf_counter() - self._begin)
        share = max(self._options.seconds - spent, 0.1 * self._options.seconds) / self._num_left
        self._num_left -= 1
        late = spent > 1.5 * self._options.seconds + 1
        if reason := "no time was left" if late else self._verify(operation, mode, message_bytes):
            cell = {"operation": operation.name, "mode": mode, "message_bytes": message_bytes}
            self._write(kind="failure", **cell, reason=reason)
            return 0, 0
        num_wanted = NUM_WARMUP + NUM_TRIALS.get(operation.name, 0)
        num_warmup, shortest, spent = 0, math.inf, 0.0
        while num_warmup < num_wanted and (num_warmup < 1 or spent < PATIENCE * share):
            seconds = self._lockstep.slowest(self._call(operation, mode, message_bytes)[1])
            shortest, spent, num_warmup = min(shortest, seconds), spent + seconds, num_warmup + 1
        at_most = min(MAX_CALLS, PATIENCE * share / shortest)
        num_calls = min(max(share / shortest, min(MIN_CALLS, at_most)), at_most)
        return num_warmup, max(1, math.ceil(num_calls))

    def _call(self, operation: Operation, mode: str, message_bytes: int) -> tuple[float, float]:
        message = self._arenas[operation.name].next(mode, message_bytes)
        call = operation.prepare(message)
        if mode == "fresh":
            message.fill(1.0)
        self._lockstep.wait()
        start = time.perf_counter()
        call()
        return start, time.perf_counter() - start

    def _verify(self, operation: Operation, mode: str, message_bytes: int) -> str:
        """What is wrong with a call's result on any rank; empty if nothing is. Once for each size.

        Data differ by rank and index and are exact in float32: a dropped or doubled part cannot cancel out.
        """
        key = (operation.name, message_bytes)
        if key in self._wrong:
            return self._wrong[key]
        message, size = self._arenas[operation.name].next(mode, message_bytes), self._lockstep.size
        pattern = np.resize(np.arange(1021, dtype=np.float32), len(message))
        np.add(pattern, np.float32(self._lockstep.rank), out=message)
        complaint = ""
        try:
            operation.prepare(message)()
            pattern *= size
            pattern += size * (size - 1) / 2
            if operation.sums and not np.array_equal(message, pattern):
                complaint = "wrong result"
        except Exception as error:
            complaint = " ".join(f"{type(error).__name__}: {error}".split())
        message.fill(1.0)
        failed = self._lockstep.slowest(float(bool(complaint))) > 0
        self._wrong[key] = complaint or ("failed on another rank" if failed else "")
        return self._wrong[key]

    def _gather(self, times: list[tuple[float, float]]) -> dict[str, object]:
        lockstep, n = self._lockstep, len(times)
        lockstep.times[lockstep.rank, :, :n] = np.array(times).T
        lockstep.wait()
        starts, seconds = lockstep.times[:, 0, :n].copy(), lockstep.times[:, 1, :n].copy()
        lockstep.wait()
        spread = starts.max(axis=0) - starts.min(axis=0)
        return {
            "nanoseconds": np.rint(seconds * 1e9).astype(int).tolist(),
            "spread_nanoseconds": np.rint(spread * 1e9).astype(int).tolist(),
        }

    def _note_round_trip(self) -> None:
        self._write(kind="round_trip", nanoseconds=round(1e9 * self._lockstep.round_trip()))

    def _write(self, **line: object) -> None:
        if self._file:
            self._file.write(json.dumps(line) + "\n")
            self._file.flush()


def _created(path: str) -> int:
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)


def _num_elements(options: argparse.Namespace) -> int:
    """The length of an arena: the largest message, and behind it more than the caches hold if calls are cold."""
    largest = _whole_pages(max(options.sizes))
    return largest + (max(_whole_pages(options.cold_bytes), largest) if "cold" in options.modes else 0)


def _whole_pages(num_bytes: int) -> int:
    """Elements of as many whole pages as `num_bytes` need."""
    return -(-num_bytes // (4 * PAGE_ELEMENTS)) * PAGE_ELEMENTS


if __name__ == "__main__":
    try:
        main()
    except Exception as error:
        sys.stderr.write(f"allreduce benchmark: {type(error).__name__}: {error}\n")
        raise
