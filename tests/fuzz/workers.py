"""Workers that run inputs, each a process: one that an input ends, or holds up, costs that input alone.

A limit is of processor time, as other programs may use the machine; one of time alone is for what waits for nothing.
"""

from __future__ import annotations

import faulthandler
import gc
import multiprocessing
import os
import resource
import signal
import sys
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from multiprocessing import connection
from pathlib import Path
from typing import Any, NamedTuple

from .target import Input, Outcome, Target

WAITING_SECONDS = 600  # that an input may take by the clock
MEMORY_BYTES = 6 << 30  # of a worker
FORK = multiprocessing.get_context("fork")  # everything is imported already


class Batch(NamedTuple):
    """Inputs of one target."""

    name: str
    seeds: Sequence[int]


class Result(NamedTuple):
    """What became of one of them."""

    name: str
    seed: int
    outcome: Outcome


def run_all(
    targets: Mapping[str, Target], batches: Iterable[Batch], *, num_workers: int, logs: Path
) -> Iterator[Result]:
    """The results of all batches, as they come. `logs` is a folder for what workers write as they crash."""
    waiting = iter(batches)
    workers = [_Worker(targets, logs / f"worker-{number}.log") for number in range(num_workers)]
    try:
        busy = [worker for worker in workers if worker.take(next(waiting, None))]
        while busy:
            for pipe in connection.wait([worker.pipe for worker in busy]):
                worker = next(worker for worker in busy if worker.pipe is pipe)
                yield worker.result()
                if worker.left is None and not worker.take(next(waiting, None)):
                    busy.remove(worker)
    finally:
        for worker in workers:
            worker.end()


class _Worker:
    """A process, started again where an input has ended it."""

    def __init__(self, targets: Mapping[str, Target], log: Path) -> None:
        self._targets, self._log = targets, log
        self.left: Batch | None = None
        self._start()

    def _start(self) -> None:
        self.pipe, theirs = FORK.Pipe()
        self._process = FORK.Process(target=_work, args=(self._targets, theirs, self.pipe, self._log))
        self._process.start()
        theirs.close()

    def take(self, batch: Batch | None) -> bool:
        """Begin a batch; False where there is none."""
        self.left = batch
        if batch:
            self.pipe.send(batch)
        return batch is not None

    def result(self) -> Result:
        """That of the next input, which may have ended the process."""
        assert self.left is not None
        name, (seed, *others) = self.left
        self.left = Batch(name, others) if others else None
        try:
            return Result(name, seed, self.pipe.recv())
        except EOFError:
            outcome = self._crash()
            self._start()
            self.take(self.left)
            return Result(name, seed, outcome)

    def _crash(self) -> Outcome:
        self._process.join()
        status = self._process.exitcode or 0
        text = self._log.read_text(errors="replace")
        what = signal.Signals(-status).name if status < 0 else f"exit status {status}"
        if what == "SIGPROF":
            what = "more processor time than its limit"
        elif text.startswith("Timeout"):
            what = f"no end after {WAITING_SECONDS} s"
        lines = [line.strip() for line in text.splitlines() if line.startswith("  File")]
        own = [
            line for line in lines if ".venv" not in line and "/tests/" not in line and "<frozen" not in line
        ]
        return Outcome(kind="fault", text=f"{what}: {' < '.join(lines[:3])}", place=(own or [""])[0])

    def end(self) -> None:
        """End the process."""
        self.pipe.close()
        self._process.kill()
        self._process.join()


def _work(targets: Mapping[str, Target], pipe: Any, theirs: Any, log: Path) -> None:
    theirs.close()
    with suppress(ValueError):
        resource.setrlimit(resource.RLIMIT_DATA, (MEMORY_BYTES, MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    warnings.simplefilter("ignore")
    gc.freeze()
    os.fsync = lambda _: None  # type: ignore[assignment]
    sys.stdout = sys.stderr = open(os.devnull, "w")  # noqa: SIM115
    file = log.open("w")
    faulthandler.enable(file)
    faulthandler.register(signal.SIGPROF, file, chain=True)
    parent = os.getppid()
    while True:
        while not pipe.poll(1):  # other workers have copies of the other end: it is never seen to close
            if os.getppid() != parent:
                os._exit(0)
        name, seeds = pipe.recv()
        inputs = Input(targets[name])
        for seed in seeds:
            faulthandler.dump_traceback_later(WAITING_SECONDS, exit=True, file=file)
            signal.setitimer(signal.ITIMER_PROF, targets[name].seconds)
            outcome = inputs.run(seed)
            signal.setitimer(signal.ITIMER_PROF, 0)
            faulthandler.cancel_dump_traceback_later()
            try:
                pipe.send(outcome)
            except BrokenPipeError:
                os._exit(0)
        inputs.close()
