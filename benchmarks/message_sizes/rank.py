"""One rank of a launch, which times one library's operations: the same program and loop for every library.

`start.py` starts it with the Python of the library's own environment. That has NumPy but not dlscale's other
dependencies: what is imported here must need nothing else, except for the ring. Its launch's folder has `order.json`
(`launch.py`). Rank 0 writes JSON lines to `samples.jsonl` there:

    {"kind": "launch", "library": ...}                                     first
    {"kind": "block", "operation": ..., "nanoseconds": [rank][call], ...}
    {"kind": "failure", "operation": ..., "reason": ...}
    {"kind": "end"}                                                        last; without it the launch failed
"""

from __future__ import annotations

import json
import math
import mmap
import os
import struct
import sys
import time
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from dlscale.benchmarks.message_sizes.calls import LIBRARIES, Call, Library, Rank, mpi_of
from dlscale.benchmarks.rank.process import end_with_parent, launched_rank
from dlscale.benchmarks.records.collective_operations import BY_NAME, ITEM_BYTES, CollectiveOperation, given

ROUNDS = 8  # turns at each size, after the one to warm up
MIN_CALLS, MAX_CALLS = 5, 400  # of an operation at a size, in all rounds
NUM_WARMUP = 5
WARMUP_SECONDS = 2.0  # that warming up may take, however little time is left
NUM_SPINS = 2000

Array = np.ndarray[Any, np.dtype[np.float64]]


def start(folder: Path) -> None:
    """`main`; an error ends the rank at once, with one line that states it and then its traceback.

    Libraries that finish their work as Python ends would wait for the other ranks, who wait for this one.
    """
    try:
        main(folder, json.loads((folder / "order.json").read_text()))
    except Exception as error:
        sys.stderr.write(f"collectives benchmark: {type(error).__name__}: {error}\n{traceback.format_exc()}")
        sys.stderr.flush()
        os._exit(1)


def main(folder: Path, order: dict[str, Any]) -> None:
    """One rank, from start to end."""
    begin, number, cpus = time.monotonic(), launched_rank(), order["cpus"]
    end_with_parent()
    local_rank = number % order["ranks_per_node"]
    # Before anything starts a thread: that CPU, or one that a launcher which binds has left to this process.
    cpu, allowed = cpus[local_rank % len(cpus)], sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {cpu if cpu in allowed else allowed[local_rank % len(allowed)]})
    rank = Rank(number, order["num_ranks"], local_rank, order["thread_level"], folder)
    line: NodeLine | MpiLine
    if (folder / "turn").exists():
        line = NodeLine(rank, num_spins=NUM_SPINS if rank.size <= len(cpus) else 0)
    else:
        line = MpiLine(mpi_of(rank).COMM_WORLD, begin + order["seconds"])
    library = LIBRARIES[order["operations"][0].partition(":")[0]](rank)
    Measurement(rank, line, library).run(order["operations"], order["sizes"], order["seconds"])
    line.turn()  # so that ending disturbs nobody else
    library.close()


class NodeLine:
    """The start line of the ranks of one node, in shared memory, and the turns of their launch.

    A cache line per rank counts arrivals; behind them [rank][value]. `launch.py` gives a turn by a number per rank in
    the FIFO `turn`, and reads from `waiting` a byte of rank 0 when all ranks have come to the end of their turn, or of
    their start.
    """

    has_one_clock = True

    def __init__(self, rank: Rank, *, num_spins: int) -> None:
        self._rank, self._num_spins, self._arrivals = rank.rank, num_spins, 0
        num_bytes = (64 + 8 * 2 * MAX_CALLS) * rank.size
        with os.fdopen(os.open(rank.folder / "line", os.O_RDWR | os.O_CREAT, 0o600), "r+b") as file:
            file.truncate(num_bytes)  # the same on all ranks
            memory = mmap.mmap(file.fileno(), num_bytes)
        self._flags = np.frombuffer(memory, np.int64, 8 * rank.size).reshape(rank.size, 8)[:, 0]
        self._values = np.frombuffer(memory, np.float64, offset=64 * rank.size).reshape(rank.size, -1)
        self._turn = os.open(rank.folder / "turn", os.O_RDONLY | os.O_CLOEXEC)
        self._waiting = os.open(rank.folder / "waiting", os.O_WRONLY | os.O_CLOEXEC)

    def wait(self) -> None:
        """All ranks are here."""
        self._arrivals += 1
        flags, arrivals = self._flags, self._arrivals
        flags[self._rank] = arrivals
        for other in range(len(flags)):
            num_polls = 0
            while flags[other] < arrivals:
                num_polls += 1
                if num_polls > self._num_spins:
                    os.sched_yield()

    def gather(self, values: Any) -> Array:
        """The values of all ranks, [rank][...], on all of them."""
        own = np.asarray(values, float)
        self._values[self._rank, : own.size] = own.ravel()
        self.wait()
        everyone = self._values[:, : own.size].reshape(-1, *own.shape).copy()
        self.wait()
        return everyone

    def turn(self) -> float:
        """End the launch's turn and wait for its next one; the seconds that it has left."""
        self.wait()
        if self._rank == 0:
            os.write(self._waiting, b"x")
        (left,) = struct.unpack("d", os.read(self._turn, 8))
        return float(left)


class MpiLine:
    """The start line of ranks on several nodes, by MPI. The launch is alone: it always has its turn."""

    has_one_clock = False

    def __init__(self, world: Any, end: float) -> None:
        self._world, self._end, self.wait = world, end, world.Barrier

    def gather(self, values: Any) -> Array:
        """The values of all ranks, [rank][...], on all of them."""
        return np.array(self._world.allgather(np.asarray(values, float)))

    def turn(self) -> float:
        """The seconds that the launch has left, by the clock of rank 0."""
        return float(self._world.bcast(self._end - time.monotonic()))


class Cell(NamedTuple):
    """An operation at a size."""

    operation: CollectiveOperation
    message: Any
    call: Call
    facts: dict[str, Any]  # of its lines


class Measurement:
    """All sizes and operations of a launch."""

    def __init__(self, rank: Rank, line: NodeLine | MpiLine, library: Library) -> None:
        self._rank, self._line, self._library = rank, line, library
        self._file = (rank.folder / "samples.jsonl").open("x") if rank.rank == 0 else None
        self._write("launch", library=library.description)

    def run(self, words: Sequence[str], sizes: Sequence[int], seconds: float) -> None:
        """Measure the operations "mpi" (its allreduce), "mpi:broadcast" ..., and write everything down."""
        whole = self._library.empty(max(sizes) // ITEM_BYTES)
        late = -1.0 - seconds / 2  # large messages take more than their share in any case
        for index, message_bytes in enumerate(sizes):
            left = self._line.turn()
            share = left / (len(sizes) - index) / len(words)
            planned = []
            for word in words:
                cell = self._cell(word, message_bytes, whole)
                if reason := self._complaint(cell) if left > late else "no time was left":
                    self._write("failure", **cell.facts, reason=reason)
                else:
                    planned.append((cell, self._warm_up(cell, left, share)))
            for number in range(ROUNDS if planned else 0):
                self._line.turn()
                # Every other round runs backwards: no operation always follows the same one.
                for cell, num_calls in planned if number % 2 == 0 else planned[::-1]:
                    in_round = math.ceil(num_calls / ROUNDS)
                    if number * in_round < num_calls:
                        self._measure(cell, number, in_round)
        self._write("end")

    def _cell(self, word: str, message_bytes: int, whole: Any) -> Cell:
        name, _, collective = word.partition(":")
        operation = BY_NAME[collective or "allreduce"]
        message = whole[: operation.num_elements(message_bytes, self._rank.size)]
        facts = {
            "operation": name,
            "collective": operation.name,
            "message_bytes": message_bytes,
            "used_bytes": ITEM_BYTES * len(message),
        }
        call = self._library.calls[operation.name](message)
        return Cell(operation, message, self._library.whole(call), facts)

    def _complaint(self, cell: Cell) -> str:
        """What is wrong with a call's result on any rank; empty if nothing is."""
        library, message, rank = self._library, cell.message, self._rank
        if len(message) == 0:
            return f"no element for each of {rank.size} ranks"
        library.put(message, given(len(message), rank.rank))
        result = cell.call()
        if result is None:
            result = library.part(message) if cell.operation.name == "reduce_scatter" else message
        wanted = cell.operation.wanted(len(message), rank.rank, rank.size)
        equal = np.array_equal(library.get(result)[: len(wanted)], wanted)
        # Positive, so that sums over sums only grow to infinity: zeros might be stored more cheaply, and denormal
        # numbers are added slowly.
        library.put(message, 1.0)
        return "" if self._line.gather(equal).all() else "wrong result"

    def _warm_up(self, cell: Cell, left: float, share: float) -> int:
        """The number of calls to time, so that warming up and they take a `share` of the seconds that are left."""
        begin, spent, num_warmup = time.perf_counter(), 0.0, 0
        num_calls = NUM_WARMUP + self._library.num_trials
        while num_warmup < num_calls and spent < max(WARMUP_SECONDS, left / 2):
            self._time(cell)
            num_warmup += 1
            spent = self._line.gather(time.perf_counter() - begin).max()
        cell.facts["num_warmup"] = num_warmup
        return min(max(math.ceil((share - spent) / spent * num_warmup), MIN_CALLS), MAX_CALLS)

    def _measure(self, cell: Cell, number: int, num_calls: int) -> None:
        """Time the calls of a round."""
        self._time(cell)  # finds the other operation's traces in the caches
        times = self._line.gather([self._time(cell) for _ in range(num_calls)])
        starts, seconds = times[..., 0], times[..., 1]
        if self._line.has_one_clock:
            seconds = cell.operation.call_seconds(starts, seconds)
        nanoseconds = np.rint(1e9 * seconds).astype(int).tolist()
        self._write("block", **cell.facts, round=number, nanoseconds=nanoseconds)

    def _time(self, cell: Cell) -> tuple[float, float]:
        """Start and seconds of a call."""
        self._line.wait()
        start = time.perf_counter()
        cell.call()
        return start, time.perf_counter() - start

    def _write(self, kind: str, **fields: object) -> None:
        if self._file:
            self._file.write(json.dumps({"kind": kind, **fields}) + "\n")
            self._file.flush()
