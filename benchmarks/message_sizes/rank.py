"""One rank of a launch, which times one library's operations: the same program and loop for every library.

`start.py` starts it with the Python of the library's own environment. That has NumPy but not dlscale's other
dependencies: what is imported here must need nothing else, except for the ring. Rank 0 writes JSON lines to --output:

    {"kind": "launch", "library": ..., "thread_level": ..., ...}      first
    {"kind": "block", "operation": ..., "nanoseconds": [rank][call], ...}
    {"kind": "failure", "operation": ..., "reason": ...}
    {"kind": "end"}                                                   last; without it the launch failed

With --turns N it shares the machine with so many launches, itself among them (`Turns`). All calls are hot.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import signal
import sys
import time
import traceback
from pathlib import Path
from typing import Any

import numpy as np

from dlscale.benchmarks.message_sizes.calls import START, Call, Library, Operation, RankNumbers
from dlscale.benchmarks.message_sizes.startline import MAX_CALLS, StartLine, Turns
from dlscale.benchmarks.rank.process import end_with_parent, launched_rank
from dlscale.benchmarks.records.collective_operations import BY_NAME, COLLECTIVES, ITEM_BYTES

ROUNDS = 8  # turns at each size, of the operations of a launch and of launches that run at the same time
LEAST_IN_ROUND = 2  # calls
MIN_CALLS = 5  # of an operation at a size, in all rounds
NUM_WARMUP = 5
NUM_TRIALS = (
    30  # more to warm up the ring, which tries its variants of moving large messages in its first calls
)
MARGIN = 0.2  # of the seconds that a launch may take: before that, the last size is begun
PATIENCE = 2  # times its share of the time that an operation may take to warm up, and again to be timed


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
    rank, size = launched_rank(), options.num_ranks
    per_node = options.ranks_per_node or size
    end_with_parent()
    _bind(options.cpus[rank % len(options.cpus)], rank % per_node)  # before anything starts a thread
    options.begin = time.monotonic()
    signal.alarm(options.limit * options.turns)  # whatever hangs: no process stays
    world = None
    if per_node < size:
        import mpi4py

        mpi4py.rc.thread_level = options.thread_level
        from mpi4py import MPI

        world = MPI.COMM_WORLD
    yields = per_node > len(set(options.cpus))
    line = StartLine(options.flags, rank, size, ranks_per_node=per_node, yields=yields, world=world)
    library = START[options.backend](options, RankNumbers(rank, size, rank % per_node))
    turns = Turns(options.folder, options.turns, line)
    Measurement(options, line, turns, library).run()
    turns.next()  # so that ending disturbs nobody else
    line.wait()
    library.close()


def _parse() -> argparse.Namespace:
    def numbers(text: str) -> list[int]:
        return [int(word) for word in text.split(",")]

    parser = argparse.ArgumentParser()
    parser.add_argument("--cpus", type=numbers, required=True)
    parser.add_argument("--num-ranks", type=int, default=1)
    parser.add_argument("--ranks-per-node", type=int, default=0)
    parser.add_argument("--folder", type=Path, help="of the turns, the samples, and what torch meets in")
    parser.add_argument("--flags", help="file of the start line")
    parser.add_argument("--backend", choices=START, default="mpi")
    parser.add_argument("--operations", type=lambda text: text.split(","), default=[])
    parser.add_argument("--sizes", type=numbers, default=[])
    parser.add_argument("--thread-level", default="single")
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--limit", type=int, default=600)
    parser.add_argument("--turns", type=int, default=1)
    options = parser.parse_args()
    options.store = str(options.folder / "store")
    return options


def _bind(cpu: int, local_rank: int) -> None:
    """Bind to that CPU, or to one that a launcher which binds has left to this process."""
    allowed = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {cpu if cpu in allowed else allowed[local_rank % len(allowed)]})


class Measurement:
    """All sizes and operations of a launch."""

    def __init__(self, options: argparse.Namespace, line: StartLine, turns: Turns, library: Library) -> None:
        self._options, self._line, self._turns, self._memory = options, line, turns, library.memory
        stream = Operation(COLLECTIVES[0], self._memory.stream, checked=False)
        offered = {**library.operations, "stream": stream}
        self._operations = {word: _asked(word, offered) for word in options.operations}
        self._messages: dict[
            str, Any
        ] = {}  # for the largest message: one for all operations that ask for none
        common: Any = None
        for word, operation in self._operations.items():
            array = operation.memory
            if array is None:
                common = self._memory.empty(max(options.sizes) // ITEM_BYTES) if common is None else common
                array = common
            # Positive, so that sums over sums only grow to infinity: zeros might be stored more cheaply, and denormal
            # numbers are added slowly.
            self._memory.put(array, 1.0)
            self._messages[word] = array
        # What is measured late must end before the launch is ended, which would take its end with it.
        starting = line.slowest(turns.seconds_since(options.begin))
        self._most_seconds = max(0.0, (1 - MARGIN) * options.limit - starting)
        self._begin = options.begin + starting
        self._seconds = min(options.seconds, self._most_seconds)
        self._num_left = len(options.sizes) * len(self._operations)
        self._file = os.fdopen(_created(options.folder / "samples.jsonl"), "w") if line.rank == 0 else None
        self._write(
            kind="launch",
            library=library.description,
            thread_level=library.thread_level,
            num_ranks=line.size,
            barrier=line.barrier,
        )

    def run(self) -> None:
        """Measure and write everything down."""
        for message_bytes in self._options.sizes:
            self._measure(message_bytes)
        self._write(kind="end")

    def _measure(self, message_bytes: int) -> None:
        """The operations take turns, so that a machine that drifts changes them alike."""
        self._turns.next()
        plans = [(word, *self._warm_up(word, message_bytes)) for word in self._operations]
        for index in range(ROUNDS):
            self._turns.next()
            blocks = []
            before = self._line.compare_clocks()
            # Every other round runs backwards: no operation always follows the same one.
            for word, num_warmup, total in plans if index % 2 == 0 else plans[::-1]:
                # Slow calls do not reach the last rounds: each begins with one that is not timed.
                num_rounds = min(ROUNDS, -(-total // LEAST_IN_ROUND))
                num_calls = -(-(total - index) // num_rounds) if index < num_rounds else 0
                if num_calls <= 0:
                    continue
                self._call(word, message_bytes)  # finds the other operation's traces in the caches
                times = [self._call(word, message_bytes) for _ in range(num_calls)]
                block = {**self._cell(word, message_bytes), "round": index, "num_warmup": num_warmup}
                blocks.append(block | self._gather(self._operations[word].collective, times))
            trips = [before, self._line.compare_clocks()]
            around = [round(1e9 * seconds) for seconds in trips if seconds is not None]
            for block in blocks:
                self._write(kind="block", **block, round_trip_nanoseconds=around)

    def _warm_up(self, word: str, message_bytes: int) -> tuple[int, int]:
        """Untimed calls that were made, and how many to time in all rounds; (0, 0) if it cannot be measured."""
        spent = self._line.slowest(self._turns.seconds_since(self._begin))
        share = max(self._seconds - spent, 0.1 * self._seconds) / self._num_left
        # Warming up and timing may take PATIENCE times as long each, and must end in time.
        left = max(0.0, self._most_seconds - spent) / 2
        share = min(share, left / PATIENCE)
        # What tries variants while it warms up is not timed before it has chosen one.
        num_trials = NUM_TRIALS if word.startswith("ring") else 0
        patience = max(PATIENCE * share, left / self._num_left if num_trials else 0.0)
        self._num_left -= 1
        late = spent > min(1.5 * self._seconds + 1, self._most_seconds)
        if reason := "no time was left" if late else self._verify(word, message_bytes):
            self._write(kind="failure", **self._cell(word, message_bytes), reason=reason)
            return 0, 0
        num_warmup, shortest, spent = 0, math.inf, 0.0
        while num_warmup < NUM_WARMUP + num_trials and (num_warmup < 1 or spent < patience):
            seconds = self._line.slowest(self._call(word, message_bytes)[1])
            shortest, spent, num_warmup = min(shortest, seconds), spent + seconds, num_warmup + 1
        at_most = min(MAX_CALLS, PATIENCE * share / shortest)
        num_calls = min(max(share / shortest, min(MIN_CALLS, at_most)), at_most)
        return num_warmup, max(1, math.ceil(num_calls))

    def _cell(self, word: str, message_bytes: int) -> dict[str, object]:
        return {
            "operation": word.partition(":")[0],
            "collective": self._operations[word].collective,
            "message_bytes": message_bytes,
            "used_bytes": ITEM_BYTES * len(self._message(word, message_bytes)),
        }

    def _message(self, word: str, message_bytes: int) -> Any:
        row = BY_NAME[self._operations[word].collective]
        return self._messages[word][: row.num_elements(message_bytes, self._line.size)]

    def _call(self, word: str, message_bytes: int) -> tuple[float, float]:
        call = self._operations[word].prepare(self._message(word, message_bytes))
        self._line.wait()
        start = time.perf_counter()
        call()
        return start, time.perf_counter() - start

    def _verify(self, word: str, message_bytes: int) -> str:
        """What is wrong with a call's result on any rank; empty if nothing is."""
        operation, message = self._operations[word], self._message(word, message_bytes)
        if len(message) == 0:
            return f"{message_bytes} B have no element for each of {self._line.size} ranks"
        row, shape = BY_NAME[operation.collective], (len(message), self._line.rank, self._line.size)
        complaint = ""
        try:
            self._memory.put(message, row.given(*shape))
            returned = operation.prepare(message)()
            result = operation.result(message, returned) if operation.result else message
            wanted = row.wanted(*shape)
            if operation.checked and not np.array_equal(self._memory.get(result)[: len(wanted)], wanted):
                complaint = "wrong result"
        except Exception as error:
            complaint = " ".join(f"{type(error).__name__}: {error}".split())
        self._memory.put(message, 1.0)
        failed = self._line.slowest(float(bool(complaint))) > 0
        return complaint or ("failed on another rank" if failed else "")

    def _gather(self, collective: str, times: list[tuple[float, float]]) -> dict[str, object]:
        gathered = self._line.gather([start for start, _ in times], [seconds for _, seconds in times])
        if gathered is None:
            return {}
        starts, seconds = gathered
        taken = BY_NAME[collective].call_seconds(starts, seconds)
        spread = starts.max(axis=0) - starts.min(axis=0)
        return {
            "nanoseconds": np.rint(1e9 * taken).astype(int).tolist(),
            "spread_nanoseconds": np.rint(1e9 * spread).astype(int).tolist(),
        }

    def _write(self, **fields: object) -> None:
        if self._file:
            self._file.write(json.dumps(fields) + "\n")
            self._file.flush()


def _asked(word: str, offered: dict[str, Operation]) -> Operation:
    """The operation called "mpi" (its allreduce) or "mpi:broadcast"; one that fails if the library has none such."""
    name, _, collective = word.partition(":")
    if name not in {known.partition(":")[0] for known in offered}:
        raise KeyError(name)

    def missing(_: Any) -> Call:
        raise LookupError(f"this library has no {collective}")

    return offered.get(word) or Operation(collective or COLLECTIVES[0], missing)


def _created(path: Path) -> int:
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
