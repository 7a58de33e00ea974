"""The one loop that times every operation of every library: messages, warm-up, checks, rounds. All calls are hot."""

from __future__ import annotations

import argparse
import json
import math
import os
import time
from typing import Any

import numpy as np

from dlscale.benchmarks.message_sizes.driver.libraries import Library, Operation
from dlscale.benchmarks.message_sizes.driver.lockstep import MAX_CALLS, StartLine, Turns
from dlscale.benchmarks.message_sizes.driver.memory import Call
from dlscale.benchmarks.records.collective_operations import BY_NAME, COLLECTIVES, ITEM_BYTES

ROUNDS = 8  # turns at each size, of the operations of a launch and of launches that run at the same time
LEAST_IN_ROUND = 2  # calls
MIN_CALLS = 5  # of an operation at a size, in all rounds
NUM_WARMUP = 5
# The ring tries its variants of moving large messages in its first calls.
NUM_TRIALS = {"ring": 30, "ring-shared": 30}
MARGIN = 0.2  # of the seconds that a launch may take: before that, the last size is begun
PATIENCE = 2  # times its share of the time that an operation may take to warm up, and again to be timed


class Measurement:
    """All sizes and operations of a launch."""

    def __init__(
        self, options: argparse.Namespace, lockstep: StartLine, turns: Turns, library: Library
    ) -> None:
        self._options, self._lockstep, self._turns = options, lockstep, turns
        stream = Operation("stream", COLLECTIVES[0], library.memory.stream, checked=False)
        offered = {
            (operation.name, operation.collective): operation for operation in [*library.operations, stream]
        }
        self._operations = [_asked(word, offered) for word in options.operations]
        self._choices = library.choices
        self._memory = library.memory
        self._messages: dict[
            str, Any
        ] = {}  # memory for the largest message, by operation: one for all that ask for none
        common: Any = None
        for operation in self._operations:
            array = operation.memory
            if array is None:
                common = self._memory.empty(max(options.sizes) // ITEM_BYTES) if common is None else common
                array = common
            # Positive, so that sums over sums only grow to infinity: zeros might be stored more cheaply, and denormal
            # numbers are added slowly.
            self._memory.fill(array, 1.0)
            self._messages[operation.name] = array
        # What is measured late must end before the launch is ended, which would take its end with it.
        starting = lockstep.slowest(turns.seconds_since(options.begin))
        self._most_seconds = max(0.0, (1 - MARGIN) * options.limit - starting)
        self._begin = options.begin + starting
        self._seconds = min(options.seconds, self._most_seconds)
        self._num_left = len(options.sizes) * len(self._operations)
        self._file = os.fdopen(_created(options.output), "w") if lockstep.rank == 0 else None
        self._write(
            kind="launch",
            library=library.description,
            thread_level=library.thread_level,
            num_ranks=lockstep.size,
            barrier=lockstep.barrier,
        )

    def run(self) -> None:
        """Measure and write everything down."""
        for message_bytes in self._options.sizes:
            self._measure(message_bytes)
        for choice in self._choices():
            self._write(kind="choice", **choice)
        self._write(kind="end")

    def _measure(self, message_bytes: int) -> None:
        """The operations take turns, so that a machine that drifts changes them alike."""
        self._turns.next()
        plans = [(operation, *self._warm_up(operation, message_bytes)) for operation in self._operations]
        for index in range(ROUNDS):
            self._turns.next()
            blocks = []
            before = self._lockstep.compare_clocks()
            # Every other round runs backwards: no operation always follows the same one.
            for operation, num_warmup, total in plans if index % 2 == 0 else plans[::-1]:
                # Slow calls do not reach the last rounds: each begins with one that is not timed.
                num_rounds = min(ROUNDS, -(-total // LEAST_IN_ROUND))
                num_calls = -(-(total - index) // num_rounds) if index < num_rounds else 0
                if num_calls <= 0:
                    continue
                self._call(operation, message_bytes)  # finds the other operation's traces in the caches
                times = [self._call(operation, message_bytes) for _ in range(num_calls)]
                cell = self._cell(operation, message_bytes)
                gathered = self._gather(operation.collective, times)
                blocks.append({**cell, "round": index, "num_warmup": num_warmup, **gathered})
            trips = [before, self._lockstep.compare_clocks()]
            around = [round(1e9 * seconds) for seconds in trips if seconds is not None]
            for block in blocks:
                self._write(kind="block", **block, round_trip_nanoseconds=around)

    def _warm_up(self, operation: Operation, message_bytes: int) -> tuple[int, int]:
        """Untimed calls that were made, and how many to time in all rounds; (0, 0) if it cannot be measured."""
        spent = self._lockstep.slowest(self._turns.seconds_since(self._begin))
        share = max(self._seconds - spent, 0.1 * self._seconds) / self._num_left
        # Warming up and timing may take PATIENCE times as long each, and must end in time.
        left = max(0.0, self._most_seconds - spent) / 2
        share = min(share, left / PATIENCE)
        # Who tries variants while it warms up is not timed before it has chosen one.
        patience = max(PATIENCE * share, left / self._num_left if operation.name in NUM_TRIALS else 0.0)
        self._num_left -= 1
        late = spent > min(1.5 * self._seconds + 1, self._most_seconds)
        if reason := "no time was left" if late else self._verify(operation, message_bytes):
            self._write(kind="failure", **self._cell(operation, message_bytes), reason=reason)
            return 0, 0
        num_wanted = NUM_WARMUP + NUM_TRIALS.get(operation.name, 0)
        num_warmup, shortest, spent = 0, math.inf, 0.0
        while num_warmup < num_wanted and (num_warmup < 1 or spent < patience):
            seconds = self._lockstep.slowest(self._call(operation, message_bytes)[1])
            shortest, spent, num_warmup = min(shortest, seconds), spent + seconds, num_warmup + 1
        at_most = min(MAX_CALLS, PATIENCE * share / shortest)
        num_calls = min(max(share / shortest, min(MIN_CALLS, at_most)), at_most)
        return num_warmup, max(1, math.ceil(num_calls))

    def _cell(self, operation: Operation, message_bytes: int) -> dict[str, object]:
        return {
            "operation": operation.name,
            "collective": operation.collective,
            "message_bytes": message_bytes,
            "used_bytes": ITEM_BYTES * self._num_elements(operation, message_bytes),
        }

    def _num_elements(self, operation: Operation, message_bytes: int) -> int:
        return BY_NAME[operation.collective].num_elements(message_bytes, self._lockstep.size)

    def _message(self, operation: Operation, message_bytes: int) -> Any:
        return self._messages[operation.name][: self._num_elements(operation, message_bytes)]

    def _call(self, operation: Operation, message_bytes: int) -> tuple[float, float]:
        call = operation.prepare(self._message(operation, message_bytes))
        self._lockstep.wait()
        start = time.perf_counter()
        call()
        return start, time.perf_counter() - start

    def _verify(self, operation: Operation, message_bytes: int) -> str:
        """What is wrong with a call's result on any rank; empty if nothing is."""
        message, row = self._message(operation, message_bytes), BY_NAME[operation.collective]
        if len(message) == 0:
            return f"{message_bytes} B have no element for each of {self._lockstep.size} ranks"
        shape = (len(message), self._lockstep.rank, self._lockstep.size)
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
        self._memory.fill(message, 1.0)
        failed = self._lockstep.slowest(float(bool(complaint))) > 0
        return complaint or ("failed on another rank" if failed else "")

    def _gather(self, collective: str, times: list[tuple[float, float]]) -> dict[str, object]:
        gathered = self._lockstep.gather([start for start, _ in times], [seconds for _, seconds in times])
        if gathered is None:
            return {}
        starts, seconds = gathered
        spread = starts.max(axis=0) - starts.min(axis=0)
        return {
            "nanoseconds": np.rint(BY_NAME[collective].call_seconds(starts, seconds) * 1e9)
            .astype(int)
            .tolist(),
            "spread_nanoseconds": np.rint(spread * 1e9).astype(int).tolist(),
        }

    def _write(self, **line: object) -> None:
        if self._file:
            self._file.write(json.dumps(line) + "\n")
            self._file.flush()


def _asked(word: str, offered: dict[tuple[str, str], Operation]) -> Operation:
    """The operation called "mpi" (its allreduce) or "mpi:broadcast"; one that fails if the library has none such."""
    name, _, collective = word.partition(":")
    if name not in {known for known, _ in offered}:
        raise KeyError(name)

    def missing(_: Any) -> Call:
        raise LookupError(f"this library has no {collective}")

    key = (name, collective or COLLECTIVES[0])
    return offered.get(key, Operation(*key, missing))


def _created(path: str) -> int:
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
