"""Launches of libraries, which take turns, and what happened as a record of each.

On a virtual machine that moves its CPUs every few seconds, launches that follow each other are measured on different
machines. So all launches of a group are started one by one, and then each has its turn again and again, for a fraction
of a second, the order reversed after every pass, while the ranks of all others sleep. Launches on nodes of a job are
alone and have no turns.
"""

from __future__ import annotations

import json
import os
import re
import select
import shlex
import struct
import subprocess
import tempfile
import time
from collections import defaultdict
from collections.abc import Sequence
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from dlscale.base.files import APPENDED, open_regular, read_end
from dlscale.base.strings import redact
from dlscale.base.variables import passed_on
from dlscale.benchmarks.launch import signals
from dlscale.benchmarks.launch.causes import last_words
from dlscale.benchmarks.launch.supervisor import POLL_SECONDS, end, running, wait
from dlscale.benchmarks.message_sizes.machine import Machine
from dlscale.benchmarks.records.message_sizes import MessageSizeLaunch

START = Path(__file__).with_name("start.py")
LEAST_SECONDS = 0.5  # that a launch has to measure, however long starting took
HANGING_SECONDS = 60  # more than a launch has: then it is ended
TAIL_LINES = 20
MEMORY = Path("/dev/shm")  # noqa: S108 - mkdtemp makes the names


def run_together(
    orders: Sequence[MessageSizeLaunch],
    machine: Machine,
    *,
    sizes: Sequence[int],
    seconds: float,
    results: Path,
) -> list[MessageSizeLaunch]:
    """The ordered launches' records, within about `seconds`.

    A failure is in its launch's record, not an exception; nothing that was started is left running.
    """
    with signals.deferred(), ExitStack() as stack:
        end = time.monotonic() + seconds
        launches = [_Launch(order, machine, stack, results) for order in orders]
        for launch in launches:
            launch.start(sizes, seconds / len(launches))
        left = max(LEAST_SECONDS * len(launches), end - time.monotonic())
        for launch in launches:
            launch.left = left / len(launches)
        in_turn = launches
        while in_turn := [launch for launch in in_turn if launch.is_waiting]:
            for launch in in_turn:
                launch.take_turn()
            in_turn.reverse()  # so that none always follows the same other
        return [launch.record() for launch in launches]


class _Launch:
    """One launch of a group. What it needs and starts is cleared away as the group's stack is closed."""

    def __init__(self, order: MessageSizeLaunch, machine: Machine, stack: ExitStack, results: Path) -> None:
        self.order, self._machine, self._stack = order, machine, stack
        self.is_waiting, self.left = False, 0.0  # for its turn; seconds
        # Ranks of one node meet in memory where that is possible: a page on its way to a disk is slow to write to.
        place = results.absolute() if machine.nodes else MEMORY if os.access(MEMORY, os.W_OK) else None
        folder = tempfile.TemporaryDirectory(prefix="dlscale-collectives-", dir=place)
        self._folder = Path(stack.enter_context(folder))
        self._log = self._folder / "output.log"
        self._command = machine.command(order, ["-P", str(START), str(self._folder)])
        self._process: subprocess.Popen[bytes] | None = None
        self._turn = self._waiting = -1
        self._failure: str | None = None
        self._started = datetime.now(UTC).isoformat(timespec="seconds")

    def start(self, sizes: Sequence[int], seconds: float) -> None:
        """Start it, and wait until it has ended or waits for its turn."""
        per_node = self._machine.ranks_per_node or self.order.num_ranks
        order = self.order.model_dump(include={"operations", "num_ranks", "thread_level"})
        order |= {"sizes": sizes, "seconds": seconds, "cpus": self._machine.cpus, "ranks_per_node": per_node}
        (self._folder / "order.json").write_text(json.dumps(order), encoding="utf-8")
        if not self._machine.nodes:
            self._turn = self._fifo("turn", os.O_RDWR)
            self._waiting = self._fifo("waiting", os.O_RDONLY | os.O_NONBLOCK)
        variables = passed_on({"scheduler"} if self._machine.nodes else ())
        self.left = seconds
        with os.fdopen(open_regular(self._log, APPENDED), "ab") as log:
            try:
                process = running(self._command, environment=variables, output=log)
                self._process = self._stack.enter_context(process)
                self._run(self._process)
            except OSError as error:
                self._failure = f"{redact(self._command[0])} cannot be started: {error.strerror}"

    def _fifo(self, name: str, flags: int) -> int:
        os.mkfifo(self._folder / name, 0o600)
        descriptor = os.open(self._folder / name, flags | os.O_CLOEXEC)
        self._stack.callback(os.close, descriptor)
        return descriptor

    def take_turn(self) -> None:
        """Its turn, until it waits for the next or has ended."""
        if self._process:
            os.write(self._turn, struct.pack("d", self.left) * self.order.num_ranks)
            self._run(self._process)

    def _run(self, process: subprocess.Popen[bytes]) -> None:
        """It has the machine until it waits, has ended, or hangs."""
        begin = time.monotonic()
        limit = HANGING_SECONDS + 2 * max(0.0, self.left)
        self.is_waiting = self._waits(process, begin + limit)
        if not self.is_waiting:
            if not wait(process, begin + limit - time.monotonic()):
                self._failure = f"not finished after {limit:.0f} s, and ended"
            end(process)
        self.left -= time.monotonic() - begin

    def _waits(self, process: subprocess.Popen[bytes], last: float) -> bool:
        """Whether it waits for its turn, as soon as it does; False if it ends before, or its time does."""
        while self._waiting >= 0 and time.monotonic() < last:
            ready, _, _ = select.select([self._waiting], [], [], POLL_SECONDS)
            if ready:
                return bool(os.read(self._waiting, 1))  # empty: all of its ranks have ended
            if process.poll() is not None:
                return False
            signals.check()
        return False

    def record(self) -> MessageSizeLaunch:
        """What happened."""
        lines: dict[str, list[dict[str, Any]]] = defaultdict(list)
        samples, log = self._folder / "samples.jsonl", read_end(self._log)
        for line in samples.read_text(errors="replace").splitlines() if samples.exists() else ():
            try:
                fields = json.loads(line)
            except ValueError:  # its process was killed in this line, the last
                break
            lines[fields.pop("kind")].append(fields)
        failure = self._failure
        if not failure and self._process and self._process.returncode:
            stated = re.search(
                r"^(collectives benchmark: |\w*(Error|Exception): |Abort\().*", log, re.MULTILINE
            )
            ended = f"mpiexec ended with exit status {self._process.returncode}"
            failure = stated[0].strip() if stated else "; ".join(filter(None, [ended, last_words(log, ())]))
        if not failure and "end" not in lines:
            failure = "it ended without an error and without its results"
        header = lines["launch"][0] if lines["launch"] else {}
        command = shlex.join(self._command).replace(str(self._folder), "<spool>")
        happened = {
            "command": redact(command),
            "started": self._started,
            "library": header.get("library"),
            "samples": lines["block"],
            "failures": lines["failure"],
            "failure": redact(failure) if failure else None,
            "log_tail": redact("\n".join(log.splitlines()[-TAIL_LINES:])) if failure else "",
        }
        return MessageSizeLaunch.model_validate({**self.order.model_dump(), **happened})
