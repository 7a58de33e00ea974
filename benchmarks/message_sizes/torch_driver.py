"""Times Gloo's and Horovod's allreduce as the C++ program times MPI's. Runs in their environments, without dlscale.

Started by mpiexec, a process per rank. What it writes are the same JSON lines (collectives/ring/bench/spool.hpp).
"""

from __future__ import annotations

import argparse
import json
import math
import mmap
import os
import signal
import time
from collections.abc import Callable
from typing import Any

import numpy as np

PATIENCE, START_SECONDS = 4, 5  # as in measurement.cpp
NUM_SPINS = 2000
MAX_CALLS = 2000
PAGE_ELEMENTS = 1024
Operation = Callable[[Any], None]
Backend = tuple[Operation, Callable[[], None], str]  # allreduce, ending it, what it is


def main() -> None:
    """One rank, from start to end."""
    options = _parse()
    signal.alarm(options.limit)  # whatever hangs: no process stays
    rank, size = int(os.environ["PMI_RANK"]), int(os.environ["PMI_SIZE"])
    os.sched_setaffinity(0, {options.cpus[rank % len(options.cpus)]})
    import torch

    torch.set_num_threads(1)
    allreduce, close, library = (_gloo if options.backend == "gloo" else _horovod)(options, rank, size)
    lockstep = Lockstep(options.flags, rank, size, yields=size > len(set(options.cpus)))
    Measurement(options, lockstep, allreduce, torch, library).run()
    lockstep.wait()
    close()


def _parse() -> argparse.Namespace:
    def numbers(text: str) -> list[int]:
        return [int(word) for word in text.split(",")]

    parser = argparse.ArgumentParser()
    parser.add_argument("--backend", choices=("gloo", "horovod"), required=True)
    parser.add_argument("--output", required=True)
    parser.add_argument("--flags", required=True)
    parser.add_argument("--store", required=True)
    parser.add_argument("--sizes", type=numbers, required=True)
    parser.add_argument("--modes", type=lambda text: text.split(","), required=True)
    parser.add_argument("--cpus", type=numbers, required=True)
    parser.add_argument("--cold-bytes", type=int, required=True)
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--min-calls", type=int, default=5)
    parser.add_argument("--max-calls", type=int, default=1000)
    parser.add_argument("--warmup-calls", type=int, default=5)
    parser.add_argument("--limit", type=int, default=600)
    return parser.parse_args()


def _gloo(options: argparse.Namespace, rank: int, size: int) -> Backend:
    import torch
    import torch.distributed as dist

    store = dist.FileStore(options.store, size)  # type: ignore[attr-defined]
    dist.init_process_group("gloo", store=store, rank=rank, world_size=size)
    return dist.all_reduce, dist.destroy_process_group, f"Gloo of torch {torch.__version__}"


def _horovod(options: argparse.Namespace, rank: int, size: int) -> Backend:  # noqa: ARG001
    import horovod
    import horovod.torch as hvd

    hvd.init()

    def allreduce(tensor: Any) -> None:
        # One name per size, as a training step repeats its buckets: Horovod remembers them by name.
        hvd.allreduce_(tensor, op=hvd.Sum, name=f"message.{tensor.numel()}")

    return allreduce, hvd.shutdown, f"Horovod {horovod.__version__}"


class Lockstep:
    """A start line in shared memory, and room behind it for every rank's times.

    A cache line per rank counts arrivals; then [rank][start, seconds][call] in seconds.
    """

    def __init__(self, path: str, rank: int, size: int, *, yields: bool) -> None:
        self.rank, self.size, self._yields = rank, size, yields
        num_bytes = 64 * size + 8 * size * 2 * MAX_CALLS
        with open(path, "r+b") as file:
            file.truncate(num_bytes)  # the same on all ranks
            self._map = mmap.mmap(file.fileno(), num_bytes)
        self._flags = np.frombuffer(self._map, np.int64, 8 * size).reshape(size, 8)[:, 0]
        times = np.frombuffer(self._map, np.float64, offset=64 * size)
        self.times = times.reshape(size, 2, MAX_CALLS)
        self._arrivals = 0
        self.wait()
        if rank == 0:
            os.unlink(path)  # whatever happens now, nothing is left behind

    def wait(self) -> None:
        """All ranks are here."""
        self._arrivals += 1
        flags, arrivals = self._flags, self._arrivals
        flags[self.rank] = arrivals
        for other in range(self.size):
            num_polls = 0
            while flags[other] < arrivals:
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


class Measurement:
    """All modes and sizes of one operation."""

    def __init__(
        self, options: argparse.Namespace, lockstep: Lockstep, allreduce: Operation, torch: Any, library: str
    ) -> None:
        self._options, self._lockstep, self._allreduce = options, lockstep, allreduce
        largest = max(options.sizes)
        cold = "cold" in options.modes
        self._count = _pages(largest) + (max(_pages(options.cold_bytes), _pages(largest)) if cold else 0)
        self._memory = torch.ones(self._count, dtype=torch.float32)
        self._torch = torch
        self._cursor = 0
        self._begin = time.perf_counter()
        self._share = options.seconds / (len(options.sizes) * len(options.modes))
        self._file = None
        if lockstep.rank == 0:
            descriptor = os.open(options.output, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            self._file = os.fdopen(descriptor, "w")
        self._write(
            {
                "kind": "launch",
                "library": library,
                "thread_level": "multiple",
                "num_ranks": lockstep.size,
                "barrier": "shared",
                "cold_bytes": options.cold_bytes,
            }
        )

    def run(self) -> None:
        """Measure and write everything down."""
        for mode in self._options.modes:
            for message_bytes in self._options.sizes:
                if mode == "cold" and message_bytes >= self._options.cold_bytes:
                    continue  # as in measurement.cpp
                self._measure(mode, message_bytes)
        self._write({"kind": "end"})

    def _measure(self, mode: str, message_bytes: int) -> None:
        cell = {"operation": self._options.backend, "mode": mode, "message_bytes": message_bytes}
        spent = self._lockstep.slowest(time.perf_counter() - self._begin)
        late = spent > PATIENCE * self._options.seconds + START_SECONDS
        if complaint := "no time was left" if late else self._verify(mode, message_bytes):
            self._write({"kind": "failure", **cell, "reason": complaint})
            return
        num_warmup, shortest, spent = 0, math.inf, 0.0
        while num_warmup < self._options.warmup_calls and (num_warmup < 1 or spent < PATIENCE * self._share):
            seconds = self._lockstep.slowest(self._call(mode, message_bytes)[1])
            shortest, spent, num_warmup = min(shortest, seconds), spent + seconds, num_warmup + 1
        at_most = min(self._options.max_calls, PATIENCE * self._share / shortest)
        calls = min(max(self._share / shortest, min(self._options.min_calls, at_most)), at_most)
        per_round = max(1, math.ceil(calls / self._options.rounds))
        for index in range(self._options.rounds):
            self._call(mode, message_bytes)
            times = [self._call(mode, message_bytes) for _ in range(min(per_round, MAX_CALLS))]
            block = self._gather(times)
            self._write({"kind": "block", **cell, "round": index, "num_warmup": num_warmup, **block})

    def _call(self, mode: str, message_bytes: int) -> tuple[float, float]:
        message = self._next(mode, message_bytes)
        if mode == "fresh":
            message.fill_(1.0)
        self._lockstep.wait()
        start = time.perf_counter()
        self._allreduce(message)
        return start, time.perf_counter() - start

    def _next(self, mode: str, message_bytes: int) -> Any:
        count = message_bytes // 4
        if mode != "cold":
            return self._memory[:count]
        if self._cursor + _pages(message_bytes) > self._count:
            self._cursor = 0
        message = self._memory[self._cursor : self._cursor + count]
        self._cursor += _pages(message_bytes)
        return message

    def _verify(self, mode: str, message_bytes: int) -> str:
        """What is wrong with a call's result on any rank; empty if nothing is."""
        torch, size = self._torch, self._lockstep.size
        message = self._next(mode, message_bytes)
        pattern = torch.arange(message.numel(), dtype=torch.int64).remainder_(1021).float()
        message.copy_(pattern + self._lockstep.rank)
        complaint = ""
        try:
            self._allreduce(message)
            if not torch.equal(message, pattern * size + size * (size - 1) / 2):
                complaint = "wrong result"
        except RuntimeError as error:
            complaint = " ".join(str(error).split())
        message.fill_(1.0)
        if self._lockstep.slowest(float(bool(complaint))) == 0:
            return ""
        return complaint or "failed on another rank"

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

    def _write(self, line: dict[str, object]) -> None:
        if self._file:
            self._file.write(json.dumps(line) + "\n")
            self._file.flush()


def _pages(num_bytes: int) -> int:
    """Elements of as many whole pages as `num_bytes` need."""
    return -(-num_bytes // (4 * PAGE_ELEMENTS)) * PAGE_ELEMENTS


if __name__ == "__main__":
    main()
