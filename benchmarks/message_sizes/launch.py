"""Launches of libraries: command lines, turns, and what happened as a record of each.

On a virtual machine that moves its CPUs every few seconds, launches that follow each other are measured on different
machines. So all of a group are started one by one, and then each has its turn again and again, for a fraction of a
second, the order reversed after every pass, while the ranks of all others sleep (`Turns`). A launch that is alone has
no turns.
"""

from __future__ import annotations

import os
import re
import select
import shlex
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from dlscale.base.files import APPENDED, open_regular, read_end
from dlscale.base.parsing import parse_json_object
from dlscale.base.redaction import redact
from dlscale.benchmarks.launch import signals
from dlscale.benchmarks.launch.causes import last_words, who_died
from dlscale.benchmarks.launch.processes import POLL_SECONDS, end, running, wait
from dlscale.benchmarks.launch.supervisor import now
from dlscale.benchmarks.message_sizes.machine import Machine
from dlscale.benchmarks.message_sizes.peers import Peer, PeerSetting
from dlscale.benchmarks.records.message_sizes import CellFailure, MessageSizeLaunch, Purpose, Samples

START = Path(__file__).with_name("start.py")
# The ring's allreduce in memory of its own is measured in launches of its own, as users run it: in one process the
# messages of each would push the others' out of the caches.
RING_SHARED: Final = "ring-shared"
GRACE_SECONDS = 5  # the ranks end themselves before
TAIL_LINES = 20
MEMORY = Path("/dev/shm")  # noqa: S108 - mkstemp makes the names


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchOrder:
    """One launch to make."""

    peer: Peer
    setting: PeerSetting
    num_ranks: int
    sizes: Sequence[int]
    operations: Sequence[str] = ()  # "mpi", an allreduce, "mpi:broadcast", "stream"
    purpose: Purpose = "measured"
    block: int = 0
    seconds: float = 1.0  # of timed calls, about
    limit_seconds: int = 600  # of its own, beside what it waits for its turns; then it is ended

    @property
    def name(self) -> str:
        """For people."""
        setting = "memory of its own" if RING_SHARED in self.operations else self.setting.name
        return f"{self.peer.title}, {setting}, {self.num_ranks} ranks"


def command(
    order: LaunchOrder, machine: Machine, folder: Path, flags: Path, *, num_together: int = 1
) -> list[str]:
    """The whole command line. The launch's own files lie in `folder`, the flags of its start line elsewhere.

    It takes turns with the others of the `num_together` launches that run at the same time.
    """
    arguments = [
        *("-P", str(START), "--cpus", _listed(machine.cpus), "--num-ranks", str(order.num_ranks)),
        *("--ranks-per-node", str(machine.ranks_on_node(order.num_ranks))),
        *("--backend", "mpi" if order.peer.kind == "mpi" else order.peer.name),
        *("--operations", _listed(order.operations), "--thread-level", order.setting.thread_level),
        *("--sizes", _listed(order.sizes), "--seconds", f"{order.seconds:.2f}"),
        *("--limit", str(order.limit_seconds), "--turns", str(num_together)),
        *("--folder", str(folder), "--flags", str(flags)),
    ]
    return machine.command(order.peer, order.setting, arguments, num_ranks=order.num_ranks)


def _listed(values: Sequence[int] | Sequence[str]) -> str:
    return ",".join(str(value) for value in values)


def run_together(
    orders: Sequence[LaunchOrder],
    machine: Machine,
    *,
    position: int,
    starting: Callable[[LaunchOrder], None] = lambda _: None,
) -> list[MessageSizeLaunch]:
    """Their records, the first of which is the run's `position`-th launch. `starting` is called before each start.

    A failure is in its launch's record, not an exception; nothing that was started is left running.
    """
    with signals.deferred(), ExitStack() as stack:
        launches = [_Launch(order, machine, stack, num_together=len(orders)) for order in orders]
        for launch in launches:
            starting(launch.order)
            launch.start()
        in_turn = list(launches)
        while any(launch.is_waiting for launch in in_turn):
            for launch in in_turn:
                launch.take_turn()
            in_turn.reverse()  # nobody always follows the same one
        together = position if len(orders) > 1 else None
        return [
            launch.record(position=position + index, together=together)
            for index, launch in enumerate(launches)
        ]


class _Launch:
    """One launch of a group. What it needs and starts is cleared away as the group's stack is closed."""

    def __init__(self, order: LaunchOrder, machine: Machine, stack: ExitStack, *, num_together: int) -> None:
        self.order = order
        self.is_waiting = False  # for its turn
        self._stack, self._machine = stack, machine
        folder = tempfile.TemporaryDirectory(prefix="dlscale-collectives-", dir=machine.folder)
        self._folder = Path(stack.enter_context(folder))
        # In memory where that is possible: a page on its way to a disk is slow to write to.
        descriptor, flags = tempfile.mkstemp(
            prefix="dlscale-flags-", dir=MEMORY if os.access(MEMORY, os.W_OK) else None
        )
        os.close(descriptor)
        self._flags = Path(flags)
        stack.callback(self._remove_flags)
        self._command = command(order, machine, self._folder, self._flags, num_together=num_together)
        self._turn = self._waiting = -1
        if num_together > 1:
            self._turn = self._fifo("turn", os.O_RDWR)
            self._waiting = self._fifo("waiting", os.O_RDONLY | os.O_NONBLOCK)
        self._log = self._folder / "output.log"
        self._process: subprocess.Popen[bytes] | None = None
        self._failure: str | None = None
        self._started = ""
        self._seconds = 0.0  # of its own

    def start(self) -> None:
        """Start it, and wait until it has ended or waits for its turn."""
        self._started = now()
        with os.fdopen(open_regular(self._log, APPENDED), "ab") as log:
            try:
                self._process = self._stack.enter_context(
                    running(self._command, environment=self._machine.passed_on(), output=log)
                )
            except OSError as error:
                self._failure = f"{redact(self._command[0])} cannot be started: {error.strerror}"
                return
        self._run(self._process)

    def take_turn(self) -> None:
        """Its turn, if it waits for one: until it waits for the next, or has ended."""
        if self.is_waiting and self._process:
            os.write(self._turn, b"x" * self.order.num_ranks)
            self._run(self._process)

    def _run(self, process: subprocess.Popen[bytes]) -> None:
        """It has the machine until it waits, has ended, or has had more than its time."""
        begin = time.monotonic()
        last = begin + self.order.limit_seconds + GRACE_SECONDS - self._seconds
        self.is_waiting = self._waits(process, last)
        if not self.is_waiting:
            if not wait(process, last - time.monotonic()):
                self._failure = f"not finished after {self.order.limit_seconds:.0f} s, and ended"
            end(process)
        self._seconds += time.monotonic() - begin

    def _waits(self, process: subprocess.Popen[bytes], last: float) -> bool:
        """Whether it waits for its turn, as soon as it does; False if it ends before, or its time does."""
        if self._waiting < 0:
            return False
        while time.monotonic() < last:
            ready, _, _ = select.select([self._waiting], [], [], POLL_SECONDS)
            if ready:
                return bool(os.read(self._waiting, 1))  # empty: all of its ranks have ended
            if process.poll() is not None:
                return False
            signals.check()
        return False

    def _fifo(self, name: str, flags: int) -> int:
        path = self._folder / name
        os.mkfifo(path, 0o600)
        descriptor = os.open(path, flags | os.O_CLOEXEC)
        self._stack.callback(os.close, descriptor)
        return descriptor

    def _remove_flags(self) -> None:
        # The ranks do it too, once all have mapped it; those of several nodes have a file on each.
        for path in self._flags.parent.glob(f"{self._flags.name}*"):
            path.unlink(missing_ok=True)

    def record(self, *, position: int, together: int | None) -> MessageSizeLaunch:
        """What happened."""
        order, setting = self.order, self.order.setting
        log = read_end(self._log)
        failure = self._failure
        if failure is None and self._process and self._process.returncode != 0:
            failure = _why(log, self._process.returncode)
        lines = _lines_by_kind(self._folder / "samples.jsonl")
        if failure is None and "end" not in lines:
            failure = "it ended without an error and without its results"
        header = next(iter(lines.get("launch", [])), {})
        line = shlex.join(self._command).replace(str(self._folder), "<spool>")
        return MessageSizeLaunch(
            purpose=order.purpose,
            block=order.block,
            position=position,
            together=together,
            backend=order.peer.name,
            setting=setting.name,
            variables={key: redact(value) for key, value in setting.variables.items()},
            thread_level=setting.thread_level,
            num_ranks=order.num_ranks,
            num_nodes=-(-order.num_ranks // self._machine.ranks_on_node(order.num_ranks)),
            operations=list(order.operations),
            command=redact(line.replace(str(self._flags), "<flags>")),
            started=self._started,
            seconds=self._seconds,
            library=header.get("library"),
            thread_level_provided=header.get("thread_level"),
            barrier=header.get("barrier"),
            samples=[Samples.model_validate(line) for line in lines.get("block", [])],
            failures=[CellFailure.model_validate(line) for line in lines.get("failure", [])],
            failure=failure,
            log_tail=redact("\n".join(log.splitlines()[-TAIL_LINES:])) if failure else "",
        )


def _why(text: str, status: int) -> str:
    """The first line in which a program says what is wrong, or how it died."""
    for pattern in (r"^collectives benchmark: .*", r"^\w*(?:Error|Exception): .*", r"^Abort\(.*"):
        if match := re.search(pattern, text, re.MULTILINE):
            return redact(match[0].strip())
    if death := who_died(text):
        return f"a rank died: {death.how}"
    return "; ".join(filter(None, [f"mpiexec ended with exit status {status}", last_words(text, ())]))


def _lines_by_kind(path: Path) -> dict[str, list[dict[str, Any]]]:
    """The whole lines of a file, by their kind: one that its process was killed in is the last."""
    by_kind: dict[str, list[dict[str, Any]]] = {}
    text = path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""
    for line in text.splitlines():
        try:
            fields = parse_json_object(line)
        except ValueError:
            break
        by_kind.setdefault(fields.pop("kind"), []).append(fields)
    return by_kind
